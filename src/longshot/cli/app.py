"""The command line's root: one app, and how a user's mistake is printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated

import torch
import typer
from rich.console import Console

from longshot.errors import LongshotError

app = typer.Typer(
    name="longshot",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
console = Console(width=None if sys.stdout.isatty() else 140)  # a file has no width of its own


def show_version(wanted: bool) -> bool:
    """The installed version, before any command."""
    if wanted:
        console.print(f"longshot {version('longshot')}", highlight=False)
        raise typer.Exit
    return wanted


@app.callback()
def root(
    threads: Annotated[
        int, typer.Option(min=1, help="Of torch; more than one helps wide models only.")
    ] = 1,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="And stop.")
    ] = False,
) -> None:
    """How likely is your language model's unlikeliest output?"""
    torch.set_num_threads(threads)


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
