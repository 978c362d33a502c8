"""The report as one HTML page that needs nothing else: the answer, then the evidence."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from longshot.errors import visible
from longshot.report.charts import run_charts
from longshot.report.drawing import specs
from longshot.report.embed import chart_page, figure, paragraphs, power_of_ten, unbroken
from longshot.report.evidence import Evidence
from longshot.report.grids import Field, Grid, as_html
from longshot.report.tables import NONE, tables
from longshot.report.words import answer
from longshot.study.store import Target

FAILURES = 200
LONGEST = 300
"""Characters of a witness that the page keeps."""

CAPTIONS = {
    "loss-by-model": "<b>By model.</b> The mean loss over distributions, lower is better. The "
    "Itakura–Saito loss of an estimate <i>q</i> of <i>p</i> is <i>p/q</i> − ln(<i>p/q</i>) − 1; "
    "the best constant knows nothing of a token but how rare such tokens are.",
    "cost": "<b>By cost.</b> The same against what a target costs when it is asked alone; the "
    "dotted line is the best constant. Pointing at a mark also tells what it costs where a "
    "cell's targets share their samples.",
    "loss-by-distribution": "<b>By distribution.</b> Methods were settled on the development "
    "distributions; the test ones came after.",
    "halves": "<b>The two halves apart.</b>",
    "scatter": "Each mark is a target: a token, whose truth is the probability that the model's "
    "most likely next token is that one, over inputs of the distribution. Bars are ± one standard "
    "error of the truth and the method's own 95% interval. Hollow marks at the bottom: no sample "
    "hit. Losses are taken after a fit <i>a·x<sup>c</sup> + b</i> (some methods have a form of "
    "their own), made without the target that it is judged on.",
    "intervals": "A 95% interval should hold the truth 95 times in 100. On the left, how often a "
    "method gives one at all; on the right, how often it holds the truth, with the 95% (Wilson) "
    "interval of that share.",
    "tuning": "A method that tilts its inputs has a temperature. It is the one of the lowest loss "
    "after an in-sample fit, on tokens that are never evaluated; the ring marks it.",
    "truth": "The truth comes from samples and has an error of its own, which costs every method "
    "something: the noise floor in the tables.",
}
SECTIONS = {
    "Loss": ("loss-by-model", "cost", "loss-by-distribution", "halves"),
    "Estimate against truth": ("scatter",),
    "Intervals: given, and held": ("intervals",),
    "How temperatures were tuned": ("tuning",),
    "The truth, by rank": ("truth",),
}


def page(evidence: Evidence) -> str:
    """The whole page."""
    said, run = answer(evidence), evidence.run
    charts = specs(run_charts(evidence))
    body = [
        f'<section id="answer"><h1>{unbroken(said.headline)}</h1>'
        f'<ul class="details">{paragraphs(said.details)}</ul>'
        f'<dl class="facts">{_facts(evidence)}</dl><p class="made">{_made(evidence)}</p></section>',
        _controls(evidence) if charts else "",
        *(_section(title, stems, charts, evidence) for title, stems in SECTIONS.items()),
        _tables(evidence),
        _targets(evidence),
        _failures(evidence),
    ]
    return chart_page("run", run.name, "\n".join(body), "", charts, evidence.known)


def _controls(evidence: Evidence) -> str:
    """What the charts and tables are shown for."""
    losses = {"is": "Itakura–Saito", "log": "squared log error"}
    choices: dict[str, Mapping[str, str]] = {
        "loss": losses,
        "model": {m: m for m in evidence.models},
        "fit": {"raw": "as estimated", "fitted": "after the fit"},
    }
    shown = []
    for key, options in choices.items():
        items = "".join(
            f'<option value="{html.escape(value)}">{html.escape(visible(name))}</option>'
            for value, name in options.items()
        )
        shown.append(f'<label>{key} <select data-key="{key}">{items}</select></label>')
    return f'<div class="controls">{"".join(shown)}</div>'


def _section(
    title: str, stems: Sequence[str], charts: Mapping[str, Any], evidence: Evidence
) -> str:
    """The charts whose names begin alike, each with the choices that it is shown for."""
    figures = []
    for stem in stems:
        for name in charts:
            if name != stem and not name.startswith(f"{stem}-"):
                continue
            rest, keys = name.removeprefix(stem).removeprefix("-"), {}
            for fit in ("raw", "fitted"):
                if stem == "scatter" and rest.startswith(f"{fit}-"):
                    keys["fit"], rest = fit, rest.removeprefix(f"{fit}-")
            if rest:
                keys["loss" if stem in SECTIONS["Loss"] else "model"] = rest
            figures.append(figure(name, CAPTIONS[stem], **keys))
    return f"<section><h2>{title}</h2>{''.join(figures)}</section>" if figures else ""


def _tables(evidence: Evidence) -> str:
    grids = "".join(as_html(grid) for grid in tables(evidence))
    if not grids:
        return ""
    hint = "<figcaption>A click on a heading sorts.</figcaption>"
    return f'<section id="tables"><h2>Tables</h2>{hint}{grids}</section>'


def _targets(evidence: Evidence) -> str:
    """Every target with its truth, each method's estimate, and an input that produces it."""
    run, rows = evidence.run, []
    for model, inputs in run.cells:
        answers = {
            label: {target.token: e for target, e in run.estimates(model, inputs, label)}
            for label in evidence.methods
        }
        for target in run.chosen["run", model, inputs].targets:
            found = {label: answers[label].get(target.token) for label in evidence.methods}
            witness = next((e.witnesses[0].text for e in found.values() if e and e.witnesses), "")
            estimates = (
                Field(NONE) if e is None else Field("no hit") if e.probability == 0
                else Field(power_of_ten(e.probability), e.probability)
                for e in found.values()
            )  # fmt: skip
            rows.append((
                Field(visible(target.text)), Field(model), Field(inputs), _truth(target),
                *estimates, Field(visible(witness[:LONGEST])),
            ))  # fmt: skip
    if not rows:
        return ""
    headings = ("target", "model", "inputs", "truth", *evidence.methods, "an input that does it")
    grid = Grid("targets", "", "", headings, tuple(rows))
    return (
        f'<section id="targets"><h2>Targets</h2><label>search <input type="search" id="search" '
        f'placeholder="a token, model, distribution or word"></label> <span id="found">'
        f"{len(rows):,} shown</span>{as_html(grid)}</section>"
    )


def _truth(target: Target) -> Field:
    p, error = target.probability, target.standard_error
    share = f"±{error / p:.0%}" if p > 0 and error < float("inf") else ""
    return Field(power_of_ten(p), p, share)


def _facts(evidence: Evidence) -> str:
    run = evidence.run
    facts: Mapping[str, int] = {
        "models": len(evidence.models),
        "distributions": len(evidence.inputs),
        "targets": sum(len(run.chosen["run", *cell].targets) for cell in run.cells),
        "estimates": sum(row.estimate is not None for row in run.rows),
        "failures": len(run.failures),
    }
    shown = (
        f"<div><dt>{name}</dt><dd>{count:,}</dd></div>"
        for name, count in facts.items()
        if count or name != "failures"
    )
    return "".join(shown)


def _made(evidence: Evidence) -> str:
    """How the run was made: the command, the day, the version, budgets and temperatures."""
    run = evidence.run
    estimates = [row.estimate for row in run.rows if row.estimate]
    budgets = sorted({e.budget for e in estimates})
    warm = sorted({t for e in estimates if (t := e.settings.get("temperature")) is not None})
    parts = [f"<code>{html.escape(run.command)}</code>"]
    if run.finished:
        parts.append(f"finished {html.escape(run.finished[:10])}")
    if run.made_by:
        parts.append(f"by longshot {html.escape(run.made_by)}")
    if budgets:
        parts.append(f"{_range([f'{b:,}' for b in budgets])} model calls a target")
    if warm:
        tuned = "tuned, " if run.tuned else ""
        parts.append(f"temperature {tuned}{_range([f'{t:.3g}' for t in warm])}")
    return " · ".join(parts)


def _range(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _failures(evidence: Evidence) -> str:
    failures = evidence.run.failures
    if not failures:
        return ""
    items = "".join(
        f"<li><b>{html.escape(' · '.join((*row.key[1:4], f'#{row.key.token}')))}</b> "
        f"{html.escape(row.error or '')}</li>"
        for row in failures[:FAILURES]
    )
    more = len(failures) - FAILURES
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    return (
        f'<section id="failures"><h2>What failed</h2><details open><summary>{len(failures):,} '
        f"without an estimate</summary><ul>{items}</ul>{rest}</details></section>"
    )
