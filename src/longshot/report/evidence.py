"""What a report is made of: every method's outcome in every cell, from stored rows alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from longshot.estimate import Cost, Estimate
from longshot.study import Run
from longshot.study.scores import CellScore, average
from longshot.study.store import Row, Target
from longshot.study.summary import CONSTANT, Scored, score_run

HALVES: Mapping[str, tuple[str, ...]] = {
    "development": ("hex", "camel", "colon", "if"),
    "test": ("caps", "english", "spanish", "icl"),
}
"""The paper's methods were settled on the first four distributions; the last four came after."""

LossName = Literal["is", "log"]
CostKind = Literal["alone", "each"]
LOSS_TITLES: Mapping[LossName, str] = {
    "is": "Itakura–Saito loss",
    "log": "squared error in log space",
}


class Mean(NamedTuple):
    """A mean with its standard error (None for one value), and how many of how many it is of."""

    value: float | None
    error: float | None
    cells: int
    wanted: int

    @property
    def is_whole(self) -> bool:
        return self.value is not None and self.cells == self.wanted


class Spent(NamedTuple):
    """What one target costs on average."""

    forwards: float
    backwards: float
    macs: float
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """One method in one cell; the baseline has no answers."""

    scored: Scored

    @property
    def model(self) -> str:
        return self.scored.model

    @property
    def label(self) -> str:
        return self.scored.method

    @property
    def score(self) -> CellScore:
        return self.scored.score

    @cached_property
    def answers(self) -> tuple[tuple[Target, Estimate], ...]:
        return tuple((target, answer) for target, answer in self.scored.answers if answer)

    def loss(self, name: LossName) -> float | None:
        return self.score.is_loss if name == "is" else self.score.log_mse

    def losses(self, name: LossName) -> list[float]:
        """Of each judged target, left out of its fit; NaN where it was the only one."""
        left_out = self.score.is_left_out if name == "is" else self.score.log_left_out
        return [float(loss) for loss in left_out.losses]

    def loss_error(self, name: LossName) -> float | None:
        """The loss's standard error, from its spread over targets."""
        return average(self.losses(name))[1]

    def floor(self, name: LossName) -> float | None:
        return self.score.noise_floor if name == "is" else self.score.noise_floor_log

    def spent(self, kind: CostKind) -> Spent | None:
        """On a target: alone it pays for all its samples, with its cell a share of them."""
        if not self.answers:
            return None
        if kind == "each":
            costs, count = [self.scored.cost], len(self.answers)
        else:
            costs = [answer.cost + answer.shared_cost for _, answer in self.answers]
            count = len(costs)
        names = [f.name for f in fields(Cost)]
        return Spent(*(sum(getattr(cost, name) for cost in costs) / count for name in names))


@dataclass(frozen=True)
class Evidence:
    """A run with every outcome scored."""

    run: Run
    models: tuple[str, ...]
    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    """The baseline first, then the methods that have an estimate, in the order of the study."""
    outcomes: Mapping[tuple[str, str, str], Outcome]

    @property
    def methods(self) -> tuple[str, ...]:
        return self.labels[1:]

    @property
    def known(self) -> tuple[str, ...]:
        """The baseline and every label of the study, also those without an estimate."""
        return (CONSTANT, *self.run.study["methods"])

    def cell_inputs(self, model: str) -> list[str]:
        """The distributions that were chosen for a model."""
        return [i for i in self.inputs if (model, i) in set(self.run.cells)]

    def outcome(self, model: str, inputs: str, label: str) -> Outcome | None:
        return self.outcomes.get((model, inputs, label))

    def over_inputs(
        self, model: str, label: str, loss: LossName, inputs: Sequence[str] | None = None
    ) -> Mean:
        """The mean loss of a method on a model, over all distributions or the given ones."""
        names = [i for i in self.cell_inputs(model) if inputs is None or i in inputs]
        found = [self.outcome(model, i, label) for i in names]
        return _mean([o.loss(loss) for o in found if o], len(names))

    def over_models(self, inputs: str, label: str, loss: LossName) -> Mean:
        """The mean loss of a method on a distribution, over all models."""
        models = [m for m in self.models if inputs in self.cell_inputs(m)]
        found = [self.outcome(m, inputs, label) for m in models]
        return _mean([o.loss(loss) for o in found if o], len(models))

    def spent(self, model: str, label: str, kind: CostKind) -> Spent | None:
        """What a target costs on a model: the mean over distributions."""
        found = [self.outcome(model, i, label) for i in self.cell_inputs(model)]
        parts = [spent for o in found if o and (spent := o.spent(kind))]
        if not parts:
            return None
        return Spent(*(float(np.mean(column)) for column in zip(*parts, strict=True)))

    def halves(self) -> dict[str, list[str]]:
        """The distributions of each half; empty unless the run has some of both."""
        found = {name: [i for i in self.inputs if i in half] for name, half in HALVES.items()}
        return found if all(found.values()) else {}


def _mean(losses: Sequence[float | None], wanted: int) -> Mean:
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return Mean(*average(known), len(known), wanted)


def gather(run: Run, progress: Callable[[float], None] = lambda share: None) -> Evidence:
    """Score every cell of a run, one after the other: most of a report's time."""
    rows: dict[tuple[str, str], list[Row]] = {}
    for row in run.rows:
        rows.setdefault((row.key.model, row.key.inputs), []).append(row)
    outcomes: dict[tuple[str, str, str], Outcome] = {}
    for number, cell in enumerate(run.cells):
        chosen = {key: value for key, value in run.chosen.items() if key == ("run", *cell)}
        part = replace(run, chosen=chosen, rows=tuple(rows.get(cell, ())))
        for scored in score_run(part):
            outcomes[*cell, scored.method] = Outcome(scored)
        progress((number + 1) / len(run.cells))
    answered = {label for _, _, label in outcomes}
    cells = run.cells
    return Evidence(
        run=run,
        models=tuple(m for m in run.study["models"] if m in {model for model, _ in cells}),
        inputs=tuple(i for i in run.study["inputs"] if i in {inputs for _, inputs in cells}),
        labels=(CONSTANT, *(label for label in run.methods if label in answered)),
        outcomes=outcomes,
    )
