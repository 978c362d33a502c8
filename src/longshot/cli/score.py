"""`longshot score`, `compare` and `witnesses`: what a stored run says; no model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from longshot.cli.app import JsonOption, app, console, say
from longshot.errors import LongshotError, visible

if TYPE_CHECKING:
    from longshot.report.grids import Field, Grid

RunArgument = Annotated[Path, typer.Argument(help="A run's folder, or a file of its rows.")]
LossOption = Annotated[str, typer.Option(help="is_loss or log_mse.")]


@app.command()
def score(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option(help="Write the records there, as JSON.")] = None,
    loss: LossOption = "is_loss",
    between: Annotated[
        bool, typer.Option("--paired", help="Differences between methods, target by target.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Score a run against the truth: leave-one-out losses, and what stands beside them.

    Example: [bold]longshot score runs/demo --out summary.json[/]
    """
    from longshot.files import try_place, write_whole
    from longshot.report.comparison import loss_name
    from longshot.report.evidence import gather
    from longshot.report.tables import cost, intervals, losses, paired, unfitted
    from longshot.study import load_run
    from longshot.study.paired import paired_records
    from longshot.study.summary import missing_methods, summary

    name = loss_name(loss)
    if out is not None:
        try_place(out)
    loaded = load_run(run)
    evidence = gather(loaded)
    every = list(evidence.outcomes.values())  # smaller budgets too
    records = paired_records(evidence.scored()) if between else summary(every)
    if as_json:
        typer.echo(json.dumps(records, indent=1))
    elif records:
        grids = [(paired if between else losses)(evidence, m, name) for m in evidence.models]
        beside = (unfitted(evidence, name), cost(evidence), intervals(evidence))
        for grid in grids if between else (*grids, *beside):
            console.print(_shown(grid))
    if out is not None:
        write_whole(out, json.dumps(records, indent=1) + "\n")
    if as_json:
        return
    if not records:
        raise LongshotError(f"{run} holds no targets yet; go on with longshot run.")
    if missing := missing_methods(loaded):
        say(missing)
    if loaded.failures:
        say(f"{len(loaded.failures)} rows failed; longshot run tries them again.")
        raise typer.Exit(1)


def _shown(grid: Grid) -> Table:
    """A table on the terminal; nothing in it is read as markup."""
    title, note = Text(grid.title, "bold"), Text(f"{grid.note}\n")
    table = Table(title=title, title_justify="left", caption=note, caption_justify="left")
    for heading, is_text in zip(grid.headings, grid.is_text, strict=True):
        table.add_column(Text(heading), justify="left" if is_text else "right")
    for row in grid.rows:
        table.add_row(*map(_field, row))
    table.add_section()
    for row in grid.footer:
        table.add_row(*map(_field, row))
    return table


def _field(entry: Field) -> Text:
    return Text(f"{entry.text} {entry.beside}".strip(), "bold" if entry.best else "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


@app.command()
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Two or more runs: folders, or files of rows.")
    ],
    loss: LossOption = "is_loss",
    as_json: JsonOption = False,
) -> None:
    """Put runs side by side: each method's loss on each cell, and the difference.

    Example: [bold]longshot compare runs/demo runs/mine[/]
    """
    from longshot.report.comparison import compare as put_side_by_side
    from longshot.report.comparison import loss_name
    from longshot.report.evidence import LOSS_TITLES

    title = LOSS_TITLES[loss_name(loss)]
    rows = put_side_by_side(*runs, loss=loss).records
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("model", "inputs", "method", title=title)
    for run in runs:
        table.add_column(visible(str(run)), justify="right")
    table.add_column("last − first", justify="right")
    for row in rows:
        table.add_row(
            row["model"],
            row["inputs"],
            row["method"],
            *(_number(value) for value in row["losses"]),
            _number(row["difference"]),
        )
    console.print(table)


@app.command()
def witnesses(run: RunArgument) -> None:
    """Print the inputs that produced their targets, up to five an estimate, as JSON lines.

    Example: [bold]longshot witnesses runs/demo > witnesses.jsonl[/]
    """
    from longshot.study import load_run
    from longshot.study.results import finite

    for witness in load_run(run).witnesses():
        typer.echo(json.dumps(finite(witness)))


@app.command()
def rows(run: RunArgument) -> None:
    """Print every estimate with its truth, as JSON lines; what is not a finite number is null.

    Example: [bold]longshot rows runs/demo | xz > rows.jsonl.xz[/]
    """
    from longshot.study import load_run
    from longshot.study.results import finite

    for record in load_run(run).records():
        typer.echo(json.dumps(finite(record), ensure_ascii=False))
