"""A run in numbers: one record for each (model, inputs, method), and averages over inputs."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from longshot.estimate import Cost, Estimate
from longshot.methods import METHODS
from longshot.study.results import Run, finite
from longshot.study.scores import CellScore, LossName, average, score_cell, score_constant
from longshot.study.store import Target

CONSTANT = "constant"
CostKind = Literal["alone", "each"]
LOSS_KEYS: Mapping[LossName, str] = {"is": "is_loss", "log": "log_mse"}
"""What a record calls each loss."""
CLIPPING = (
    "A prediction is kept within the truths that its fit has seen, which the paper does not do"
)


class TargetCost(NamedTuple):
    """What one target costs on average."""

    forwards: float = 0.0
    backwards: float = 0.0
    macs: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Scored:
    """One method on one cell: what it answered, and what that is worth."""

    model: str
    inputs: str
    method: str
    """Its label in the study, or `CONSTANT`."""
    answers: tuple[tuple[Target, Estimate], ...]
    """In the order of the score's targets; the constant has none."""
    score: CellScore
    tokens: tuple[int, ...] = ()
    """Of the targets that were scored, in their order."""

    def loss(self, name: LossName) -> float | None:
        return self.score.losses[name].mean

    def losses(self, name: LossName) -> list[float]:
        """Of each judged target, left out of its fit; NaN where it was the only one."""
        return [float(loss) for loss in self.score.losses[name].left_out.losses]

    def each(self, name: LossName, fitted: bool = True) -> dict[int, float]:
        """What each judged target loses, by its token: left out of the fit, or without one.

        The constant is the same without one. A fit has nothing to say of a lone target.
        """
        loss = self.score.losses[name]
        lost = loss.left_out.losses if fitted or loss.each_raw is None else loss.each_raw
        judged = itertools.compress(self.tokens, self.score.judged)
        each = dict(zip(judged, lost.tolist(), strict=True))
        return {token: value for token, value in each.items() if math.isfinite(value)}

    def loss_error(self, name: LossName) -> float | None:
        """The loss's standard error, from its spread over targets."""
        return average(self.losses(name))[1]

    def floor(self, name: LossName) -> float | None:
        return self.score.losses[name].noise_floor

    def spent(self, kind: CostKind) -> TargetCost | None:
        """On a target: alone it pays for all its samples, with its cell a share of them."""
        if not self.answers:
            return None
        estimates = [estimate for _, estimate in self.answers]
        costs = [estimate.cost for estimate in estimates]
        shared = [estimate.shared_cost for estimate in estimates]
        costs += shared if kind == "alone" else [max(shared, key=lambda cost: cost.seconds)]
        total = asdict(sum(costs, Cost()))
        return TargetCost(**{name: spent / len(estimates) for name, spent in total.items()})

    @property
    def temperature(self) -> float | None:
        return self.answers[0][1].settings.get("temperature") if self.answers else None

    def record(self) -> dict[str, Any]:
        """Plain values: losses, what stands beside them, and the cost of one target."""
        score = self.score
        record: dict[str, Any] = {
            "model": self.model,
            "inputs": self.inputs,
            "method": self.method,
            "targets": score.targets,
            "unjudged": score.unjudged,
        }
        for name, key in LOSS_KEYS.items():
            loss = score.losses[name]
            record |= {
                key: loss.mean,
                f"{key}_unclipped": loss.unclipped,
                f"{key}_clipped": loss.clipped,
                f"{key}_raw": loss.raw,
                f"{key}_raw_zeros": loss.raw_zeros,
            }
        asked = score.targets if self.answers else 0
        record |= {
            "noise_floor": score.losses["is"].noise_floor,
            "noise_floor_log": score.losses["log"].noise_floor,
            "zero_count": score.zeros,
            "zeros": score.zeros / asked if asked else None,
            **score.coverage._asdict(),
            "coverage": score.coverage.share,
            "intervals": score.coverage.given / asked if asked else None,
            **(self.spent("each") or TargetCost())._asdict(),
            "temperature": self.temperature,
        }
        return {name: finite(value) for name, value in record.items()}


def score_run(run: Run, progress: Callable[[float], None] = lambda share: None) -> list[Scored]:
    """Every method on every cell that has its rows, and the constant before them."""
    scored = []
    for number, (model, inputs) in enumerate(run.cells):
        progress(number / len(run.cells))
        targets = run.chosen["run", model, inputs].targets
        if targets:
            constant = score_constant(*_truth(targets))
            scored.append(Scored(model, inputs, CONSTANT, (), constant, _tokens(targets)))
        for label in run.methods:
            if answers := run.estimates(model, inputs, label):
                asked = [target for target, _ in answers]
                score = score_cell([estimate for _, estimate in answers], *_truth(asked))
                cell = Scored(model, inputs, label, tuple(answers), score, _tokens(asked))
                scored.append(cell)
    progress(1.0)
    return scored


def summary(scored: Iterable[Scored]) -> list[dict[str, Any]]:
    """The records that `summary.json` holds."""
    return [cell.record() for cell in scored]


def clipping_note(scored: Sequence[Scored], loss: LossName) -> str:
    """The rule that bounds the predictions, and how many of them it moved, in one sentence."""
    moved: Counter[str] = Counter()
    for cell in scored:
        moved[cell.method] += cell.score.losses[loss].clipped
    total = sum(cell.score.targets for cell in scored)
    by = ", ".join(f"{method} {count}" for method, count in moved.items() if count)
    return f"{CLIPPING}: {moved.total()} of {total} were moved{f' ({by})' if by else ''}."


def zeros_note(scored: Sequence[Scored]) -> str:
    """What a loss without a fit leaves out, in one sentence."""
    asked = [cell.score for cell in scored if cell.method != CONSTANT]
    zeros, total = sum(score.zeros for score in asked), sum(score.targets for score in asked)
    return (
        f"A loss without a fit leaves out the estimates of zero, {zeros} of {total}; beside it, "
        "each of them costs what the best constant loses on its target."
    )


def missing_methods(run: Run) -> str:
    """A sentence on the methods of a run that are not installed here; empty if all are."""
    found = {row.estimate.method for row in run.rows if row.estimate} - {*METHODS}
    names = ", ".join(sorted(found))
    return f"Not installed here, so fitted by a·x^c + b: {names}." if found else ""


def _truth(targets: Sequence[Target]) -> tuple[Any, Any]:
    return (
        np.array([target.probability for target in targets], dtype=np.float64),
        np.array([target.standard_error for target in targets], dtype=np.float64),
    )


def _tokens(targets: Sequence[Target]) -> tuple[int, ...]:
    return tuple(target.token for target in targets)
