"""What a report is made of: every method's outcome in every cell, from stored rows alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from longshot.names import smaller_label
from longshot.study import Run
from longshot.study.paired import Difference, difference
from longshot.study.scores import LossName, average
from longshot.study.summary import CONSTANT, CostKind, Scored, TargetCost, score_run

HALVES: Mapping[str, tuple[str, ...]] = {
    "development": ("hex", "camel", "colon", "if"),
    "test": ("caps", "english", "spanish", "icl"),
}
"""The paper's methods were settled on the first four distributions; the last four came after."""

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


@dataclass(frozen=True)
class Evidence:
    """A run with every outcome scored."""

    run: Run
    models: tuple[str, ...]
    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    """The baseline first, then the methods that have an estimate, in the order of the study.

    A method with several budgets is here with the largest alone.
    """
    outcomes: Mapping[tuple[str, str, str], Scored]
    smaller: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The labels of a method's smaller budgets, if it has some, from the smallest up."""

    @property
    def methods(self) -> tuple[str, ...]:
        return self.labels[1:]

    @property
    def known(self) -> tuple[str, ...]:
        """The baseline and every label of the study, also those without an estimate."""
        hidden = {label for labels in self.smaller.values() for label in labels}
        return (CONSTANT, *(m for m in self.run.study["methods"] if m not in hidden))

    def cell_inputs(self, model: str) -> list[str]:
        """The distributions that were chosen for a model."""
        return [i for i in self.inputs if (model, i) in set(self.run.cells)]

    def outcome(self, model: str, inputs: str, label: str) -> Scored | None:
        return self.outcomes.get((model, inputs, label))

    def loss(self, model: str, inputs: str, label: str, name: LossName) -> float | None:
        outcome = self.outcome(model, inputs, label)
        return outcome.loss(name) if outcome else None

    def scored(self, model: str | None = None, label: str | None = None) -> list[Scored]:
        """The outcomes of a model, a label, both or all; smaller budgets only where named."""
        labels = self.labels if label is None else (label,)
        return [
            outcome
            for outcome in self.outcomes.values()
            if model in (None, outcome.model) and outcome.method in labels
        ]

    def over_inputs(
        self, model: str, label: str, loss: LossName, inputs: Sequence[str] | None = None
    ) -> Mean:
        """The mean loss of a method on a model, over all distributions or the given ones."""
        names = [i for i in self.cell_inputs(model) if inputs is None or i in inputs]
        return _mean([self.loss(model, i, label, loss) for i in names])

    def over_models(self, inputs: str, label: str, loss: LossName) -> Mean:
        """The mean loss of a method on a distribution, over all models."""
        models = [m for m in self.models if inputs in self.cell_inputs(m)]
        return _mean([self.loss(m, inputs, label, loss) for m in models])

    def spent(self, model: str, label: str, kind: CostKind) -> TargetCost | None:
        """What a target costs on a model: the mean over distributions."""
        parts = [spent for o in self.scored(model, label) if (spent := o.spent(kind))]
        if not parts:
            return None
        return TargetCost(*(float(np.mean(column)) for column in zip(*parts, strict=True)))

    def difference(
        self,
        first: str,
        second: str,
        models: Sequence[str],
        loss: LossName = "is",
        inputs: str | None = None,
    ) -> Difference:
        """How much more the second method loses than the first, target by target."""
        here, there = (
            [
                cell
                for model in models
                for cell in self.scored(model, label)
                if inputs in (None, cell.inputs)
            ]
            for label in (first, second)
        )
        return difference(here, there, loss)

    def halves(self) -> dict[str, list[str]]:
        """The distributions of each half; empty unless the run has some of both."""
        found = {name: [i for i in self.inputs if i in half] for name, half in HALVES.items()}
        return found if all(found.values()) else {}


def _mean(losses: Sequence[float | None]) -> Mean:
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return Mean(*average(known), len(known), len(losses))


def gather(run: Run, progress: Callable[[float], None] = lambda share: None) -> Evidence:
    """Score every cell of a run, one after the other: most of a report's time."""
    scored = score_run(run, progress)
    outcomes = {(cell.model, cell.inputs, cell.method): cell for cell in scored}
    models, inputs = {model for model, _ in run.cells}, {inputs for _, inputs in run.cells}
    answered = {label for _, _, label in outcomes}
    smaller = _smaller(run)
    hidden = {label for labels in smaller.values() for label in labels}
    return Evidence(
        run=run,
        models=tuple(m for m in run.study["models"] if m in models),
        inputs=tuple(i for i in run.study["inputs"] if i in inputs),
        labels=(CONSTANT, *(m for m in run.methods if m in answered and m not in hidden)),
        outcomes=outcomes,
        smaller=smaller,
    )


def _smaller(run: Run) -> dict[str, list[str]]:
    """Which labels are one method's with less to spend: those that `smaller_label` makes."""
    budgets = {row.key.method: row.estimate.budget for row in run.rows if row.estimate}
    found: dict[str, list[str]] = {}
    for label, budget in sorted(budgets.items(), key=lambda item: item[1]):
        for name in budgets:
            if label == smaller_label(name, budget) and budget < budgets[name]:
                found.setdefault(name, []).append(label)
    return found
