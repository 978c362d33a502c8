"""Estimates against the truth, a panel for each distribution and method of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter

from longshot.report.evidence import Evidence
from longshot.report.style import MUTED, RULE, Look, looks
from longshot.study.summary import Scored

SIZE = 1.25
"""Inches a panel."""


class Mark(NamedTuple):
    """One target in a panel: natural logarithms, and the ends of both error bars."""

    truth: float
    truth_low: float
    truth_high: float
    estimate: float
    low: float | None
    high: float | None


def marks(outcome: Scored, fitted: bool) -> list[Mark]:
    """The judged targets of an outcome; bars are ±1 standard error of truth, and the interval.

    After the fit an estimate has no interval: the fit moves it, and adds an error of its own.
    """
    found = []
    kept = [pair for pair, keep in zip(outcome.answers, outcome.score.judged, strict=True) if keep]
    for (target, answer), log_fitted in zip(kept, outcome.score.log_fitted, strict=True):
        p, error = target.probability, target.standard_error
        low, high = (None, None)
        if answer.is_two_sided and not fitted:
            low, high = (math.log(end) if end > 0 else -math.inf for end in answer.interval)
        found.append(
            Mark(
                math.log(p),
                math.log(p - error) if error < p else -math.inf,
                math.log(p + error) if math.isfinite(error) else math.inf,
                float(log_fitted) if fitted else answer.log_probability,
                low,
                high,
            )
        )
    return found


def scatter(evidence: Evidence, model: str, fitted: bool) -> Figure:
    """All panels of a model on one pair of axes; estimates of zero lie on the bottom edge."""
    inputs, methods = evidence.cell_inputs(model), evidence.methods
    found = {
        (i, m): marks(o, fitted)
        for i in inputs
        for m in methods
        if (o := evidence.outcome(model, i, m))
    }
    figure = Figure(
        figsize=(1.25 + SIZE * max(len(methods), 2), 0.9 + SIZE * max(len(inputs), 1)),
    )
    grid = figure.subplots(len(inputs) or 1, len(methods) or 1, squeeze=False)
    figure.subplots_adjust(
        left=1.1 / figure.get_figwidth(), right=1 - 0.05 / figure.get_figwidth(),
        bottom=0.55 / figure.get_figheight(), top=1 - 0.35 / figure.get_figheight(),
        wspace=0.06, hspace=0.06,
    )  # fmt: skip
    across, up = limits([mark for panel in found.values() for mark in panel])
    styles = looks(evidence.known)
    for row, name in enumerate(inputs):
        for column, label in enumerate(methods):
            axes = grid[row, column]
            _frame(axes, across, up, bottom=row == len(inputs) - 1, left=column == 0)
            if row == 0:
                axes.set_title(label, color=styles[label].colour)
            if column == 0:
                axes.set_ylabel(name, fontweight="bold", labelpad=22)
            _draw(axes, found.get((name, label), []), styles[label], across, up)
    after = "after the fit" if fitted else "before the fit"
    figure.supxlabel(f"true probability, {model}", fontsize=8.5, y=0.08 / figure.get_figheight())
    figure.supylabel(f"estimate {after}", fontsize=8.5, x=0.05 / figure.get_figwidth())
    return figure


def limits(panel: Sequence[Mark]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bounds of both axes as powers of ten; far outliers are drawn at the edge."""
    if not panel:
        return (-7.0, -4.0), (-7.0, -4.0)
    ten = math.log(10)
    truths = [mark.truth / ten for mark in panel]
    across = (min(truths) - 0.25, max(truths) + 0.25)
    finite = [mark.estimate / ten for mark in panel if mark.estimate > -math.inf] or truths
    low, high = np.quantile(finite, [0.02, 1])
    up = (max(min(low, across[0]) - 0.3, across[0] - 5), min(max(high, across[1]) + 0.3, 0.3))
    return across, (float(up[0]), float(up[1]))


def _frame(
    axes: Axes, across: tuple[float, float], up: tuple[float, float], *, bottom: bool, left: bool
) -> None:
    axes.set_xlim(across)
    axes.set_ylim(up[0] - 0.07 * (up[1] - up[0]), up[1])
    for axis, ends, shown in ((axes.xaxis, across, bottom), (axes.yaxis, up, left)):
        step = max(1, round((ends[1] - ends[0]) / 4))
        ticks = list(range(math.ceil(ends[0]), math.floor(ends[1]) + 1, step))
        axis.set_major_locator(FixedLocator(ticks))
        if shown:
            axis.set_ticks(ticks, [f"$10^{{{t}}}$" for t in ticks], fontsize=7)
        else:
            axis.set_major_formatter(NullFormatter())
    axes.plot(across, across, color=MUTED, linewidth=0.7, zorder=1)
    axes.axhline(up[0], color=RULE, linewidth=0.8, linestyle=":")


def _draw(
    axes: Axes,
    panel: Sequence[Mark],
    look: Look,
    across: tuple[float, float],
    up: tuple[float, float],
) -> None:
    ten = math.log(10)
    floor = up[0] - 0.035 * (up[1] - up[0])
    bars = []
    for mark in panel:
        x, zero = mark.truth / ten, mark.estimate == -math.inf
        y = floor if zero else min(max(mark.estimate / ten, floor), up[1])
        bars.append(
            [(max(mark.truth_low / ten, across[0]), y), (min(mark.truth_high / ten, across[1]), y)]
        )
        if mark.low is not None and mark.high is not None and not zero:
            bars.append([(x, max(mark.low / ten, floor)), (x, min(mark.high / ten, up[1]))])
    axes.add_collection(LineCollection(bars, colors=look.colour, linewidths=0.5, alpha=0.35))
    for zero in (False, True):
        some = [mark for mark in panel if (mark.estimate == -math.inf) is zero]
        axes.plot(
            [mark.truth / ten for mark in some],
            [floor if zero else min(max(mark.estimate / ten, floor), up[1]) for mark in some],
            look.mark, color=look.colour, markersize=2.8, alpha=0.8, zorder=3, clip_on=False,
            markerfacecolor="white" if zero else look.colour, markeredgewidth=0.6,
        )  # fmt: skip
