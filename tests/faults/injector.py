"""File operations that fail on demand: each is counted, and one of them is made to go wrong.

Inside, every open, write, close, rename, unlink, mkdir, fsync and stat of a file under `folder`,
and every statement to SQLite, is an injection point. Points come in the same order every time, so
that a fault is named by its number. A fault is an error of the operating system, half a write, or
the death of the process.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

FAULTS = ("ENOSPC", "EIO", "EROFS", "EINTR", "short write", "kill")
SQLITE = {
    "ENOSPC": "database or disk is full", "EIO": "disk I/O error", "short write": "disk I/O error",
    "EROFS": "attempt to write a readonly database", "EINTR": "interrupted",
}  # fmt: skip
CALLS = ("replace", "rename", "unlink", "mkdir", "rmdir", "stat")


class Injector:
    """Counts the points; at number `at` it does what `fault` says."""

    def __init__(self, folder: Path, at: int | None = None, fault: str = "EIO") -> None:
        self.folder, self.at, self.fault = str(folder), at, fault
        self.points: list[str] = []

    def point(self, name: str, half: Callable[[], object] | None = None) -> None:
        """An operation is about to be done; `half` does half of it."""
        self.points.append(name)
        if len(self.points) != self.at:
            return
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("sqlite"):
            raise sqlite3.OperationalError(SQLITE[self.fault])
        if half is not None and self.fault == "short write":
            half()
        number = getattr(errno, self.fault, errno.ENOSPC)
        raise OSError(number, os.strerror(number))

    def watches(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.folder)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        injector, connect, opened = self, sqlite3.connect, io.open

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
                injector.point(f"sqlite {statement.split()[0]}")
                return super().execute(statement, *values)

        def watched_open(path: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
            if not injector.watches(path):
                return opened(path, mode, *rest, **named)
            injector.point(f"open {mode}")
            file = opened(path, mode, *rest, **named)
            return _File(file, injector) if set(mode) & set("wxa+") else file

        with ExitStack() as stack:
            for module in (builtins, io):
                stack.enter_context(mock.patch.object(module, "open", watched_open))
            for name in CALLS:
                stack.enter_context(mock.patch.object(os, name, self._watched(name)))
            stack.enter_context(mock.patch.object(os, "fsync", self._fsync(os.fsync)))
            stack.enter_context(
                mock.patch.object(
                    sqlite3, "connect", lambda *a, **k: connect(*a, factory=Connection, **k)
                )
            )
            yield

    def _watched(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(path: Any, *rest: Any, **named: Any) -> Any:
            if self.watches(path):
                self.point(name)
            return real(path, *rest, **named)

        return call

    def _fsync(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(number: int) -> None:
            self.point("fsync")
            real(number)

        return call


class _File:
    """An open file whose writes and whose end are points."""

    def __init__(self, file: Any, injector: Injector) -> None:
        self._file, self._injector = file, injector

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, content: Any) -> int:
        self._injector.point("write", lambda: self._half(content))
        return int(self._file.write(content))

    def _half(self, content: Any) -> None:
        self._file.write(content[: len(content) // 2])
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._injector.point("close")
        finally:
            self._file.close()
