"""`longshot report`: the tables, figures and page of a stored run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from longshot.cli.app import app, completing, console, say
from longshot.names import FORMATS


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a file of its rows.")],
    out: Annotated[
        Path | None, typer.Option(help="The report's folder; report beside the run by default.")
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            autocompletion=completing(lambda: list(FORMATS)),
            help=f"One of {', '.join(FORMATS)}; several times; all of them by default.",
        ),
    ] = None,
) -> None:
    """Write tables, figures and one HTML page about a stored run; no model is loaded.

    Example: [bold]longshot report runs/demo --format html[/]
    """
    from longshot.report import write_report
    from longshot.study import load_run

    stored = load_run(run)
    folder = out or stored.path.parent / "report"
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("reading", total=1.0)

        def tell(share: float, what: str) -> None:
            progress.update(bar, completed=share, description=what)

        written = write_report(stored, folder, formats or FORMATS, tell)
    pages = [path for path in written if path.suffix == ".html"]
    shown = f"{len(written)} files in {folder}" + (f"; open {pages[0]}" if pages else "")
    say(shown)
