"""Texts with weights from a user's file: one a line, or a column of a table.

    names.txt               one a line; what follows a tab is its weight
    rows.jsonl#prompt       the column `prompt` of a table: .jsonl, .csv or .parquet
    hf-dataset:REPOSITORY:CONFIGURATION#prompt      a dataset of the hub, if it can be reached

The same text several times has the sum of its weights.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from longshot.errors import LongshotError, first_line, needs, unknown_name
from longshot.files import TEXT, read_text

TABLES = (".jsonl", ".csv", ".parquet")
HUB = "hf-dataset:"


def is_rows(name: str) -> bool:
    """Whether a name means a file of texts."""
    file = name.partition("#")[0]
    return file.startswith(HUB) or file.endswith((".txt", *TABLES))


def read_rows(
    name: str, weights: str | None = None, folder: Path | None = None
) -> dict[str, float]:
    """The texts that a name means, each with its weight; a path begins at `folder`."""
    file, _, column = name.partition("#")
    path = (folder or Path()) / Path(file).expanduser()
    if not file.startswith((HUB,)) and not file.endswith(TABLES):
        if column or weights:
            raise LongshotError(f"{file} has no columns: a table is {', '.join(TABLES)}.")
        pairs = _lines(path)
    else:
        if not column:
            raise LongshotError(f"Which column of {file}? Name it: {file}#COLUMN.")
        rows = _hub(file) if file.startswith(HUB) else read_table(path)
        pairs = _cells(rows, file, column, weights)
    found: dict[str, float] = {}
    for text, weight in pairs:
        found[text] = found.get(text, 0.0) + _number(weight, file)
    if not found:
        raise LongshotError(f"{file} is empty: there is no text in it.")
    return found


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    for line in read_text("list of choices", path, TEXT).splitlines():
        text, tab, weight = line.rpartition("\t")
        if line.strip():
            yield (text, weight) if tab else (line, 1)


def read_table(path: Path) -> Iterable[Mapping[str, Any]]:
    """The rows of a table by the names of its columns."""
    if path.suffix == ".parquet":
        return _parquet(path)
    text = read_text("table", path, TEXT)
    if path.suffix == ".csv":
        return csv.DictReader(io.StringIO(text, newline=""))
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise LongshotError(f"{path} has a line that is no JSON: {first_line(error)}.") from error
    if wrong := [row for row in rows if not isinstance(row, dict)]:
        raise LongshotError(f"{path} has a line that is no JSON object: {str(wrong[0])[:40]!r}.")
    return rows


def _parquet(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise needs(f"Reading {path}", "pyarrow", "parquet") from None
    try:
        rows: list[Mapping[str, Any]] = parquet.read_table(path).to_pylist()
    except Exception as error:  # its errors have no common base
        raise LongshotError(f"The table {path} cannot be read: {first_line(error)}.") from error
    return rows


def _hub(name: str) -> Iterable[Mapping[str, Any]]:
    repository, _, configuration = name.removeprefix(HUB).partition(":")
    try:
        import datasets
    except ImportError:
        raise needs(f"Reading {repository}", "datasets", "paper") from None
    try:
        found: Iterable[Mapping[str, Any]] = datasets.load_dataset(
            repository, configuration or None, split="train"
        )
    except Exception as error:  # the package's errors have no common base
        raise LongshotError(
            f"The dataset {repository} cannot be read: {first_line(error)}."
        ) from error
    return found


def _cells(
    rows: Iterable[Mapping[str, Any]], file: str, column: str, weights: str | None
) -> Iterator[tuple[str, Any]]:
    for row in rows:
        for name in (column, weights):
            if name is not None and name not in row:
                raise LongshotError(f"{file}: {unknown_name('column', name, map(str, row))}")
        if not isinstance(row[column], str):
            raise LongshotError(f"{file}: the column {column!r} has {row[column]!r}, no text.")
        yield row[column], 1 if weights is None else row[weights]


def _number(value: Any, file: str) -> float:
    """A weight; those that are read as text are written as numbers."""
    try:
        weight = float(value)
    except (TypeError, ValueError):
        weight = -1.0
    if not 0 < weight <= 1e300 or isinstance(value, bool):
        raise LongshotError(f"{file} has the weight {value!r}; a weight is a positive number.")
    return weight
