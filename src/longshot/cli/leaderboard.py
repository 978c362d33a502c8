"""`longshot leaderboard`: whose method loses least, from the rows of several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longshot.cli.app import app, say


@app.command()
def leaderboard(
    entries: Annotated[Path, typer.Argument(help="A TOML file of entries.")],
    out: Annotated[Path | None, typer.Option(help="Write the page there, as Markdown.")] = None,
) -> None:
    """Rank methods by their loss on the test half of the distributions; no model is loaded.

    Example: [bold]longshot leaderboard docs/leaderboard.toml[/]
    """
    from longshot.files import try_place, write_whole
    from longshot.report.leaderboard import leaderboard

    if out is not None:
        try_place(out)
    page = leaderboard(entries)
    if out is None:
        typer.echo(page)
    else:
        write_whole(out, page)
        say(f"The leaderboard is in {out}")
