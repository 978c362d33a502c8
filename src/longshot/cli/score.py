"""`longshot score`, `compare` and `witnesses`: what a stored run says; no model is loaded."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from longshot.cli.app import app, console
from longshot.errors import LongshotError
from longshot.study import load_run
from longshot.study.results import Run
from longshot.study.summary import averages, score_run, summary

RunArgument = Annotated[Path, typer.Argument(help="A run's folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LOSSES = {"is_loss": "Itakura-Saito loss", "log_mse": "squared log error"}


@app.command()
def score(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option(help="Write the records there, as JSON.")] = None,
    loss: Annotated[str, typer.Option(help="is_loss or log_mse.")] = "is_loss",
    as_json: JsonOption = False,
) -> None:
    """Score a run against the truth: leave-one-out losses, and what stands beside them.

    Example: [bold]longshot score runs/mini --out summary.json[/]
    """
    if loss not in LOSSES:
        raise LongshotError(f"The loss is is_loss or log_mse, not {loss!r}.")
    loaded = load_run(run)
    records = summary(score_run(loaded))
    if out is not None:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(records, indent=1) + "\n")
        except OSError as error:
            raise LongshotError(f"{out} cannot be written: {error.strerror}.") from error
    if as_json:
        typer.echo(json.dumps(records, indent=1))
        return
    if not records:
        raise LongshotError(f"{run} holds no targets yet; go on with longshot run.")
    for model in dict.fromkeys(record["model"] for record in records):
        console.print(_table([r for r in records if r["model"] == model], model, loss))
    console.print(_beside(records))
    if loaded.failures:
        console.print(f"{len(loaded.failures)} rows failed; longshot run tries them again.")
        raise typer.Exit(1)


def _table(records: list[dict[str, Any]], model: str, loss: str) -> Table:
    """One model's losses, inputs down and methods across, the best in bold."""
    methods = list(dict.fromkeys(record["method"] for record in records))
    table = Table("inputs", title=f"{model}: {LOSSES[loss]}, leave-one-out", title_justify="left")
    for heading in ("targets", "noise floor", *methods):
        table.add_column(heading, justify="right")
    floor = {"is_loss": "noise_floor", "log_mse": "noise_floor_log"}[loss]
    for inputs in dict.fromkeys(record["inputs"] for record in records):
        cell = {r["method"]: r for r in records if r["inputs"] == inputs}
        best = min((r[loss] for r in cell.values() if r[loss] is not None), default=None)
        row: list[Text | str] = [inputs, str(cell[methods[0]]["targets"])]
        row.append(_number(cell[methods[0]][floor]))
        for method in methods:
            value = cell[method][loss] if method in cell else None
            row.append(Text(_number(value), style="bold" if value == best is not None else ""))
        table.add_row(*row)
    table.add_section()
    means = {mean.method: getattr(mean, loss) for mean in averages(records)}
    cells = (_number(means[m][0]) + (f" ± {means[m][1]:.2f}" if means[m][1] else "") for m in means)
    table.add_row("average", "", "", *cells)
    return table


def _beside(records: list[dict[str, Any]]) -> Table:
    """Over all cells: what else there is to know about a method."""
    table = Table("method", title="over all cells", title_justify="left")
    headings = {
        "is_loss_raw": "loss, no fit",
        "zeros": "zeros",
        "intervals": "intervals",
        "coverage": "coverage",
        "forwards": "forwards",
        "backwards": "backwards",
        "macs": "MACs a target",
        "seconds": "s a target",
    }
    for heading in headings.values():
        table.add_column(heading, justify="right")
    for method in dict.fromkeys(record["method"] for record in records):
        own = [record for record in records if record["method"] == method]
        cells = []
        for name in headings:
            known = [record[name] for record in own if record[name] is not None]
            cells.append(f"{sum(known) / len(known):.3g}" if known else "")
        table.add_row(method, *cells)
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two or more runs' folders.")],
    loss: Annotated[str, typer.Option(help="is_loss or log_mse.")] = "is_loss",
    as_json: JsonOption = False,
) -> None:
    """Put runs side by side: each method's loss on each cell, and the difference.

    Example: [bold]longshot compare runs/mini runs/mine[/]
    """
    if len(runs) < 2:
        raise LongshotError("Name two runs, or more.")
    if loss not in LOSSES:
        raise LongshotError(f"The loss is is_loss or log_mse, not {loss!r}.")
    rows = side_by_side([load_run(run) for run in runs], loss)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("model", "inputs", "method", title=LOSSES[loss])
    for run in runs:
        table.add_column(str(run), justify="right")
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


def side_by_side(runs: list[Run], loss: str) -> list[dict[str, Any]]:
    """One record for each (model, inputs, method) of any run; None where a run lacks it."""
    found: dict[tuple[str, str, str], list[float | None]] = {}
    for number, run in enumerate(runs):
        for record in summary(score_run(run)):
            name = (record["model"], record["inputs"], record["method"])
            found.setdefault(name, [None] * len(runs))[number] = record[loss]
    return [
        {
            **dict(zip(("model", "inputs", "method"), name, strict=True)),
            "losses": losses,
            "difference": (
                losses[-1] - losses[0] if losses[0] is not None and losses[-1] is not None else None
            ),
        }
        for name, losses in found.items()
    ]


@app.command()
def witnesses(run: RunArgument) -> None:
    """Print the inputs that produced their targets, up to five an estimate, as JSON lines.

    Example: [bold]longshot witnesses runs/mini > witnesses.jsonl[/]
    """
    for witness in load_run(run).witnesses():
        typer.echo(json.dumps(witness))


@app.command()
def rows(run: RunArgument) -> None:
    """Print every estimate with its truth, as JSON lines; what is not a finite number is null.

    Example: [bold]longshot rows runs/mini | xz > rows.jsonl.xz[/]
    """
    for record in load_run(run).records():
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        typer.echo(json.dumps(finite, ensure_ascii=False))
