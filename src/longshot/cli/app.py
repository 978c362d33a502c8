"""The command line's root: one app, and how a user's mistake is printed."""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from longshot.errors import LongshotError

app = typer.Typer(
    name="longshot",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
console = Console()


@app.callback()  # without one, an app of a single command would lose that command's name
def root() -> None:
    """How likely is your language model's unlikeliest output?"""


def run() -> None:
    """Run the command line; a `LongshotError` is one line on stderr and exit code 2."""
    try:
        app()
    except LongshotError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {_escape(str(error))}", soft_wrap=True)
        sys.exit(2)


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
