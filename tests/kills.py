"""Work in a process of its own that is killed at a statement to its database, not at a moment."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Callable
from typing import Any


def killed(work: Callable[[], object], statement: int) -> bool:
    """Run `work` until its so-manieth statement to SQLite begins, then kill -9 it.

    False if it was done before. The statements of a commit are among them, so that every state
    that a file can be left in is met, on however slow a machine.
    """
    process = multiprocessing.get_context("fork").Process(target=_watched, args=(work, statement))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _watched(work: Callable[[], object], statement: int) -> None:
    seen, connect = itertools.count(1), sqlite3.connect

    def look(_: str) -> None:
        if next(seen) == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    def watching(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(look)
        return connection

    sqlite3.connect = watching  # type: ignore[assignment]
    work()
