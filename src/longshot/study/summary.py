"""A run in numbers: one record for each (model, inputs, method), and averages over inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from longshot.estimate import Cost, Estimate
from longshot.study.results import Run
from longshot.study.scores import CellScore, average, score_cell, score_constant
from longshot.study.store import Target

CONSTANT = "constant"


@dataclass(frozen=True)
class Scored:
    """One method on one cell: what it answered, and what that is worth."""

    model: str
    inputs: str
    method: str
    answers: tuple[tuple[Target, Estimate | None], ...]
    """In the order of the score's targets; the constant baseline has no estimates."""
    score: CellScore

    @cached_property
    def cost(self) -> Cost:
        """Of all targets together; what they share is spent once."""
        estimates = [estimate for _, estimate in self.answers if estimate is not None]
        own = sum((estimate.cost for estimate in estimates), Cost())
        return own + max(
            (estimate.shared_cost for estimate in estimates),
            key=lambda cost: cost.seconds,
            default=Cost(),
        )

    @property
    def temperature(self) -> float | None:
        for _, estimate in self.answers:
            if estimate is not None:
                return estimate.settings.get("temperature")
        return None

    def record(self) -> dict[str, Any]:
        """Plain values: losses, what stands beside them, and the cost of one target."""
        score, n = self.score, max(len(self.answers), 1)
        numbers = (
            "is_loss", "is_loss_raw", "log_mse", "log_mse_raw", "zeros", "noise_floor",
            "noise_floor_log", "coverage", "intervals", "targets", "unjudged",
        )  # fmt: skip
        return {
            "model": self.model,
            "inputs": self.inputs,
            "method": self.method,
            **{name: _finite(getattr(score, name)) for name in numbers},
            "forwards": self.cost.forwards / n,
            "backwards": self.cost.backwards / n,
            "macs": self.cost.macs / n,
            "seconds": self.cost.seconds / n,
            "temperature": self.temperature,
        }


def score_run(run: Run) -> list[Scored]:
    """Every method on every cell that has its rows, and the constant beside them."""
    scored = []
    for model, inputs in run.cells:
        targets = run.chosen["run", model, inputs].targets
        if not targets:
            continue
        constant = [(target, None) for target in targets]
        truth = _truth(targets)
        scored.append(Scored(model, inputs, CONSTANT, tuple(constant), score_constant(*truth)))
        for label in run.methods:
            answers = run.estimates(model, inputs, label)
            if answers:
                truth = _truth([target for target, _ in answers])
                score = score_cell([estimate for _, estimate in answers], *truth)
                scored.append(Scored(model, inputs, label, tuple(answers), score))
    return scored


def summary(scored: Iterable[Scored]) -> list[dict[str, Any]]:
    """The records that `summary.json` holds."""
    return [cell.record() for cell in scored]


@dataclass(frozen=True)
class Average:
    """A method on a model over all its inputs: means with their standard errors."""

    model: str
    method: str
    cells: int
    is_loss: tuple[float | None, float | None]
    log_mse: tuple[float | None, float | None]


def averages(records: Sequence[dict[str, Any]]) -> list[Average]:
    """Over the inputs, in the order of the records."""
    pairs = list(dict.fromkeys((r["model"], r["method"]) for r in records))
    found = []
    for model, method in pairs:
        own = [r for r in records if (r["model"], r["method"]) == (model, method)]
        losses = (average(r[name] for r in own) for name in ("is_loss", "log_mse"))
        found.append(Average(model, method, len(own), *losses))
    return found


def _truth(targets: Sequence[Target]) -> tuple[Any, Any]:
    return (
        np.array([target.probability for target in targets], dtype=np.float64),
        np.array([target.standard_error for target in targets], dtype=np.float64),
    )


def _finite(value: Any) -> Any:
    """JSON has no word for infinity."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
