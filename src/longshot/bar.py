"""A progress bar that appears by itself where somebody watches: a terminal, a notebook.

The library only ever calls a callback with the share of the work that is done. The public verbs
hand it this one where they are given none. Work of less than a second shows nothing, and a bar
leaves nothing behind on a terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Protocol

PATIENCE = 1.0
"""Seconds before a bar appears."""
PACE = 0.1
"""Seconds between two changes of it."""


class Bar(Protocol):
    """Something that is drawn."""

    def draw(self, share: float) -> None: ...
    def close(self) -> None: ...


class TerminalBar:
    """On the terminal that errors go to."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(what, total=1.0)
        self._progress.start()

    def draw(self, share: float) -> None:
        self._progress.update(self._task, completed=share)

    def close(self) -> None:
        self._progress.stop()


class NotebookBar:
    """Under a notebook's cell: an element of HTML that is changed in place."""

    def __init__(self, what: str) -> None:
        shown: Any = import_module("IPython.display")
        self._html, self._what = shown.HTML, what
        self._handle = shown.display(shown.HTML(""), display_id=True)

    def draw(self, share: float) -> None:
        bar = f'<progress value="{share:.3f}" max="1"></progress>'
        self._handle.update(self._html(f"{self._what} {bar} {share:.0%}"))

    def close(self) -> None:
        self._handle.update(self._html(""))


def place() -> Callable[[str], Bar] | None:
    """Where a bar would be seen, if anywhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):
        return NotebookBar
    with suppress(AttributeError, ValueError):  # no stderr at all, or one that was closed
        return TerminalBar if sys.stderr.isatty() else None
    return None


@contextmanager
def watched(
    progress: Callable[[float], None] | None, what: str
) -> Iterator[Callable[[float], None]]:
    """The given callback; or else one that draws a bar, which is gone at the end."""
    make = None if progress is not None else place()
    if make is None:
        yield progress or (lambda share: None)
        return
    bar: Bar | None = None
    due = time.monotonic() + PATIENCE

    def tell(share: float) -> None:
        nonlocal bar, due
        if time.monotonic() >= due:
            bar = bar or make(what)
            bar.draw(min(max(share, 0.0), 1.0))
            due = time.monotonic() + PACE

    try:
        yield tell
    finally:
        if bar is not None:
            bar.close()
