"""Finished shards in one SQLite file.

Each shard is one transaction: killing the program at any moment loses at most the shards in hand.
A span that overlaps one already there is refused, so nothing is counted twice.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from longshot.database import Database
from longshot.errors import LongshotError
from longshot.truth.tally import Kind, Shard, Span, Stream, Tally

SCHEMA = {
    "cells": "id INTEGER PRIMARY KEY, model TEXT NOT NULL, model_fingerprint TEXT NOT NULL, "
    "inputs TEXT NOT NULL, inputs_fingerprint TEXT NOT NULL, vocab_size INTEGER NOT NULL, "
    "UNIQUE (model, inputs)",
    "shards": "cell INTEGER NOT NULL REFERENCES cells, kind TEXT NOT NULL, seed INTEGER NOT NULL, "
    "half INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, "
    "samples INTEGER NOT NULL, leaves INTEGER NOT NULL, near_ties INTEGER NOT NULL, "
    "sums BLOB NOT NULL, PRIMARY KEY (cell, kind, seed, half, start)",
}


class CellName(NamedTuple):
    """A model and inputs as a store or a table names them."""

    model: str
    model_fingerprint: str
    inputs: str
    inputs_fingerprint: str
    vocab_size: int

    def __str__(self) -> str:
        return f"{self.model} on {self.inputs}"


def same_cell(asked: CellName, found: CellName, where: Path) -> None:
    """Refuse truth that was made for other weights or other frequencies."""
    for kind, ours, theirs in (
        (f"model {asked.model}", asked.model_fingerprint, found.model_fingerprint),
        (f"inputs {asked.inputs}", asked.inputs_fingerprint, found.inputs_fingerprint),
    ):
        if ours != theirs:
            raise LongshotError(
                f"{where} holds truth for a different version of the {kind} "
                f"(fingerprint {theirs}, not {ours}); it cannot be used or continued for this one. "
                "Give the changed one another name, or its truth another file."
            )


class Store(Database):
    """The shards of any number of cells; closed by `with`."""

    noun = "truth store"
    application = 0x4C53_4854  # "LSHT"
    version = 1
    schema = SCHEMA

    def cells(self) -> list[CellName]:
        """Every cell that has a shard, in the order of the first."""
        query = (
            "SELECT model, model_fingerprint, inputs, inputs_fingerprint, vocab_size FROM cells "
            "WHERE id IN (SELECT cell FROM shards) ORDER BY id"
        )
        with self._guard():
            return [CellName(*row) for row in self._connection.execute(query)]

    def spans(self, cell: CellName) -> list[Span]:
        """What of a cell is done."""
        query = (
            "SELECT kind, seed, half, start, stop FROM shards WHERE cell = ? "
            "ORDER BY kind, seed, half, start"
        )
        with self._guard():
            rows = self._connection.execute(query, (self._find(cell),)).fetchall()
        return [Span(Stream(kind, seed, half), *ends) for kind, seed, half, *ends in rows]

    def shards(self, cell: CellName) -> list[Shard]:
        """A cell's shards in the order of their spans, whatever the order they came in."""
        query = (
            "SELECT kind, seed, half, start, stop, samples, leaves, near_ties, sums FROM shards "
            "WHERE cell = ? ORDER BY kind, seed, half, start"
        )
        with self._guard():
            rows = self._connection.execute(query, (self._find(cell),)).fetchall()
            return [
                Shard(
                    Span(Stream(kind, seed, half), start, stop),
                    _unpacked(sums, kind, cell.vocab_size, *numbers),
                )
                for kind, seed, half, start, stop, *numbers, sums in rows
            ]

    def add(self, cell: CellName, shard: Shard) -> None:
        """Commit one shard, or refuse it and change nothing."""
        with self._transaction():
            self._insert(cell, shard)

    def merge(self, other: Store) -> tuple[int, int]:
        """Take over another store's shards, all or none: how many, and how many were here."""
        added, known = 0, 0
        with self._transaction():
            for cell in other.cells():
                here = set(self.spans(cell))
                for shard in other.shards(cell):
                    if shard.span in here:
                        known += 1
                    else:
                        self._insert(cell, shard)
                        added += 1
        return added, known

    def _insert(self, cell: CellName, shard: Shard) -> None:
        number = self._find(cell)
        if number is None:
            query = (
                "INSERT INTO cells (model, model_fingerprint, inputs, inputs_fingerprint, "
                "vocab_size) VALUES (?, ?, ?, ?, ?) RETURNING id"
            )
            (number,) = self._connection.execute(query, cell).fetchone()
        (kind, seed, half), start, stop = shard.span
        overlap = self._connection.execute(
            "SELECT start, stop FROM shards WHERE cell = ? AND kind = ? AND seed = ? AND half = ? "
            "AND start < ? AND stop > ?",
            (number, kind, seed, half, stop, start),
        ).fetchone()
        if overlap:
            raise LongshotError(
                f"{self.path} already holds units {overlap[0]}–{overlap[1]} of {cell}; "
                f"{shard.span} overlap them and would be counted twice."
            )
        tally = shard.tally
        numbers = (start, stop, tally.samples, tally.leaves, tally.near_ties)
        self._connection.execute(
            "INSERT INTO shards VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, kind, seed, half, *numbers, _packed(tally, kind)),
        )

    def _find(self, cell: CellName) -> int | None:
        row = self._connection.execute(
            "SELECT id, model, model_fingerprint, inputs, inputs_fingerprint, vocab_size "
            "FROM cells WHERE model = ? AND inputs = ?",
            (cell.model, cell.inputs),
        ).fetchone()
        if row is None:
            return None
        same_cell(cell, CellName(*row[1:]), self.path)
        return int(row[0])


def _packed(tally: Tally, kind: Kind) -> bytes:
    """The sums of the tokens that were seen, compressed; plain samples need no squares."""
    tokens = tally.total.nonzero()[:, 0]
    parts = [tokens.numpy().astype("<u4"), tally.total[tokens].numpy().astype("<f8")]
    if kind == "conditional":
        parts.append(tally.squares[tokens].numpy().astype("<f8"))
    return zlib.compress(b"".join(part.tobytes() for part in parts))


def _unpacked(
    sums: bytes, kind: Kind, vocab_size: int, samples: int, leaves: int, near_ties: int
) -> Tally:
    raw, rows = zlib.decompress(sums), 2 if kind == "conditional" else 1
    count, rest = divmod(len(raw), 4 + 8 * rows)
    if rest:
        raise ValueError("a shard's sums are cut short")
    tokens = torch.from_numpy(np.frombuffer(raw, "<u4", count).astype(np.int64))
    if count and int(tokens.max()) >= vocab_size:
        raise ValueError("a shard's sums are damaged")
    values = np.frombuffer(raw[4 * count :], "<f8").astype(np.float64).reshape(rows, count)
    dense = torch.zeros(rows, vocab_size, dtype=torch.float64)
    dense[:, tokens] = torch.from_numpy(values)
    return Tally(samples, leaves, near_ties, dense[0], dense[-1])
