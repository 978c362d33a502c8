"""Every chart, once: what a function here returns is shown in notebooks, on pages and in files.

Each takes evidence, a truth or an estimate and returns an Altair chart. The numbers are prepared
as plain records, one for each mark, so that a chart's own code says only what is drawn where.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import altair as alt
import numpy as np

from longshot.errors import visible
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
    panels,
    placed,
    powers,
    span,
    tip,
)
from longshot.report.embed import number, power_of_ten
from longshot.report.evidence import LOSS_TITLES, Evidence
from longshot.report.loss_charts import (
    cost_against_accuracy,
    halves,
    loss_by_distribution,
    loss_by_model,
)
from longshot.report.style import INK, LOOKS, MUTED, SHADES, looks
from longshot.study.scores import pooled
from longshot.study.summary import Scored

WITNESS = 80
"""Characters of a witness that a tooltip shows."""


def wilson(hits: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """A 95% interval for a proportion."""
    share, z2 = hits / total, z * z / total
    centre = (share + z2 / 2) / (1 + z2)
    half = z / (1 + z2) * math.sqrt(share * (1 - share) / total + z2 / (4 * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def intervals(evidence: Evidence) -> Chart:
    """How often a method gives a 95% interval, and how often that holds the truth."""
    records: list[Record] = []
    for label in evidence.methods:
        for model in evidence.models:
            scores = [cell.score for cell in evidence.scored(model, label)]
            held, targets = pooled(s.coverage for s in scores), sum(s.targets for s in scores)
            if targets:
                low, high = wilson(held.covered, held.given) if held.given else (None, None)
                records.append({
                    "row": f"{label}, {model}", "method": label, "targets": targets,
                    "given": held.given, "held": held.covered,
                    "share given": number(held.given / targets), "share held": number(held.share),
                    "low": number(low), "high": number(high),
                })  # fmt: skip
    lane = alt.Y("row:N").scale(domain=[record["row"] for record in records]).title(None)
    share = alt.Scale(domain=[0, 1], nice=False)
    axis = alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1])
    colour, shape = look(looks(evidence.known), evidence.methods, legend=False)
    said = tip("row", "targets", "given", "held", "share given", "share held")
    base = alt.Chart(named("intervals")).encode(y=lane, tooltip=said, color=colour)
    size = {"width": ALL * 0.36, "height": alt.Step(18)}
    given = alt.X("share given:Q").scale(share).axis(axis).title("are given an interval")
    held_at = alt.X("share held:Q").scale(share).axis(axis).title("of these hold the truth")
    line = alt.Chart(alt.Data(values=[{"at": 0.95}])).mark_rule(strokeDash=[4, 3], color=INK[0])
    bare = base.encode(y=lane.axis(labels=False, ticks=False))
    right = alt.layer(
        line.encode(x=alt.X("at:Q").scale(share)),
        bare.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q").scale(share), x2="high:Q"),
        bare.mark_point(size=70, filled=True, opacity=1).encode(x=held_at, shape=shape),
    )
    left = base.mark_bar(opacity=0.75).encode(x=given).properties(**size)
    title = "Targets with a 95% interval, and how often it holds the truth (dashed: 95%)"
    both = alt.hconcat(left, right.properties(**size))
    return finished(both, {"intervals": records}, title=title)


def tuning(evidence: Evidence, model: str) -> Chart:
    """The loss at each temperature that was tried; the chosen one is ringed."""
    records: list[Record] = [
        {"inputs": inputs, "method": label, "temperature": number(t), "loss": number(loss),
         "chosen": abs(t - tuned.temperature) < 1e-3 * t}
        for (named_model, inputs, label), tuned in evidence.run.tuned.items()
        if named_model == model and label in evidence.known and inputs in evidence.inputs
        for t, loss in tuned.curve
    ]  # fmt: skip
    colour, shape = look(looks(evidence.known), [record["method"] for record in records])
    across = alt.X("temperature:Q").scale(type="log", nice=False, padding=8)
    base = alt.Chart().encode(
        x=across.axis(values=[0.2, 0.5, 1, 2, 5], format="~g"),
        y=alt.Y("loss:Q").scale(zero=True),
        tooltip=tip("inputs", "method", "temperature", "loss"),
        color=colour,
    )
    layers = alt.layer(
        base.mark_line(strokeWidth=1.4),
        base.mark_point(size=24, filled=True, opacity=1).encode(shape=shape),
        base.mark_point(size=170, opacity=1).transform_filter("datum.chosen").encode(shape=shape),
        data=named(f"tuning-{model}"),
    )
    placed(records, inputs=evidence.inputs)
    title = f"Loss after an in-sample fit on {visible(model)}; the chosen temperature is ringed"
    return finished(panels(layers, records), {f"tuning-{model}": records}, title=title)


def truth_by_rank(evidence: Evidence) -> Chart:
    """The truth of every target by its rank, with its standard error, a panel a distribution."""
    records: list[Record] = []
    for model, inputs in evidence.run.cells:
        chosen = evidence.run.chosen["run", model, inputs].targets
        found = sorted((t for t in chosen if t.probability > 0), key=lambda t: -t.probability)
        for rank, t in enumerate(found, start=1):
            names = {"model": model, "inputs": inputs, "rank": rank, "token": visible(t.text)}
            records.append(names | _with_ends(t.probability, t.standard_error))
    ends = span([r["low"] for r in records] + [r["high"] for r in records])
    shades = {m: SHADES[n % len(SHADES)] for n, m in enumerate(evidence.models)}
    colour, _ = look(shades, evidence.models, "model")
    base = alt.Chart().encode(
        x="rank:Q",
        y=alt.Y("truth:Q").scale(logarithmic(*ends)).axis(powers(*ends, "probability")),
        color=colour,
        tooltip=tip("model", "inputs", "rank", "token", "truth", "error"),
    )
    layers = alt.layer(
        base.mark_area(opacity=0.2).encode(y="low:Q", y2="high:Q"),
        base.mark_line(strokeWidth=1.5).encode(strokeDash=alt.StrokeDash("model:N").legend(None)),
        base.mark_point(size=30, opacity=0),  # to point at
        data=named("ranks"),
    )
    placed(records, inputs=evidence.inputs)
    title = "True probability ± standard error of the chosen targets, by rank"
    return finished(panels(layers, records), {"ranks": records}, title=title)


def _with_ends(p: float, error: float) -> Record:
    """A probability with its standard error, and the ends of the band on a logarithmic axis."""
    low = max(p - error, p / 10)
    high = p + error if math.isfinite(error) else 10 * p
    said = {"truth": number(p), "error": number(error)}
    return {**said, "low": number(low), "high": number(high)}


def target_records(outcome: Scored) -> list[Record]:
    """What a scatter shows and says of each judged target of an outcome.

    Bars are ±1 standard error of the truth, and the interval. After the fit an estimate has no
    interval: the fit moves it, and adds an error of its own.
    """
    kept = [pair for pair, keep in zip(outcome.answers, outcome.score.judged, strict=True) if keep]
    judged = zip(kept, outcome.score.log_fitted, outcome.losses("is"), strict=True)
    records = []
    for (target, answer), log_fitted, lost in judged:
        p, error, spent = target.probability, target.standard_error, answer.cost
        spent += answer.shared_cost
        low, high = answer.interval if answer.is_two_sided else (None, None)
        records.append({
            "inputs": outcome.inputs, "method": outcome.method, "token": visible(target.text),
            "truth": number(p), "error": number(error),
            "truth low": number(p - error) if error < p else None,
            "truth high": number(p + error),
            "estimate": number(answer.probability), "fitted": number(math.exp(log_fitted)),
            "low": number(low), "high": number(high), "hits": answer.hits,
            "interval": spelt(answer.interval) if answer.is_two_sided else answer.no_interval,
            "loss": number(lost),
            "MACs": number(spent.macs, 3), "seconds": number(spent.seconds, 3),
            "witness": visible(answer.witnesses[0].text[:WITNESS]) if answer.witnesses else "none",
        })  # fmt: skip
    return records


def spelt(interval: tuple[float, float] | None) -> str:
    """Both ends in words; nothing for none."""
    return "" if interval is None else " … ".join(power_of_ten(end) for end in interval)


def scatter(evidence: Evidence, model: str, fitted: bool = False) -> Chart:
    """Estimates against the truth, a panel for each method and distribution.

    All panels share both axes; estimates of zero lie hollow on the bottom edge.
    """
    inputs, methods = evidence.cell_inputs(model), evidence.methods
    found = [evidence.outcome(model, i, m) for i in inputs for m in methods]
    records = [record for outcome in found if outcome for record in target_records(outcome)]
    low, high = span([record["truth"] for record in records])
    field = "fitted" if fitted else "estimate"
    values = [record[field] for record in records if record[field]] or [low, high]
    bottom = max(min(float(np.quantile(values, 0.02)), low) / 2, low / 1e5)
    top = min(max(*values, high) * 2, 2.0)
    floor = bottom / (top / bottom) ** 0.07
    scale = logarithmic(floor, top)
    base = alt.Chart().transform_calculate(
        y=f"max(datum.{field}, {floor})", zero=f"datum.{field} <= {floor}",
        bottom=f"max(datum.low, {floor})", left=f"max(datum['truth low'], {low})",
    )  # fmt: skip
    colour, shape = look(looks(evidence.known), methods, legend=False)
    base = base.encode(
        x=alt.X("truth:Q").scale(logarithmic(low, high)).axis(powers(low, high, "truth", 3, True)),
        y=alt.Y("y:Q").scale(scale).axis(powers(bottom, top, None, 4)),
        color=colour,
    )
    said = tip("token", "method", "inputs", "truth", "error", "estimate", "interval", "fitted",
               "loss", "hits", "MACs", "seconds", "witness")  # fmt: skip
    ends = alt.Data(values=[{"a": max(low, floor), "b": min(high, top)}])
    equal = alt.Chart(ends).mark_rule(color=MUTED[0], strokeWidth=0.8)
    thin = base.mark_rule(strokeWidth=0.7, opacity=0.4)
    upright = thin.transform_filter("isValid(datum.high) && datum.high > 0 && !datum.zero")
    layers = alt.layer(
        equal.encode(x="a:Q", y=alt.Y("a:Q").scale(scale), x2="b:Q", y2="b:Q"),
        thin.encode(x="left:Q", x2="truth high:Q"),
        *([] if fitted else [upright.encode(y="bottom:Q", y2="high:Q")]),
        *marks(base.encode(tooltip=said), shape, "zero", size=20, opacity=0.85),
        data=named(f"targets-{model}"),
    )
    wide = min(220, max(90, (1000 - 90) // max(len(methods), 1) - 12))
    grid = layers.properties(width=wide, height=min(wide, 150)).facet(
        row=alt.Row("inputs:N").sort(by_place("inputs")).title(None),
        column=alt.Column("method:N").sort(by_place("method")).title(None),
        spacing=8,
    )
    placed(records, inputs=inputs, method=methods)
    when = "after" if fitted else "before"
    title = f"Estimate {when} the fit against the truth on {visible(model)}; hollow: no hit"
    return finished(grid, {f"targets-{model}": records}, title=title)


def one_estimate(
    probability: float,
    interval: tuple[float, float] | None,
    truth: tuple[float, float] | None = None,
    kind: str = "two-sided",
) -> Chart:
    """An answer on a logarithmic axis: the estimate, its interval, and the truth where known.

    An interval that begins at zero reaches to the left end of the axis, as an upper bound does.
    """
    (low, high), (p, error) = interval or (0.0, 0.0), truth or (0.0, 0.0)
    first, last = span([probability, low, high, p, p - error, p + error], 3)
    first = min(first, last / 100)
    what = "upper bound" if kind == "upper bound" else "interval"
    known = power_of_ten(probability, 2) if probability > 0 else "no hit"
    bounds = f"95% {what} {spelt(interval)}" if interval else "no interval"
    rows = [("estimate", probability, low, high, f"{known}; {bounds}")]
    if p > 0:
        said = f"{power_of_ten(p, 2)} ± {power_of_ten(error)}"
        rows.append(("truth", p, p - error, p + error, said))
    records = [
        {"row": row, "at": number(at) if at > 0 else None, "says": says,
         "from": number(max(left, first)) if right > 0 else None,
         "to": number(right) if right > 0 else None}
        for row, at, left, right, says in rows
    ]  # fmt: skip
    names = ["estimate", "truth"]
    colour = alt.Color("row:N").scale(domain=names, range=[LOOKS["itgis"].colour, INK[0]])
    shape = alt.Shape("row:N").scale(domain=names, range=["circle", "diamond"])
    lane = alt.Y("row:N").sort(None).title(None)
    base = alt.Chart(named("estimate")).encode(
        y=lane, color=colour.legend(None), tooltip=tip("row", "says")
    )
    scale = logarithmic(first, last)
    at = alt.X("at:Q").scale(scale).axis(powers(first, last, "probability", 8, True))
    layers = alt.layer(
        base.mark_rule(strokeWidth=6, opacity=0.4).encode(x=alt.X("from:Q").scale(scale), x2="to"),
        base.mark_point(size=130, filled=True, opacity=1).encode(x=at, shape=shape.legend(None)),
    )
    return finished(layers, {"estimate": records}, width=ALL - 60, height=34 * len(records))


def every_token(
    probability: Sequence[float], error: Sequence[float], texts: Sequence[str], name: str
) -> Chart:
    """Tokens that were seen, by rank on two logarithmic axes, with their standard error."""
    order = sorted((n for n, p in enumerate(probability) if p > 0), key=lambda n: -probability[n])
    ranks = sorted({round(1.02**k) for k in range(1000) if round(1.02**k) <= len(order)})
    records = [
        {"rank": rank, "token": visible(texts[n]), **_with_ends(probability[n], error[n])}
        for rank in ranks
        for n in [order[rank - 1]]
    ]
    ends = span([r["low"] for r in records] + [r["high"] for r in records])
    up = alt.Y("truth:Q").scale(logarithmic(*ends)).axis(powers(*ends, "probability", 8))
    across = alt.X("rank:Q").scale(type="log").title("rank of the token")
    base = alt.Chart(named("tokens")).encode(x=across, y=up)
    base = base.encode(tooltip=tip("rank", "token", "truth", "error"))
    colour = SHADES[1].colour
    layers = alt.layer(
        base.mark_area(opacity=0.25, color=colour).encode(y="low:Q", y2="high:Q"),
        base.mark_point(size=18, filled=True, color=colour, opacity=1),
    )
    return finished(layers, {"tokens": records}, width=ALL, height=280, title=visible(name))


def differences(records: list[Record], title: str) -> Chart:
    """Runs side by side: how much a method's loss changed in each cell; below zero is better."""
    methods = list(dict.fromkeys(record["method"] for record in records))
    zero = alt.Chart(alt.Data(values=[{"at": 0}])).mark_rule(color=MUTED[0]).encode(x="at:Q")
    point = alt.Chart(named("differences")).mark_point(size=70, filled=True, opacity=0.85)
    colour, shape = look(looks(methods), methods)
    point = point.encode(
        x=alt.X("difference:Q").title(title),
        y=alt.Y("cell:N").sort(None).title(None).axis(grid=True),
        tooltip=tip("cell", "method", "first", "last", "difference"),
        color=colour,
        shape=shape,
    )
    both, height = alt.layer(zero, point), 22 * len({record["cell"] for record in records})
    return finished(both, {"differences": records}, width=ALL - 120, height=height)


def run_charts(evidence: Evidence) -> dict[str, Callable[[], Chart]]:
    """Every chart that the run has something to show in, by name; each is made when called."""
    made: dict[str, Callable[[], Chart]] = {}
    if evidence.methods:
        for loss in LOSS_TITLES:
            made[f"loss-by-model-{loss}"] = partial(loss_by_model, evidence, loss)
            made[f"loss-by-distribution-{loss}"] = partial(loss_by_distribution, evidence, loss)
            made[f"cost-{loss}"] = partial(cost_against_accuracy, evidence, loss)
            if evidence.halves():
                made[f"halves-{loss}"] = partial(halves, evidence, loss)
        made["intervals"] = partial(intervals, evidence)
        for model in evidence.models:
            made[f"scatter-raw-{model}"] = partial(scatter, evidence, model)
            made[f"scatter-fitted-{model}"] = partial(scatter, evidence, model, True)
    for model in evidence.models:
        if any(key[0] == model and tuned.curve for key, tuned in evidence.run.tuned.items()):
            made[f"tuning-{model}"] = partial(tuning, evidence, model)
    if any(evidence.run.chosen["run", *cell].targets for cell in evidence.run.cells):
        made["truth"] = partial(truth_by_rank, evidence)
    return made
