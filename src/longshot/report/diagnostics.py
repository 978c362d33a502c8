"""The figures behind the losses: coverage of intervals, tuning curves, and the truth itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from longshot.report.evidence import Evidence
from longshot.report.figures import legend
from longshot.report.style import INK, SHADES, looks
from longshot.study.scores import CellScore, pooled


def coverage(evidence: Evidence) -> Figure:
    """The share of 95% intervals that cover the truth, with its own (Wilson) interval."""
    labels = [m for m in evidence.methods if any(s.coverage.given for s in _scores(evidence, m))]
    rows = [(label, model) for label in labels for model in evidence.models]
    figure = Figure(figsize=(6, 1.3 + 0.27 * max(len(rows), 2)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0.95, color=INK, linewidth=0.8, linestyle="--")
    styles = looks(evidence.known)
    names = []
    for y, (label, model) in enumerate(rows):
        scores = _scores(evidence, label, model)
        held, look = pooled(score.coverage for score in scores), styles[label]
        names.append(f"{label}, {model}  ({held.given} of {sum(s.targets for s in scores)})")
        if held.given:
            low, high = wilson(held.covered, held.given)
            axes.plot([low, high], [y, y], color=look.colour, linewidth=1.2)
            axes.plot(
                held.covered / held.given,
                y,
                look.mark,
                color=look.colour,
                markersize=6,
                clip_on=False,
                zorder=3,
            )
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.01)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.grid(axis="y", visible=False)
    axes.set_title("95% intervals (in brackets: targets that have one)")
    axes.set_xlabel("share of intervals that cover the truth")
    return figure


def _scores(evidence: Evidence, label: str, model: str | None = None) -> list[CellScore]:
    return [cell.score for cell in evidence.scored(model, label)]


def wilson(hits: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """A 95% interval for a proportion."""
    share, z2 = hits / total, z * z / total
    centre = (share + z2 / 2) / (1 + z2)
    half = z / (1 + z2) * math.sqrt(share * (1 - share) / total + z2 / (4 * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def tuning(evidence: Evidence, model: str) -> Figure:
    """The loss at each temperature that was tried; the chosen one is ringed."""
    names = [i for i in evidence.inputs if any(key[:2] == (model, i) for key in evidence.run.tuned)]
    figure, panels = _panels(names)
    labels = [
        m for m in evidence.run.study["methods"] if any(k[2] == m for k in evidence.run.tuned)
    ]
    styles = looks(evidence.known)
    for name, axes in panels.items():
        for label in labels:
            tuned = evidence.run.tuned.get((model, name, label))
            if tuned is None or not tuned.curve:
                continue
            temperatures, losses = zip(*tuned.curve, strict=True)
            look = styles[label]
            axes.plot(temperatures, losses, "-", color=look.colour, linewidth=1.2)
            axes.plot(temperatures, losses, look.mark, color=look.colour, markersize=3.5)
            axes.plot(
                tuned.temperature, dict(tuned.curve)[tuned.temperature], look.mark,
                color=look.colour, markersize=9, markerfacecolor="none",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title(name)
    for axes in list(panels.values())[:1]:
        axes.set_ylim(bottom=0)
        axes.margins(x=0.08)
    figure.supxlabel(f"temperature on {model}; the chosen one is ringed", fontsize=8.5)
    figure.supylabel("loss after an in-sample fit", fontsize=8.5)
    legend(figure, styles, labels)
    return figure


def truth_by_rank(evidence: Evidence) -> Figure:
    """The truth of every target by its rank, with its standard error, a panel a distribution."""
    figure, panels = _panels(evidence.inputs)
    for name, axes in panels.items():
        for number, model in enumerate(evidence.models):
            chosen = evidence.run.chosen.get(("run", model, name))
            found = [t for t in chosen.targets if t.probability > 0] if chosen else []
            if not found:
                continue
            found.sort(key=lambda t: -t.probability)
            p = np.array([t.probability for t in found])
            e = np.array([min(t.standard_error, t.probability) for t in found])
            ranks = np.arange(1, len(p) + 1)
            shade = SHADES[number % len(SHADES)]
            axes.fill_between(ranks, np.maximum(p - e, p / 10), p + e, color=shade, alpha=0.2,
                              linewidth=0)  # fmt: skip
            axes.plot(ranks, p, color=shade, linewidth=1.4,
                      linestyle=("-", "--", "-.", ":")[number % 4])  # fmt: skip
        axes.set_yscale("log")
        axes.set_title(name)
    handles = [
        Line2D([], [], color=SHADES[n % len(SHADES)], linestyle=("-", "--", "-.", ":")[n % 4],
               label=model)
        for n, model in enumerate(evidence.models)
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper left", ncols=max(len(handles), 1))
    figure.supxlabel("rank among the chosen targets", fontsize=8.5)
    figure.supylabel("true probability ± standard error", fontsize=8.5)
    return figure


def _panels(names: Sequence[str], size: float = 1.9) -> tuple[Figure, dict[str, Axes]]:
    """A grid of at most four panels a row, with equal axes."""
    columns = min(len(names), 4) or 1
    lines = math.ceil(len(names) / columns) or 1
    figure = Figure(figsize=(0.6 + size * 1.15 * columns, 0.8 + size * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True, sharex=True).ravel()
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    return figure, dict(zip(names, grid, strict=False))
