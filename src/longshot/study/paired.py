"""Two methods on the same targets: how much more the second loses than the first.

    d = mean over cells of the mean over targets of (loss of the second − loss of the first)

With both methods on all targets d is the difference of their mean losses, but its error is that of
the differences, target by target: what makes a target hard for both cancels. Cells are the strata
and targets the sample, so the standard error is √(Σ s²/n)/C over the C cells, of n targets and
spread s each. Another error asks what other distributions would say: it comes from the spread of
the cells' means. A cell on which both have fewer than two targets is left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from longshot.study.results import finite
from longshot.study.scores import LossName, average
from longshot.study.summary import LOSS_KEYS, Scored

CLOSE = 2.0
"""A lead under so many standard errors is no lead."""


class Difference(NamedTuple):
    """How much more the second loses; None where the two share no cell."""

    mean: float | None
    error: float | None
    """Over targets."""
    cell_error: float | None
    """Over cells; None for one."""
    closer: int
    """Targets on which the first loses less."""
    targets: int
    """That both have answered."""
    cells: int

    @property
    def is_clear(self) -> bool:
        """Whether the first is ahead by more than either error explains."""
        if self.mean is None or self.error is None:
            return False
        return self.mean > CLOSE * max(self.error, self.cell_error or 0.0)


def difference(
    first: Iterable[Scored], second: Iterable[Scored], loss: LossName, fitted: bool = True
) -> Difference:
    """Between two methods' outcomes, by cells that both have; raw losses unless `fitted`."""
    others = {(cell.model, cell.inputs): cell.each(loss, fitted) for cell in second}
    means, variances, closer, targets = [], [], 0, 0
    for cell in first:
        one, other = cell.each(loss, fitted), others.get((cell.model, cell.inputs), {})
        gaps = np.array([other[token] - lost for token, lost in one.items() if token in other])
        if len(gaps) < 2:
            continue
        means.append(float(gaps.mean()))
        variances.append(float(gaps.var(ddof=1)) / len(gaps))
        closer, targets = closer + int((gaps > 0).sum()), targets + len(gaps)
    if not means:
        return Difference(None, None, None, 0, 0, 0)
    error = math.sqrt(math.fsum(variances)) / len(means)
    mean, cell_error = average(means)
    return Difference(mean, error, cell_error, closer, targets, len(means))


def pairs(
    scored: Sequence[Scored], loss: LossName
) -> list[tuple[str, str, Difference, Difference]]:
    """All pairs of one model's methods, the better first: after the fit, and raw."""
    by_label: dict[str, list[Scored]] = {}
    for cell in scored:
        by_label.setdefault(cell.method, []).append(cell)
    means = {label: average(c.loss(loss) for c in cells)[0] for label, cells in by_label.items()}
    order = sorted(by_label, key=lambda label: math.inf if (m := means[label]) is None else m)
    found = []
    for a, b in itertools.combinations(order, 2):
        fitted, raw = (difference(by_label[a], by_label[b], loss, x) for x in (True, False))
        found.append((a, b, fitted, raw))
    return found


def paired_records(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """The same as plain values, for every model and loss."""
    return [
        {
            "model": model,
            "loss": LOSS_KEYS[loss],
            "method": first,
            "against": second,
            "fitted": finite(fitted._asdict()),
            "raw": finite(raw._asdict()),
        }
        for model in dict.fromkeys(cell.model for cell in scored)
        for loss in LOSS_KEYS
        for first, second, fitted, raw in pairs([c for c in scored if c.model == model], loss)
    ]
