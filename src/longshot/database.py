"""One SQLite file of ours: made, recognised and checked, written in whole transactions.

What the file system or SQLite refuse reaches the user as one sentence; what was committed before
stays. A file of another program, of another version or with a torn page is refused, not touched.

Each table has a seal: the digests of its rows, each added bit by bit (exclusive or), which a
trigger keeps in the transaction that changes the row. What is read is what was written, all of it,
or it is refused. A file of an older version lacks tables that came later, and one of version 1 the
seals; it gets them when it is next opened to be written to.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from longshot.errors import LongshotError, first_line

D = TypeVar("D", bound="Database")
SEALS = "name TEXT PRIMARY KEY, seal BLOB NOT NULL"
UNSEALED = 1
NOTHING = bytes(16)


class Database:
    """The tables of `schema` in the file `path`; closed by `with`.

    `noun` is what the file is called in errors, `application` the number that SQLite's header
    holds for it.
    """

    noun: str
    application: int
    version: int
    schema: Mapping[str, str]
    since: ClassVar[Mapping[str, int]] = {}
    """The version that a table came with, if it was not the first."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        if not create and not path.is_file():
            raise LongshotError(f"There is no {self.noun} at {path}.")
        with self._guard():
            if create:
                path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise LongshotError(f"{path} is no regular file.")
            self._connection = _connected(path)
            try:
                self._prepare(create)
            except BaseException:
                self._connection.close()
                raise

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
                self._make_seals()
        (application,), (version,) = (
            ask(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        made = dict(ask("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        self.tables = [t for t in self.schema if self.since.get(t, 1) <= version]
        sealed = {} if version == UNSEALED else {"seals": SEALS}
        columns_of = {**{table: self.schema[table] for table in self.tables}, **sealed}
        expected = {name: f"CREATE TABLE {name} ({of})" for name, of in columns_of.items()}
        others = ask("SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')")
        if others.fetchone() != (0,):
            made = {}  # a view or a trigger of somebody else's
        known = UNSEALED <= version <= self.version
        if application != self.application or (known and made != expected):
            raise LongshotError(f"{self.path} is a database, but not a {self.noun}.")
        if not known:
            raise LongshotError(
                f"{self.path} is a {self.noun} of version {version}; "
                f"this longshot reads version {self.version}."
            )
        (health,) = ask("PRAGMA integrity_check(1)").fetchone()
        if health == "ok" and version != UNSEALED:
            seals = dict(ask("SELECT name, seal FROM seals").fetchall())
            if seals != {table: self._sealed(table) for table in self.tables}:
                health = "its rows are not those that were written, by their checksums"
        if health != "ok":
            raise LongshotError(f"The {self.noun} {self.path} is damaged: {health}.")
        if create:
            ask("PRAGMA journal_mode = WAL")
            if version < self.version:
                self._bring_up_to_date(version)
                version = self.version
        if version != UNSEALED:
            self._keep_seals()

    def _bring_up_to_date(self, version: int) -> None:
        """Make what a file of an older version lacks."""
        with self._transaction():
            for table in (t for t in self.schema if t not in self.tables):
                self._connection.execute(f"CREATE TABLE {table} ({self.schema[table]})")
                if version != UNSEALED:
                    self._insert("seals", (table, NOTHING))
            if version == UNSEALED:
                self._make_seals()
            self._connection.execute(f"PRAGMA user_version = {self.version}")
        self.tables = list(self.schema)

    def _make_seals(self) -> None:
        """The seals of the tables as they are."""
        self._connection.execute(f"CREATE TABLE seals ({SEALS})")
        for table in self.schema:
            self._insert("seals", (table, self._sealed(table)))
        self._connection.execute(f"PRAGMA user_version = {self.version}")

    def _sealed(self, table: str) -> bytes:
        """The seal that a table ought to have."""
        seal = NOTHING
        for row in self._connection.execute(f"SELECT * FROM {table}"):
            seal = _added(seal, *row)
        return seal

    def _keep_seals(self) -> None:
        """Let every change of a row change its table's seal; the triggers are this connection's."""
        self._connection.create_function("added", -1, _added, deterministic=True)
        ask = self._connection.execute
        ask("PRAGMA recursive_triggers = ON")  # a row that is replaced is deleted first
        for table in self.tables:
            columns = [column[1] for column in ask(f"PRAGMA table_info({table})")]
            old, new = (", ".join(f"{row}.{name}" for name in columns) for row in ("OLD", "NEW"))
            for event, seal in (
                ("INSERT", f"added(seal, {new})"),
                ("DELETE", f"added(seal, {old})"),
                ("UPDATE", f"added(added(seal, {old}), {new})"),
            ):
                ask(
                    f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN "
                    f"UPDATE seals SET seal = {seal} WHERE name = '{table}'; END"
                )

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
        except (
            sqlite3.Error, OSError, OverflowError, zlib.error, ValueError, TypeError, KeyError,
            RuntimeError, MemoryError, FloatingPointError,
        ) as error:  # fmt: skip
            raise LongshotError(
                f"The {self.noun} {self.path} failed: {first_line(error)}. "
                "What was committed before is untouched."
            ) from error


def _connected(path: Path) -> sqlite3.Connection:
    """A connection that also reads where nothing can be written, which SQLite's journal needs."""
    if not path.exists() or os.access(path.parent, os.W_OK):
        return sqlite3.connect(path, timeout=60, isolation_level=None)
    journal = path.with_name(f"{path.name}-wal")
    if journal.exists() and journal.stat().st_size:
        raise LongshotError(
            f"{path} was left in the middle of its work; copy its folder to a place that can be "
            "written to."
        )
    where = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(where, uri=True, isolation_level=None)


def _added(seal: bytes, *row: Any) -> bytes:
    """A seal with a row added to it, or taken from it again."""
    digest = hashlib.blake2b(digest_size=len(NOTHING))
    for value in row:
        raw = value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogatepass")
        digest.update(f"{type(value).__name__} {len(raw)} ".encode())
        digest.update(raw)
    mixed = int.from_bytes(seal) ^ int.from_bytes(digest.digest())
    return mixed.to_bytes(len(NOTHING))
