"""A run is a database: each finished (model, inputs, method, target) is one committed row.

    cells         which models and inputs, with their fingerprints
    targets       of each cell and stage: the token and its truth, on the half that judges
    temperatures  what was chosen for a method on a cell, with the curve it was chosen from
    rows          an estimate, or the error that took its place
    environments  package versions and git revision, which rows refer to

Rows of the stage "tune" carry the temperature they tried, those of "run" a 0.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from longshot.database import Database
from longshot.errors import LongshotError, first_line, visible
from longshot.estimate import Estimate
from longshot.files import unpacked

Stage = Literal["tune", "run"]

SCHEMA = {
    "facts": "name TEXT PRIMARY KEY, value TEXT NOT NULL",
    "cells": "model TEXT NOT NULL, inputs TEXT NOT NULL, model_fingerprint TEXT NOT NULL, "
    "inputs_fingerprint TEXT NOT NULL, PRIMARY KEY (model, inputs)",
    "targets": "stage TEXT NOT NULL, model TEXT NOT NULL, inputs TEXT NOT NULL, "
    "token INTEGER NOT NULL, text TEXT NOT NULL, probability REAL NOT NULL, "
    "standard_error REAL NOT NULL, PRIMARY KEY (stage, model, inputs, token)",
    "chosen": "stage TEXT NOT NULL, model TEXT NOT NULL, inputs TEXT NOT NULL, "
    "qualified INTEGER NOT NULL, truth TEXT NOT NULL, PRIMARY KEY (stage, model, inputs)",
    "temperatures": "model TEXT NOT NULL, inputs TEXT NOT NULL, method TEXT NOT NULL, "
    "temperature REAL NOT NULL, curve TEXT NOT NULL, PRIMARY KEY (model, inputs, method)",
    "environments": "id INTEGER PRIMARY KEY, versions TEXT NOT NULL UNIQUE",
    "rows": "stage TEXT NOT NULL, model TEXT NOT NULL, inputs TEXT NOT NULL, "
    "method TEXT NOT NULL, temperature REAL NOT NULL, token INTEGER NOT NULL, "
    "estimate BLOB, error TEXT, environment INTEGER NOT NULL REFERENCES environments, "
    "finished TEXT NOT NULL, PRIMARY KEY (stage, model, inputs, method, temperature, token)",
}


class Key(NamedTuple):
    """What one row is about; `method` is the label that the study gives it."""

    stage: Stage
    model: str
    inputs: str
    method: str
    temperature: float
    token: int


KEY = ", ".join(Key._fields)


@dataclass(frozen=True)
class Row:
    """One estimate, or the error that took its place."""

    key: Key
    estimate: Estimate | None = None
    error: str | None = None


@dataclass(frozen=True)
class Target:
    """A token and its truth on the half that judges: infinite error if it never saw the token."""

    token: int
    text: str
    probability: float
    standard_error: float


class Chosen(NamedTuple):
    """The targets of a cell, from how many they were chosen, and the truth that they are from."""

    targets: tuple[Target, ...]
    qualified: int
    truth: str


class Tuned(NamedTuple):
    """A chosen temperature, and the loss at each that was tried."""

    temperature: float
    curve: tuple[tuple[float, float], ...]


class RunStore(Database):
    """The rows of one study; closed by `with`."""

    noun = "study's run"
    application = 0x4C53_5255  # "LSRU"
    version = 2
    schema = SCHEMA

    def fact(self, name: str) -> str | None:
        """A named text, such as the study's own."""
        row = self._one("SELECT value FROM facts WHERE name = ?", name)
        return None if row is None else str(row[0])

    def set_fact(self, name: str, value: str) -> None:
        with self._transaction():
            self._insert("facts", (name, value), "REPLACE")

    def claim(self, model: str, inputs: str, fingerprints: tuple[str, str]) -> None:
        """Note whose rows these are, or refuse a cell whose weights or frequencies changed."""
        found = self._one("SELECT * FROM cells WHERE model = ? AND inputs = ?", model, inputs)
        if found is None:
            with self._transaction():
                self._insert("cells", (model, inputs, *fingerprints))
        elif found[2:] != fingerprints:
            raise LongshotError(
                f"{self.path} holds rows of another version of {model} on {inputs}; "
                "finish it with the one it was begun with, or begin another run."
            )

    def chosen(self, stage: Stage, model: str, inputs: str) -> Chosen | None:
        """The targets of a cell, in the order of their ids, once they were chosen."""
        found = self._one(
            "SELECT qualified, truth FROM chosen WHERE stage = ? AND model = ? AND inputs = ?",
            stage, model, inputs,
        )  # fmt: skip
        if found is None:
            return None
        rows = self._all(
            "SELECT token, text, probability, standard_error FROM targets "
            "WHERE stage = ? AND model = ? AND inputs = ? ORDER BY token",
            stage, model, inputs,
        )  # fmt: skip
        with self._guard():
            return Chosen(tuple(made_target(*row) for row in rows), *found)

    def all_chosen(self) -> dict[tuple[Stage, str, str], Chosen]:
        """The targets of every stage and cell."""
        cells = self._all("SELECT stage, model, inputs FROM chosen WHERE stage IN ('tune', 'run')")
        found = {(stage, *names): self.chosen(stage, *names) for stage, *names in cells}
        return {cell: chosen for cell, chosen in found.items() if chosen is not None}

    def choose(self, stage: Stage, model: str, inputs: str, chosen: Chosen) -> None:
        cell = (stage, model, inputs)
        with self._transaction():
            self._insert("chosen", (*cell, *chosen[1:]))
            for target in chosen.targets:
                self._insert("targets", (*cell, *astuple(target)))

    def tuned(self) -> dict[tuple[str, str, str], Tuned]:
        """Every chosen temperature, by model, inputs and method."""
        rows = self._all("SELECT * FROM temperatures ORDER BY model, inputs, method")
        with self._guard():
            return {
                (model, inputs, method): Tuned(
                    float(t), tuple((float(x), float(y)) for x, y in json.loads(curve))
                )
                for model, inputs, method, t, curve in rows
            }

    def set_tuned(self, model: str, inputs: str, method: str, tuned: Tuned) -> None:
        row = (model, inputs, method, tuned.temperature, json.dumps(tuned.curve))
        with self._transaction():
            self._insert("temperatures", row, "REPLACE")

    def add(self, rows: Iterable[Row], versions: dict[str, str]) -> None:
        """Commit a batch's rows together; an estimate that is there already stays."""
        text, now = json.dumps(versions, sort_keys=True), datetime.now(UTC).isoformat()
        with self._transaction():
            ask = self._connection.execute
            ask("INSERT OR IGNORE INTO environments (versions) VALUES (?)", (text,))
            (number,) = ask("SELECT id FROM environments WHERE versions = ?", (text,)).fetchone()
            for row in rows:
                packed = None if row.estimate is None else _packed(row.estimate)
                ask(
                    f"DELETE FROM rows WHERE ({KEY}) = (?, ?, ?, ?, ?, ?) AND estimate IS NULL",
                    row.key,
                )
                self._insert("rows", (*row.key, packed, row.error, number, now), "IGNORE")

    def done(self) -> set[Key]:
        """The keys of all rows that hold an estimate."""
        rows = self._all(f"SELECT {KEY} FROM rows WHERE estimate IS NOT NULL")
        return {Key(*row) for row in rows}

    def last_commit(self) -> dict[str, str]:
        """When the last row was committed, and by which version; nothing before the first."""
        found = self._one(
            "SELECT finished, versions FROM rows JOIN environments ON environment = id "
            "ORDER BY finished DESC LIMIT 1"
        )
        if found is None:
            return {}
        with self._guard():
            made = {**json.loads(found[1])}.get("longshot", "")
        return {"finished": visible(str(found[0])), "made_by": visible(str(made))}

    def rows(self, stage: Stage = "run") -> list[Row]:
        """All rows of a stage in the order of their keys, whatever the order they came in."""
        query = f"SELECT {KEY}, estimate, error FROM rows WHERE stage = ? ORDER BY {KEY}"
        with self._guard():
            return [
                Row(Key(*key), None if packed is None else _unpacked(packed), error)
                for *key, packed, error in self._connection.execute(query, (stage,))
            ]


def _packed(estimate: Estimate) -> bytes:
    return zlib.compress(json.dumps(estimate.to_dict(), separators=(",", ":")).encode(), 9)


def _unpacked(packed: bytes) -> Estimate:
    try:
        return checked(Estimate.from_dict(json.loads(unpacked(packed, LARGEST_ROW))))
    except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"a row is damaged ({first_line(error)})") from error


def checked(estimate: Estimate) -> Estimate:
    """An estimate that was read from a file, if all of it is of its type and within its range."""
    if not all(_is(getattr(estimate, name), kind) for name, kind in _KINDS.items()):
        raise ValueError("of the wrong type")
    ends = estimate.interval or (0.0, 0.0)
    witnesses = [(w.gap, w.log_prob or 0.0, len(w.text), *w.tokens) for w in estimate.witnesses]
    spent = [*vars(estimate.cost).values(), *vars(estimate.shared_cost).values()]
    numbers = [*ends, *spent, *estimate.statistics.values(), *(n for w in witnesses for n in w)]
    if not all(_is(number, float) for number in numbers) or len(ends) != 2:
        raise ValueError("of no numbers")
    if not estimate.log_probability < 700 or not all(0 <= n < math.inf for n in (*ends, *spent)):
        raise ValueError("out of range")
    return estimate


LARGEST_ROW = 2**24
_KINDS: dict[str, Any] = {
    "method": str, "event": str, "seed": int, "budget": int, "samples": int, "near_ties": int,
    "log_probability": float, "standard_error": float | None, "no_interval": str | None,
    "hits": int | None, "effective_sample_size": float | None, "pareto_k": float | None,
    "acceptance_rate": float | None, "warnings": tuple, "settings": dict,
}  # fmt: skip


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of a type; a whole number is a number too, if a double can hold it."""
    if type(value) is int:
        return (isinstance(1, kind) or isinstance(1.0, kind)) and abs(value) < 2**63
    return isinstance(value, kind)


def made_target(token: Any, text: Any, probability: Any, standard_error: Any) -> Target:
    """A target that was read from a file, if its truth is a probability."""
    numbers = _is(token, int) and _is(probability, float) and _is(standard_error, float)
    if not numbers or not 0 <= probability <= 1 or not standard_error >= 0 or token < 0:
        raise ValueError("a target's truth is no probability")
    return Target(token, visible(str(text)), float(probability), float(standard_error))
