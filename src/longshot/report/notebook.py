"""What notebooks show of a result: a small table, and the same charts as pages and files."""

from __future__ import annotations

import html
from functools import singledispatch
from typing import Any

from longshot.errors import LongshotError, unknown_name, visible
from longshot.estimate import Estimate
from longshot.models import Model
from longshot.report.charts import differences, every_token, run_charts
from longshot.report.comparison import Comparison, loss_name
from longshot.report.drawing import Chart
from longshot.report.embed import in_words, number
from longshot.report.evidence import LOSS_TITLES, gather
from longshot.report.question import estimate_chart
from longshot.study import Run
from longshot.truth import Truth

NAMES = {"loss": "loss-by-model-is", "scatter": "scatter-raw", "cost": "cost-is"}
"""Short names of a run's charts."""


def as_table(result: Any) -> str:
    """The facts of a result as HTML, everything in it escaped."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(visible(str(value)))}</td></tr>'
        for name, value in facts(result).items()
    )
    return f"<table><tbody>{rows}</tbody></table>"


@singledispatch
def facts(result: Any) -> dict[str, object]:
    """What a table says of a result."""
    return {"inputs": result.name, "tokens": result.length, "fingerprint": result.fingerprint}


@facts.register
def _(answer: Estimate) -> dict[str, object]:
    low, high = answer.interval
    kind = "95% interval" if answer.is_two_sided else "upper bound (95%)"
    ends = f"{low:.2g} … {high:.2g}" if answer.is_two_sided else f"{high:.2g}"
    found: dict[str, object] = {"probability": in_words(answer.log_probability), kind: ends}
    if answer.no_interval:
        found["why no more"] = answer.no_interval
    spent = answer.cost + answer.shared_cost
    found |= {"method": answer.method, "calls": f"{spent.forwards + spent.backwards:,}"}
    found |= {"seconds": f"{spent.seconds:.2g}"}
    if answer.witnesses:
        found["an input that does it"] = answer.witnesses[0].text
    return found | ({"warnings": " ".join(answer.warnings)} if answer.warnings else {})


@facts.register
def _(truth: Truth) -> dict[str, object]:
    seen = int((truth.probability > 0).sum())
    return {"truth of": truth.cell, "samples": truth, "tokens seen": f"{seen:,}"}


@facts.register
def _(run: Run) -> dict[str, object]:
    cells, failed = len(run.cells), len(run.failures)
    return {
        "run": run.name, "made by": run.command, "cells": cells,
        "methods": ", ".join(run.methods), "estimates": f"{len(run.rows) - failed:,}",
        "failures": f"{failed:,}",
    }  # fmt: skip


@facts.register
def _(model: Model) -> dict[str, object]:
    return {
        "model": model.name, "width": model.width, "vocabulary": f"{model.vocab_size:,}",
        "context": model.context, "licence": model.licence, "source": model.source,
    }  # fmt: skip


@facts.register
def _(comparison: Comparison) -> dict[str, object]:
    title = f"{LOSS_TITLES[loss_name(comparison.loss)]}: {' → '.join(comparison.names)}"
    found: dict[str, object] = {title: ""}
    return found | {
        f"{r['method']}, {r['inputs']}, {r['model']}": " → ".join(
            "–" if loss is None else f"{loss:.3f}" for loss in r["losses"]
        )
        for r in comparison.records
    }


@singledispatch
def plot(result: Any) -> Chart:
    """The chart of a result: an estimate, a truth, a comparison, a run by the chart's name."""
    raise TypeError(f"{type(result).__name__} has no chart")


@plot.register
def _(answer: Estimate, truth: tuple[float, float] | None = None) -> Chart:
    return estimate_chart(answer, truth)


@plot.register
def _(truth: Truth, model: Model | None = None) -> Chart:
    ids = range(len(truth.probability))
    texts = [f"#{i}" for i in ids] if model is None else [model.tokenizer.show(i) for i in ids]
    return every_token(
        truth.probability.tolist(), truth.standard_error.tolist(), texts, str(truth.cell)
    )


@plot.register
def _(run: Run, name: str = "loss", model: str | None = None) -> Chart:
    charts = run_charts(gather(run))
    wanted = NAMES.get(name, name)
    named = [n for n in charts if n == wanted or n == f"{wanted}-{model or ''}"]
    named += [n for n in charts if model is None and n.startswith(f"{wanted}-")]
    if not named:
        raise unknown_name("chart of a run", name, [*NAMES, *charts])
    return charts[named[0]]()


@plot.register
def _(comparison: Comparison) -> Chart:
    shown = [
        {"cell": f"{r['inputs']}, {r['model']}", "method": r["method"],
         "first": number(r["losses"][0]), "last": number(r["losses"][-1]),
         "difference": number(r["difference"])}
        for r in comparison.records if r["difference"] is not None
    ]  # fmt: skip
    if not shown:
        raise LongshotError("The runs have no method on a cell in common, so nothing to plot.")
    first, last = visible(comparison.names[0]), visible(comparison.names[-1])
    return differences(shown, f"{LOSS_TITLES[loss_name(comparison.loss)]}, {last} minus {first}")
