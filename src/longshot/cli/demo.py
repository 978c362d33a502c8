"""`longshot demo`: the main job in small, from a shipped model to a page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from longshot.cli.app import app, console, say
from longshot.cli.study import run_with_display

if TYPE_CHECKING:
    from longshot.study import Run
    from longshot.study.summary import Scored

SHOWN = 6  # targets of each distribution


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/demo"),
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
) -> None:
    """Estimate rare outputs of a shipped model with every method, and compare with the truth.

    Example: [bold]longshot demo[/]
    """
    from longshot.engines import make_engine
    from longshot.report import write_report
    from longshot.study import load_run, preset
    from longshot.study.summary import score_run

    run_with_display(preset("demo"), out, make_engine("local", workers))
    run = load_run(out)
    for model, inputs in run.cells:
        console.print(_table(run, model, inputs))
    scored = score_run(run)
    say(_meaning(run, scored))
    pages = write_report(run, out / "report", ["html"])
    say(f"The same as a page: {pages[0]}")


def _table(run: Run, model: str, inputs: str) -> Table:
    """Truth and estimates of some targets, from the commonest to the rarest."""
    from longshot.report.embed import in_words

    table = Table(title=f"How likely is it that {model} says … after {inputs} tokens?")
    table.add_column("token")
    for heading in ("truth", *run.methods):
        table.add_column(heading, justify="right")
    answers = {
        label: {target.token: estimate for target, estimate in run.estimates(model, inputs, label)}
        for label in run.methods
    }
    targets = sorted(run.chosen["run", model, inputs].targets, key=lambda t: -t.probability)
    for target in targets[:: max(1, len(targets) // SHOWN)]:
        cells: list[Text | str] = [Text(target.text), f"{target.probability:.1e}"]
        for label in run.methods:
            estimate = answers[label].get(target.token)
            cells.append(in_words(estimate.log_probability, 1) if estimate else "no hit")
        table.add_row(*cells)
    return table


def _meaning(run: Run, scored: list[Scored]) -> str:
    """What came out, in two sentences."""
    estimates = {
        label: [pair for cell in run.cells for pair in run.estimates(*cell, label)]
        for label in run.methods
    }
    total = len(estimates["naive"])
    seen = {
        label: sum(estimate.log_probability > -math.inf for _, estimate in pairs)
        for label, pairs in estimates.items()
    }
    mean = {
        label: sum(cell.score.losses["is"].mean or 0.0 for cell in scored if cell.method == label)
        / len(run.cells)
        for label in ("constant", *run.methods)
    }
    best = min(run.methods, key=lambda label: mean[label])
    return (
        f"Of {total} outputs that happen less than once in ten thousand inputs, plain sampling "
        f"saw {seen['naive']} and {best} {seen[best]} at the same budget of model calls. Judged "
        f"against the truth, {best} was the best: Itakura-Saito loss {mean[best]:.2f}, where "
        f"knowing nothing about a token costs {mean['constant']:.2f}."
    )
