"""The command line's root: one app, and how a user's mistake is printed.

The files of commands import what they need inside their functions: help, completion and a mistyped
option answer before torch would be loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from longshot.errors import LongshotError
from longshot.names import INPUTS, method_names, model_names, preset_names
from longshot.threads import ask_for_threads
from longshot.version import __version__

app = typer.Typer(
    name="longshot",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
console = Console(width=None if sys.stdout.isatty() else 140)  # a file has no width of its own


def completing(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """What an option offers for what was typed so far."""

    def offered(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return offered


some_models = completing(model_names)
some_inputs = completing(lambda: list(INPUTS))
some_methods = completing(method_names)
some_presets = completing(preset_names)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def show_version(wanted: bool) -> bool:
    """The version, before any command."""
    if wanted:
        console.print(f"longshot {__version__}", highlight=False)
        raise typer.Exit
    return wanted


@app.callback()
def root(
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Of torch; by default one for small models, all for wide ones."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="And stop.")
    ] = False,
) -> None:
    """How likely is your language model's unlikeliest output?"""
    ask_for_threads(threads)


@contextmanager
def going_on(kept: str) -> Iterator[None]:
    """Long work that keeps what it has done: an interruption says so, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(f"Interrupted: {kept}; the same command goes on.", soft_wrap=True)
        raise typer.Exit(130) from None


def run() -> None:
    """Run the command line; a `LongshotError` is one line on stderr and exit code 2."""
    try:
        app()
    except LongshotError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {_escape(str(error))}", soft_wrap=True)
        sys.exit(2)


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
