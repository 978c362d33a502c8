"""The command line's root: one app, and how a user's mistake is printed.

The files of commands import what they need inside their functions: help, completion and a mistyped
option answer before torch would be loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from longshot.errors import LongshotError, unknown_name, visible
from longshot.names import INPUTS, method_names, model_names, preset_names
from longshot.threads import ask_for_threads
from longshot.version import __version__

app = typer.Typer(
    name="longshot",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, max=2**63 - 1, help="Another seed makes other samples.")
]


class PlainConsole(Console):
    """A console that reads no markup and lets nothing through to the terminal but text and style.

    Most of what it prints has names in it that are not ours. A name's line ends are its caller's
    to show, by `visible`.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        width = None if stream.isatty() else 140  # a file has no width of its own
        super().__init__(stderr=stderr, width=width, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                lines = segment.text.split("\n")
                yield Segment("\n".join(map(visible, lines)), segment.style)


console = PlainConsole()


def say(sentence: str) -> None:
    """One line, however long, whatever names are in it."""
    console.print(Text(visible(sentence)), soft_wrap=True)


def completing(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """What an option offers for what was typed so far."""

    def offered(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return offered


some_models = completing(model_names)
some_inputs = completing(lambda: list(INPUTS))
some_methods = completing(method_names)
some_presets = completing(preset_names)

BudgetOption = Annotated[
    str, typer.Option("--budget", help="Model calls, at most: 4096, 2**12, 4k, 1e6 …")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def show_version(wanted: bool) -> bool:
    """The version, before any command."""
    if wanted:
        say(f"longshot {__version__}")
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
        say(f"Interrupted: {kept}; the same command goes on.")
        raise typer.Exit(130) from None


def refuse_unknown(arguments: Sequence[str]) -> None:
    """Refuse a mistyped command at once; typer would load half of pydantic first."""
    named = arguments[0] if arguments else ""
    commands = [c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands]
    known = [*commands, *(group.name for group in app.registered_groups if group.name)]
    if named and named[0] != "-" and named not in known:
        raise unknown_name("command", named, known)


def run() -> None:
    """Run the command line; a `LongshotError` is one line on stderr and exit code 2."""
    try:
        refuse_unknown(sys.argv[1:])
        app()
    except (LongshotError, OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):  # whoever read what is printed has gone
            sys.exit(1)
        line = Text.assemble(("error:", "bold red"), f" {visible(str(error))}")
        PlainConsole(stderr=True).print(line, soft_wrap=True)
        sys.exit(2)
