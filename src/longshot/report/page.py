"""The report as one HTML page that needs nothing else: the answer, then the evidence."""

from __future__ import annotations

import html
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from longshot.estimate import Estimate
from longshot.report.embed import as_json, fill, log10, number, paragraphs, read_asset, unbroken
from longshot.report.evidence import LOSS_TITLES, Evidence
from longshot.report.grids import as_html
from longshot.report.style import looks
from longshot.report.tables import tables
from longshot.report.words import answer, winner
from longshot.study.scores import LossName
from longshot.study.summary import CostKind, Scored

SCRIPTS = ("base.js", "charts.js", "scatter.js", "main.js")
FAILURES = 200
LONGEST = 400
"""Characters of a witness that the page keeps."""


def page(evidence: Evidence) -> str:
    """The whole page."""
    said, run = answer(evidence), evidence.run
    return fill(
        "page.html",
        {
            "TITLE": html.escape(run.name),
            "HEADLINE": unbroken(said.headline),
            "DETAILS": paragraphs(said.details),
            "FACTS": _facts(evidence),
            "TABLES": "".join(as_html(grid) for grid in tables(evidence)),
            "FAILURES": _failures(evidence),
            "VERSION": html.escape(version("longshot")),
            "STYLE": read_asset("page.css"),
            "LOOKS": _looks(evidence),
            "DATA": as_json(page_data(evidence)),
            "SCRIPT": "\n".join(read_asset(name) for name in SCRIPTS),
        },
    )


def page_data(evidence: Evidence) -> dict[str, Any]:
    """What the page's script draws from, compact: columns, and each text once."""
    texts = _Texts()
    run = evidence.run
    styles = looks(evidence.known)
    first = next((w for m in evidence.models if (w := winner(evidence, m, "is"))), None)
    return {
        "models": evidence.models,
        "inputs": evidence.inputs,
        "labels": evidence.labels,
        "known": evidence.known,
        "shapes": [styles[label].shape for label in evidence.known],
        "first": first or (evidence.methods[0] if evidence.methods else None),
        "halves": evidence.halves(),
        "losses": {name: _losses(evidence, name) for name in LOSS_TITLES},
        "titles": LOSS_TITLES,
        "spent": {
            model: {
                label: spent
                for label in evidence.methods
                if (spent := _spent(evidence, model, label))
            }
            for model in evidence.models
        },
        "cells": [
            {
                "model": evidence.models.index(model),
                "inputs": evidence.inputs.index(inputs),
                "targets": [
                    [t.text, t.token, number(t.probability), number(t.standard_error)]
                    for t in run.chosen["run", model, inputs].targets
                ],
                "truth": run.chosen["run", model, inputs].truth,
                "methods": {
                    label: _columns(outcome, texts)
                    for label in evidence.methods
                    if (outcome := evidence.outcome(model, inputs, label))
                },
            }
            for model, inputs in run.cells
        ],
        "tuned": [
            [*key, tuned.temperature, [[number(t), number(x)] for t, x in tuned.curve]]
            for key, tuned in run.tuned.items()
            if key[2] in evidence.known
        ],
        "texts": texts.list,
    }


class _Texts:
    """Texts by number, so that a witness of many targets stands once."""

    def __init__(self) -> None:
        self.list: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.list)
            self.list.append(text)
        return self._numbers[text]


def _spent(evidence: Evidence, model: str, label: str) -> list[float | None]:
    """Multiply-accumulates and seconds of a target: alone, then with its share of samples."""
    kinds: tuple[CostKind, ...] = ("alone", "each")
    found = [evidence.spent(model, label, kind) for kind in kinds]
    return [number(value) for spent in found if spent for value in (spent.macs, spent.seconds)]


def _losses(evidence: Evidence, name: LossName) -> dict[str, Any]:
    return {
        "means": {
            model: {
                label: [number(mean.value), number(mean.error), mean.cells, mean.wanted]
                for label in evidence.labels
                if (mean := evidence.over_inputs(model, label, name)).value is not None
            }
            for model in evidence.models
        },
        "cells": {
            model: {
                label: [number(evidence.loss(model, i, label, name)) for i in evidence.inputs]
                for label in evidence.labels
            }
            for model in evidence.models
        },
    }


def _columns(outcome: Scored, texts: _Texts) -> dict[str, Any]:
    """The answers of one method in one cell, as equally long columns."""
    fitted: list[float | None] = []
    losses: list[float | None] = []
    judged = iter(zip(outcome.score.log_fitted, outcome.losses("is"), strict=True))
    for keep in outcome.score.judged:
        log_q, loss = next(judged) if keep else (None, None)
        fitted.append(None if log_q is None else log10(float(log_q)))
        losses.append(number(loss))
    answers = [estimate for _, estimate in outcome.answers]
    spent = [estimate.cost + estimate.shared_cost for estimate in answers]
    return {
        "token": [target.token for target, _ in outcome.answers],
        "q": [log10(estimate.log_probability) for estimate in answers],
        "low": [_end(estimate, 0) for estimate in answers],
        "high": [_end(estimate, 1) for estimate in answers],
        "why": [texts.number(e.no_interval) if e.no_interval else None for e in answers],
        "fit": fitted,
        "loss": losses,
        "hits": [estimate.hits for estimate in answers],
        "macs": [number(cost.macs, 3) for cost in spent],
        "s": [number(cost.seconds, 3) for cost in spent],
        "witness": [
            texts.number(e.witnesses[0].text[:LONGEST]) if e.witnesses else None for e in answers
        ],
    }


def _end(estimate: Estimate, which: int) -> float | None:
    """An end of the interval as it is: zero is a number that a logarithm would lose."""
    return number(estimate.interval[which]) if estimate.is_two_sided else None


def _looks(evidence: Evidence) -> str:
    """Each label's colour as a variable of the style sheet, for light and dark pages."""
    styles = looks(evidence.known)
    return "".join(
        f"--m{n}:light-dark({styles[label].colour},{styles[label].on_dark});"
        for n, label in enumerate(evidence.known)
    )


def _facts(evidence: Evidence) -> str:
    run = evidence.run
    targets = sum(len(run.chosen["run", *cell].targets) for cell in run.cells)
    estimates = sum(row.estimate is not None for row in run.rows)
    facts: Mapping[str, int] = {
        "models": len(evidence.models),
        "distributions": len(evidence.inputs),
        "targets": targets,
        "estimates": estimates,
        "failures": len(run.failures),
    }
    shown = (
        f"<div><dt>{name}</dt><dd>{count:,}</dd></div>"
        for name, count in facts.items()
        if count or name != "failures"
    )
    return "".join(shown)


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
