"""One SQLite file of ours: made, recognised and checked, written in whole transactions.

What the file system or SQLite refuse reaches the user as one sentence; what was committed before
stays. A file of another program, of another version or with a torn page is refused, not touched.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from longshot.errors import LongshotError, first_line

D = TypeVar("D", bound="Database")


class Database:
    """The tables of `schema` in the file `path`; closed by `with`.

    `noun` is what the file is called in errors, `application` the number that SQLite's header
    holds for it.
    """

    noun: str
    application: int
    version: int
    schema: Mapping[str, str]

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        if not create and not path.is_file():
            raise LongshotError(f"There is no {self.noun} at {path}.")
        with self._guard():
            if create:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._prepare(create)

    def __enter__(self: D) -> D:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()

    def _prepare(self, create: bool) -> None:
        """Make the schema in a new file; in any other, check that it is ours and whole."""
        ask = self._connection.execute
        (tables,) = ask("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables and create:
            with self._transaction():
                for table, columns in self.schema.items():
                    ask(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
                ask(f"PRAGMA application_id = {self.application}")
                ask(f"PRAGMA user_version = {self.version}")
        (application,), (version,) = (
            ask(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        made = dict(ask("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        expected = {
            name: f"CREATE TABLE {name} ({columns})" for name, columns in self.schema.items()
        }
        if application != self.application or (version == self.version and made != expected):
            raise LongshotError(f"{self.path} is a database, but not a {self.noun}.")
        if version != self.version:
            raise LongshotError(
                f"{self.path} is a {self.noun} of version {version}; "
                f"this longshot reads version {self.version}."
            )
        (health,) = ask("PRAGMA quick_check(1)").fetchone()
        if health != "ok":
            raise LongshotError(f"The {self.noun} {self.path} is damaged: {health}.")
        if create:
            ask("PRAGMA journal_mode = WAL")

    def _all(self, query: str, *values: Any) -> list[Any]:
        """The rows that a query finds."""
        with self._guard():
            return self._connection.execute(query, values).fetchall()

    def _one(self, query: str, *values: Any) -> Any:
        """The first row that a query finds, or None."""
        return next(iter(self._all(query, *values)), None)

    def _insert(self, table: str, row: Sequence[Any], otherwise: str = "ABORT") -> None:
        """One row into a table, or what SQLite is to do where its key is taken."""
        marks = ", ".join("?" * len(row))
        self._connection.execute(f"INSERT OR {otherwise} INTO {table} VALUES ({marks})", row)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it or nothing."""
        with self._guard():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Whatever the file system or SQLite refuse, in one sentence."""
        try:
            yield
        except (sqlite3.Error, OSError, OverflowError, zlib.error, ValueError) as error:
            raise LongshotError(
                f"The {self.noun} {self.path} failed: {first_line(error)}. "
                "What was committed before is untouched."
            ) from error
