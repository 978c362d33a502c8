"""The figures of losses: by model, by distribution, by cost and by half.

Each function takes the evidence and returns a matplotlib figure; nothing touches pyplot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from longshot.report.evidence import LOSS_TITLES, Evidence, Mean
from longshot.report.style import MUTED, RULE, Look, looks
from longshot.study.scores import LossName
from longshot.study.summary import CONSTANT

BAND = 0.12


def loss_by_model(evidence: Evidence, loss: LossName) -> Figure:
    """Means over distributions with their standard error, and every distribution as a point."""
    figure = Figure(figsize=(2.2 + 1.6 * max(len(evidence.models), 2), 4.0), layout="constrained")
    axes = figure.subplots()
    ends: list[tuple[float, str, str]] = []
    rng = np.random.default_rng(0)
    styles, top = looks(evidence.known), _roof(evidence, loss)
    for place, label in enumerate(evidence.labels):
        look = styles[label]
        means = [evidence.over_inputs(m, label, loss) for m in evidence.models]
        known = [(x, mean) for x, mean in enumerate(means) if mean.value is not None]
        if not known:
            continue
        xs = [x for x, _ in known]
        values = [mean.value or 0.0 for _, mean in known]
        errors = [mean.error or 0.0 for _, mean in known]
        if len(xs) > 1:
            low, high = np.subtract(values, errors), np.add(values, errors)
            axes.fill_between(xs, low, high, color=look.colour, alpha=BAND, linewidth=0)
        else:
            axes.errorbar(xs, values, yerr=errors, color=look.colour, linewidth=1)
        axes.plot(
            xs, values, look.line, color=look.colour, marker=look.mark, markersize=5, zorder=3
        )
        shift = (place - (len(evidence.labels) - 1) / 2) * 0.045
        for x, model in enumerate(evidence.models):
            found = (o.loss(loss) for o in evidence.scored(model, label))
            points = [value for value in found if value is not None]
            jitter = shift + rng.uniform(-0.012, 0.012, len(points))
            for above in (False, True):
                some = np.array([value > top for value in points], dtype=bool) == above
                axes.scatter(
                    x + jitter[some], np.minimum(points, top)[some], s=9, marker=look.mark,
                    facecolor="white" if above else look.colour, edgecolor=look.colour,
                    linewidth=0.7 if above else 0, alpha=0.55, zorder=2, clip_on=False,
                )  # fmt: skip
        ends.append((values[-1], label, look.colour))
    axes.set_xticks(range(len(evidence.models)), evidence.models)
    axes.set_xlim(-0.3, len(evidence.models) - 0.75)
    axes.set_ylim(0, top)
    axes.grid(axis="x", visible=False)
    axes.set_title(f"{_title(loss)} by model")
    axes.set_xlabel("mean over distributions ± standard error; hollow marks lie above", color=MUTED)
    _label_ends(axes, ends, len(evidence.models) - 0.72)
    return figure


def _roof(evidence: Evidence, loss: LossName) -> float:
    """The top of an axis: above every mean and nearly every single loss.

    But not far above what the best constant loses; what lies higher is drawn hollow on the edge.
    """
    pairs = [(m, label) for m in evidence.models for label in evidence.labels]
    means = [evidence.over_inputs(m, label, loss).value or 0.0 for m, label in pairs]
    known = [x for o in evidence.outcomes.values() if (x := o.loss(loss)) is not None] or [0.0]
    wanted = max(1.12 * max(means), float(np.quantile(known, 0.97))) * 1.03
    base = [o.loss(loss) or 0.0 for o in evidence.outcomes.values() if o.method == CONSTANT]
    return max(min(wanted, 2.5 * max(base, default=0.0) or wanted), 0.01)


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], x: float) -> None:
    """Names at the right end of lines, moved apart where they would overlap."""
    bottom, top = axes.get_ylim()
    step = (top - bottom) * 0.048
    ordered = sorted(ends)
    heights = [min(value, top - step) for value, _, _ in ordered]
    for _ in range(200):
        moved = False
        for i in range(len(heights) - 1):
            short = step - (heights[i + 1] - heights[i])
            if short > 1e-9:
                heights[i] -= short / 2
                heights[i + 1] += short / 2
                moved = True
        if not moved:
            break
    for height, (_, label, colour) in zip(heights, ordered, strict=True):
        axes.text(x, height, label, color=colour, va="center", fontweight="bold", clip_on=False)


def loss_by_distribution(evidence: Evidence, loss: LossName) -> Figure:
    """A row for each distribution, a mark for each method, averaged over models."""
    halves = evidence.halves()
    order = [i for half in halves.values() for i in half]
    order += [i for i in evidence.inputs if i not in order]
    rows: list[tuple[str, float]] = []
    height = 0.0
    for name in order:
        if halves and name == halves["test"][0]:
            height += 0.7
        rows.append((name, height))
        height += 1
    figure = Figure(figsize=(7, 1.4 + 0.42 * height), layout="constrained")
    axes = figure.subplots()
    styles, top = looks(evidence.known), _roof(evidence, loss)
    for place, label in enumerate(evidence.labels):
        look = styles[label]
        shift = (place - (len(evidence.labels) - 1) / 2) * 0.08
        for name, y in rows:
            mean = evidence.over_models(name, label, loss)
            if mean.value is not None:
                _mark(axes, mean, look, top, at=y + shift, upright=False)
    axes.set_yticks([y for _, y in rows], [name for name, _ in rows])
    axes.set_ylim(height - 0.4, -0.7)
    axes.set_xlim(0, top)
    axes.grid(axis="y", visible=False)
    for _, y in rows:
        axes.axhspan(y - 0.42, y + 0.42, color=RULE, alpha=0.22, linewidth=0, zorder=0)
    axes.spines["left"].set_visible(False)
    for name, half in halves.items():
        above = dict(rows)[half[0]] - 0.55
        axes.text(1.0, above, name, color=MUTED, ha="right", va="center", fontsize=7.5,
                  transform=axes.get_yaxis_transform())  # fmt: skip
    of = f", mean over {len(evidence.models)} models" if len(evidence.models) > 1 else ""
    axes.set_xlabel(f"{LOSS_TITLES[loss]}{of}, ± standard error; hollow marks lie beyond")
    legend(figure, styles, evidence.labels)
    return figure


def legend(
    figure: Figure, styles: Mapping[str, Look], labels: Sequence[str], columns: int = 8
) -> None:
    """The looks of some labels in a line above the panels."""
    handles = [
        Line2D([], [], color=look.colour, marker=look.mark, linestyle="none", label=label)
        for label, look in ((label, styles[label]) for label in labels)
    ]
    figure.legend(
        handles=handles, loc="outside upper left", ncols=min(len(labels), columns),
        handletextpad=0.2, columnspacing=1.2,
    )  # fmt: skip


def cost_against_accuracy(evidence: Evidence, loss: LossName) -> Figure:
    """Mean loss over what one target costs alone: multiply-accumulates above, seconds below."""
    models = evidence.models
    figure = Figure(figsize=(1.2 + 2.5 * max(len(models), 2), 5.2), layout="constrained")
    grid = figure.subplots(2, len(models), squeeze=False, sharey=True, sharex="row")
    styles, top = looks(evidence.known), _roof(evidence, loss)
    for column, model in enumerate(models):
        base = evidence.over_inputs(model, CONSTANT, loss)
        for axes, measure in zip(grid[:, column], ("macs", "seconds"), strict=True):
            if base.value is not None:
                axes.axhline(base.value, color=styles[CONSTANT].colour, linestyle=":", linewidth=1)
            for label in evidence.methods:
                mean = evidence.over_inputs(model, label, loss)
                spent = evidence.spent(model, label, "alone")
                if mean.value is None or spent is None or getattr(spent, measure) <= 0:
                    continue
                _mark(axes, mean, styles[label], top, at=getattr(spent, measure), upright=True)
            axes.set_xscale("log")
            axes.margins(x=0.15)
        grid[0, column].set_title(model)
        grid[0, column].set_xlabel("multiply-accumulates a target")
        grid[1, column].set_xlabel("seconds a target")
    for axes in grid[:, 0]:
        axes.set_ylabel(LOSS_TITLES[loss])
        axes.set_ylim(0, top)
    legend(figure, styles, evidence.labels)
    return figure


def _mark(
    axes: Axes, mean: Mean, look: Look, top: float, *, at: float, upright: bool, face: str = ""
) -> None:
    """A mean with its standard error, hollow on the edge if it lies beyond."""
    assert mean.value is not None
    value, error = min(mean.value, top), mean.error or 0.0
    ends = [mean.value - error, mean.value + error]
    axes.plot(*([at, at], ends) if upright else (ends, [at, at]), color=look.colour, linewidth=0.9)
    x, y = (at, value) if upright else (value, at)
    axes.plot(
        x, y, look.mark, color=look.colour, markersize=5.5, zorder=3, clip_on=False,
        markerfacecolor=face or ("white" if mean.value > top else look.colour),
    )  # fmt: skip


def halves(evidence: Evidence, loss: LossName) -> Figure:
    """Development and test distributions apart: an open and a filled mark for each method."""
    models, parts = evidence.models, list(evidence.halves().values())
    figure = Figure(figsize=(1.6 + 2.4 * len(models), 3.0), layout="constrained")
    grid = figure.subplots(1, len(models), squeeze=False, sharey=True, sharex=True)[0]
    styles = looks(evidence.known)
    means = {
        (model, label): [evidence.over_inputs(model, label, loss, half) for half in parts]
        for model in models
        for label in evidence.labels
    }
    top = 1.08 * max((m.value or 0.0 for pair in means.values() for m in pair), default=1.0) or 1.0
    for axes, model in zip(grid, models, strict=True):
        for y, label in enumerate(evidence.labels):
            look = styles[label]
            for mean, face, offset in zip(
                means[model, label], ("white", look.colour), (-0.12, 0.12), strict=True
            ):
                if mean.value is not None:
                    _mark(axes, mean, look, top, at=y + offset, upright=False, face=face)
        axes.set_yticks(range(len(evidence.labels)), evidence.labels)
        axes.set_ylim(len(evidence.labels) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.set_title(model)
    grid[0].set_xlim(0, top)
    note = f"{LOSS_TITLES[loss]}; open: development distributions, filled: test"
    figure.supxlabel(note, fontsize=8.5)
    return figure


def _title(loss: LossName) -> str:
    return LOSS_TITLES[loss][:1].upper() + LOSS_TITLES[loss][1:]
