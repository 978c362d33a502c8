"""`longshot run` and `longshot tune`: a study, or its first stage."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from longshot.cli.app import (
    app,
    completing,
    console,
    going_on,
    say,
    some_methods,
    some_presets,
)
from longshot.errors import LongshotError
from longshot.names import preset_names

if TYPE_CHECKING:
    from longshot.engines import Engine
    from longshot.study import Spec, Stage, StudyStatus

StudyArgument = Annotated[
    Path | None, typer.Argument(help="The study's .toml file, unless there is a --preset.")
]
PresetOption = Annotated[
    str | None,
    typer.Option("--preset", autocompletion=some_presets, help=f"{', '.join(preset_names())}."),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="The run's folder; runs/NAME by default.")
]
OnlyOption = Annotated[
    str, typer.Option("--only", help='A part of it, such as "model=mini-2l method=mhis".')
]
MethodsOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        autocompletion=some_methods,
        help="These methods alone, separated by commas; one that the study lacks is added.",
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine", autocompletion=completing(lambda: ["local", "ray"]), help="local or ray."
    ),
]
WorkersOption = Annotated[int, typer.Option("--workers", help="Processes, or Ray tasks.")]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="A running Ray cluster: auto, or HOST:PORT.")
]

TruthOption = Annotated[
    Path | None,
    typer.Option("--truth", help="A table or store of truth, instead of what ships and is made."),
]


@app.command()
def run(
    study: StudyArgument = None,
    preset_name: PresetOption = None,
    out: OutOption = None,
    only: OnlyOption = "",
    methods: MethodsOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
    address: AddressOption = None,
    truth: TruthOption = None,
) -> None:
    """Run a study; stop it at any moment and run it again to go on.

    Example: [bold]longshot run --preset smoke[/]
    """
    from longshot.engines import make_engine

    spec = _spec(study, preset_name)
    if methods is not None:
        spec = spec.with_methods(methods.split(","))
        only = f"{only} method={methods}"
    folder = out or Path("runs") / spec.name
    run_with_display(spec, folder, make_engine(engine, workers, address), only=only, truth=truth)
    say(f"Now: longshot score {folder}")


@app.command()
def tune(
    study: StudyArgument = None,
    preset_name: PresetOption = None,
    out: OutOption = None,
    only: OnlyOption = "",
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
    address: AddressOption = None,
    truth: TruthOption = None,
) -> None:
    """Find a study's temperatures, which longshot run then takes up; show what they were chosen by.

    Example: [bold]longshot tune --preset smoke --only "inputs=camel"[/]
    """
    from longshot.engines import make_engine
    from longshot.study import load_run

    spec = _spec(study, preset_name)
    folder = out or Path("runs") / spec.name
    chosen = make_engine(engine, workers, address)
    run_with_display(spec, folder, chosen, ("tune",), only, truth)
    table = Table("model", "inputs", "method", "temperature", "loss at each temperature")
    for (model, inputs, method), tuned in load_run(folder).tuned.items():
        curve = "  ".join(f"{t:g}: {loss:.2f}" for t, loss in tuned.curve)
        table.add_row(model, inputs, method, f"{tuned.temperature:g}", curve or "no targets")
    console.print(table)


def _spec(study: Path | None, name: str | None) -> Spec:
    from longshot.study import preset, read_spec

    if (study is None) == (name is None):
        raise LongshotError("Name a study's file, or a preset: longshot run --preset smoke.")
    return preset(name) if name is not None else read_spec(study or Path())


def run_with_display(
    spec: Spec,
    folder: Path,
    engine: Engine,
    stages: tuple[Stage, ...] = ("tune", "run"),
    only: str = "",
    truth: Path | None = None,
) -> None:
    """Run with a display; exit with 1 if something failed, with 130 if it was interrupted."""
    from longshot.study import run_study

    with going_on(f"what is done is in {folder}"), _StudyDisplay() as display:
        done = run_study(
            spec, folder, engine, only=only, stages=stages, truth=truth, on_progress=display
        )
    total = sum(tally.total for tally in done.tallies.values())
    say(f"{total - done.failed:,} of {total:,} estimates are in {folder}")
    if done.failed:
        say(
            f"{done.failed} failed and will be tried again when it runs again; the first: "
            f"{done.errors[0]}"
        )
        raise typer.Exit(1)


class _StudyDisplay:
    """A live table on a terminal; elsewhere a line a minute, for a log."""

    def __init__(self) -> None:
        self._live = Live(console=console, transient=True) if console.is_terminal else None
        self._printed = 0.0

    def __enter__(self) -> _StudyDisplay:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, progress: StudyStatus) -> None:
        if self._live:
            self._live.update(_table(progress))
        elif time.monotonic() - self._printed > 60:
            self._printed = time.monotonic()
            parts = [
                f"{'tuning ' if stage == 'tune' else ''}{label} {tally.done}/{tally.total}"
                for (stage, label), tally in progress.tallies.items()
            ]
            line = f"{', '.join(parts)}; {progress.failed} failed; {_left(progress)}"
            say(line)


def _left(progress: StudyStatus) -> str:
    seconds = progress.seconds_left
    return "time left unknown yet" if seconds is None else f"{seconds / 60:,.0f} min left"


def _table(progress: StudyStatus) -> Table:
    table = Table(title=f"{progress.elapsed / 60:,.0f} min, {_left(progress)}")
    table.add_column("stage")
    table.add_column("method")
    for heading in ("done", "of", "failed", "s a target"):
        table.add_column(heading, justify="right")
    for (stage, label), tally in progress.tallies.items():
        pace = f"{tally.seconds / tally.ran:.2f}" if tally.ran else ""
        failed = Text(str(tally.failed), style="red" if tally.failed else "")
        table.add_row(stage, label, f"{tally.done:,}", f"{tally.total:,}", failed, pace)
    return table
