"""TOML files whose mistakes are refused with a key and its line, which the parser does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from longshot.errors import LongshotError

_LEXEME = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # multi-line strings first: their lines are no keys
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}=\n]"
    r"|[^\"'\#\[\]{}=\n]+"
    r"|.",
    re.DOTALL,
)

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class TomlFile:
    """A file that was read; `where` names it in errors."""

    source: str
    where: str
    parsed: dict[str, Any]

    @classmethod
    def parse(cls, source: str, where: str) -> TomlFile:
        """A file from its text, or the parser's complaint, which has its line."""
        source = source.replace("\r\n", "\n")
        try:
            return cls(source, where, tomllib.loads(source))
        except (ValueError, RecursionError) as error:  # ValueError: also numbers out of range
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise LongshotError(f"{where} is not valid TOML: {reason}.") from error

    def refuse(self, path: KeyPath, complaint: str) -> NoReturn:
        """Raise a complaint about a key, with its line."""
        stop = "" if complaint.endswith(("?", ".")) else "."
        line = f", line {line_of(self.source, path)}" if self.source else ""
        raise LongshotError(f"{self.where}{line}, {key_name(path)}: {complaint}{stop}")

    @contextmanager
    def errors_at(self, *path: str) -> Iterator[None]:
        """Give a mistake that shows only when something is loaded its key and line."""
        try:
            yield
        except LongshotError as error:
            self.refuse(path, str(error))


def key_lines(source: str) -> dict[KeyPath, int]:
    """The line of every table and every key outside inline tables, in valid TOML.

    A table without a header of its own stands where its first part does.
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    statement, in_value, depth, line = "", False, 0, 1
    for match in _LEXEME.finditer(source):
        lexeme = match[0]
        if lexeme == "\n" and depth == 0:
            if statement.lstrip().startswith("["):
                table = _path(statement)
                _note(lines, table, line)
            statement, in_value = "", False
        elif lexeme == "=" and depth == 0 and not in_value:
            _note(lines, table + _path(f"{statement} = 0"), line)
            statement, in_value = "", True
        elif not in_value and not lexeme.startswith("#"):
            statement += lexeme
        depth += (lexeme in "[{") - (lexeme in "]}")
        line += lexeme.count("\n")
    return lines


def line_of(source: str, path: KeyPath) -> int:
    """The line of a key, or of the nearest thing around it that has one."""
    lines = key_lines(source + "\n")
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def key_name(path: KeyPath) -> str:
    """A key as one would write it in the file."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else repr(part) for part in path)


def _note(lines: dict[KeyPath, int], path: KeyPath, line: int) -> None:
    for end in range(1, len(path) + 1):
        lines.setdefault(path[:end], line)


def _path(statement: str) -> KeyPath:
    """The dotted key of a header or an assignment, quotes and blanks taken off."""
    try:
        found: object = tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(found, dict) and found:
        key, found = next(iter(found.items()))
        path.append(key)
    return tuple(path)
