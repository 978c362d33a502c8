"""The charts of losses: by model, by distribution, by cost and by half."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from longshot.report.drawing import (
    ALL,
    Chart,
    Record,
    by_place,
    finished,
    logarithmic,
    look,
    marks,
    named,
    names_of,
    placed,
    powers,
    span,
    tip,
)
from longshot.report.embed import number
from longshot.report.evidence import LOSS_TITLES, Evidence, Mean
from longshot.report.style import looks
from longshot.study.scores import LossName
from longshot.study.summary import CONSTANT


def _record(mean: Mean, top: float, **names: Any) -> list[Record]:
    """A mean with its ends, kept under the roof; nothing where there is none."""
    if mean.value is None:
        return []
    low, high = mean.value - (mean.error or 0.0), mean.value + (mean.error or 0.0)
    ends = {"low": number(min(max(low, 0.0), top)), "high": number(min(high, top))}
    shown = {"shown": number(min(mean.value, top)), "beyond": mean.value > top}
    said = {"loss": number(mean.value), "error": number(mean.error)}
    return [{**names, **said, **shown, **ends, "cells": f"{mean.cells} of {mean.wanted}"}]


def _roof(evidence: Evidence, loss: LossName) -> float:
    """The top of an axis: above every mean and nearly every single loss.

    But not far above what the best constant loses; what lies higher is drawn hollow on the edge.
    """
    pairs = [(m, label) for m in evidence.models for label in evidence.labels]
    means = [evidence.over_inputs(m, label, loss).value or 0.0 for m, label in pairs]
    known = [x for o in evidence.outcomes.values() if (x := o.loss(loss)) is not None] or [0.0]
    wanted = max(1.12 * max(means, default=0.0), float(np.quantile(known, 0.97))) * 1.03
    base = [o.loss(loss) or 0.0 for o in evidence.outcomes.values() if o.method == CONSTANT]
    return max(min(wanted, 2.5 * max(base, default=0.0) or wanted), 0.01)


def _under(top: float) -> alt.Scale:
    return alt.Scale(domain=[0, top], nice=False, clamp=True)


def loss_by_model(evidence: Evidence, loss: LossName) -> Chart:
    """Means over distributions with their standard error, and every distribution as a point."""
    top, count = _roof(evidence, loss), len(evidence.labels)
    means: list[Record] = []
    cells: list[Record] = []
    for place, label in enumerate(evidence.labels):
        for x, model in enumerate(evidence.models):
            names = {"method": label, "model": model}
            means += _record(evidence.over_inputs(model, label, loss), top, x=x, **names)
            aside = number(x + (place - (count - 1) / 2) * 0.5 / count)
            for outcome in evidence.scored(model, label):
                single = Mean(outcome.loss(loss), None, 1, 1)
                cells += _record(single, top, x=aside, inputs=outcome.inputs, **names)
    last = max(len(evidence.models) - 1, 0)
    across = alt.X("x:Q").scale(domain=[-0.4, last + 0.4], nice=False)
    across = across.axis(
        values=list(range(last + 1)), labelExpr=names_of(evidence.models), grid=False,
        title=None,
    )  # fmt: skip
    up = alt.Y("shown:Q").scale(_under(top)).title(LOSS_TITLES[loss])
    colour, shape = look(looks(evidence.known), evidence.labels)
    base = alt.Chart(named(f"means-{loss}")).encode(x=across, y=up, color=colour)
    small = alt.Chart(named(f"cells-{loss}")).encode(x=across, y=up, color=colour)
    dashed = alt.condition(f"datum.method == '{CONSTANT}'", alt.value([2, 4]), alt.value([1, 0]))
    said = tip("method", "model", "loss", "error", "cells")
    layers = [
        *marks(small.encode(tooltip=tip("method", "model", "inputs", "loss")), shape, "beyond",
               size=20, opacity=0.6),
        base.mark_rule(strokeWidth=1.5, opacity=0.7).encode(y="low:Q", y2="high:Q"),
        base.mark_line(strokeWidth=2).encode(strokeDash=dashed),
        *marks(base.encode(tooltip=said), shape, "beyond", size=90, opacity=1),
    ]  # fmt: skip
    records = {f"means-{loss}": means, f"cells-{loss}": cells}
    return finished(alt.layer(*layers), records, width=ALL, height=300)


def loss_by_distribution(evidence: Evidence, loss: LossName) -> Chart:
    """A panel for each distribution, a mark for each method, averaged over models."""
    top, halves = _roof(evidence, loss), evidence.halves()
    half_of = {name: f", {half}" for half, names in halves.items() for name in names}
    order = [i for names in halves.values() for i in names]
    order += [i for i in evidence.inputs if i not in order]
    shown = {name: f"{name}{half_of.get(name, '')}" for name in order}
    records = [
        record
        for name in order
        for label in evidence.labels
        for record in _record(
            evidence.over_models(name, label, loss), top, method=label, inputs=shown[name]
        )
    ]
    lane = alt.Y("method:N").scale(domain=list(evidence.labels)).axis(None)
    colour, shape = look(looks(evidence.known), evidence.labels)
    base = alt.Chart().encode(y=lane, color=colour)
    of = f", mean over {len(evidence.models)} models" if len(evidence.models) > 1 else ""
    title = f"{LOSS_TITLES[loss]}{of}, ± standard error; hollow marks lie beyond"
    point = base.encode(
        x=alt.X("shown:Q").scale(_under(top)).title(title),
        tooltip=tip("inputs", "method", "loss", "error", "cells"),
    )
    bar = base.mark_rule(opacity=0.7).encode(x="low:Q", x2="high:Q")
    name = f"distributions-{loss}"
    layers = alt.layer(bar, *marks(point, shape, "beyond", size=60, opacity=1), data=named(name))
    row = alt.Row("inputs:N").sort(by_place("inputs")).title(None)
    row = row.header(labelAngle=0, labelAlign="left", labelFontWeight="normal")
    placed(records, inputs=list(shown.values()))
    rows = layers.properties(width=ALL - 130, height=alt.Step(8)).facet(row=row, spacing=6)
    return finished(rows, {name: records})


def cost_against_accuracy(evidence: Evidence, loss: LossName) -> Chart:
    """Mean loss over what one target costs alone: multiply-accumulates above, seconds below.

    A method with several budgets is a line.
    """
    top, records = _roof(evidence, loss), []
    points = [(m, label) for m in evidence.methods for label in (*evidence.smaller.get(m, ()), m)]
    for model in evidence.models:
        constant = evidence.over_inputs(model, CONSTANT, loss).value
        for method, label in points:
            alone = evidence.spent(model, label, "alone")
            each = evidence.spent(model, label, "each")
            if alone and each and alone.macs > 0 and alone.seconds > 0:
                spent = {
                    "multiply-accumulates": number(alone.macs, 3),
                    "seconds": number(alone.seconds, 3),
                    "multiply-accumulates, shared": number(each.macs, 3),
                    "seconds, shared": number(each.seconds, 3),
                    "constant": None if constant is None else number(min(constant, top)),
                }
                mean = evidence.over_inputs(model, label, loss)
                records += _record(mean, top, method=method, model=model, **spent)
    name, styles = f"cost-{loss}", looks(evidence.known)
    said = tip(
        "model", "method", "loss", "error", "multiply-accumulates", "seconds",
        "multiply-accumulates, shared", "seconds, shared",
    )  # fmt: skip
    rows = []
    for measure in ("multiply-accumulates", "seconds"):
        ends = span([record[measure] for record in records], 2)
        across = alt.X(f"{measure}:Q").scale(logarithmic(*ends))
        across = across.axis(powers(*ends, f"{measure} a target", 4))
        up = alt.Y("shown:Q").scale(_under(top)).title(LOSS_TITLES[loss])
        colour, shape = look(styles, evidence.methods)
        base = alt.Chart().encode(x=across, y=up, color=colour)
        dotted = alt.Chart().mark_rule(strokeDash=[2, 4], color=styles[CONSTANT].colour)
        layers = alt.layer(
            dotted.encode(y="constant:Q"),
            *([base.mark_line(strokeWidth=1.5)] if evidence.smaller else []),
            base.mark_rule(opacity=0.7).encode(y="low:Q", y2="high:Q"),
            *marks(base.encode(tooltip=said), shape, "beyond", size=80, opacity=1),
            data=named(name),
        )
        width = max(150, (ALL - 60) // max(len(evidence.models), 1))
        column = alt.Column("model:N").sort(by_place("model")).title(None)
        rows.append(layers.properties(width=width, height=190).facet(column=column))
    return finished(alt.vconcat(*rows), {name: placed(records, model=evidence.models)})


def halves(evidence: Evidence, loss: LossName) -> Chart:
    """Development and test distributions apart: an open and a filled mark for each method."""
    means = {
        (model, label, half): evidence.over_inputs(model, label, loss, names)
        for model in evidence.models
        for label in evidence.labels
        for half, names in evidence.halves().items()
    }
    top = 1.08 * max((m.value or 0.0 for m in means.values()), default=1.0) or 1.0
    records = [
        record | {"open": half == "development"}
        for (model, label, half), mean in means.items()
        for record in _record(mean, top, model=model, method=label, half=half)
    ]
    lane = alt.Y("method:N").sort(by_place("method")).title(None).axis(grid=True)
    colour, shape = look(looks(evidence.known), evidence.labels, legend=False)
    base = alt.Chart().encode(y=lane, yOffset="half:N", color=colour)
    point = base.encode(
        x=alt.X("shown:Q").scale(_under(top)).title(LOSS_TITLES[loss]),
        tooltip=tip("model", "method", "half", "loss", "error", "cells"),
    )
    bar = base.mark_rule(opacity=0.7).encode(x="low:Q", x2="high:Q")
    name, width = f"halves-{loss}", max(150, (ALL - 90) // max(len(evidence.models), 1))
    layers = alt.layer(bar, *marks(point, shape, "open", size=60, opacity=1), data=named(name))
    column = alt.Column("model:N").sort(by_place("model")).title(None)
    placed(records, model=evidence.models, method=evidence.labels)
    columns = layers.properties(width=width, height=alt.Step(14)).facet(column=column)
    title = f"{LOSS_TITLES[loss]}; open marks: development distributions, filled: test"
    return finished(columns, {name: records}, title=title)
