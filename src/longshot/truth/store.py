"""Finished shards, and pieces of certificates, in one SQLite file.

Each is one transaction: killing the program at any moment loses at most what is in hand.
A span that overlaps one already there is refused, so nothing is counted twice.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from longshot.database import Database
from longshot.errors import LongshotError
from longshot.estimate import CellKey
from longshot.files import unpacked
from longshot.truth.certificate import CertificatePiece, PieceKey
from longshot.truth.result import Truth
from longshot.truth.tally import Kind, Shard, Span, Stream, Tally, checked_cell

SCHEMA = {
    "cells": "id INTEGER PRIMARY KEY, model TEXT NOT NULL, model_fingerprint TEXT NOT NULL, "
    "inputs TEXT NOT NULL, inputs_fingerprint TEXT NOT NULL, vocab_size INTEGER NOT NULL, "
    "UNIQUE (model, inputs)",
    "shards": "cell INTEGER NOT NULL REFERENCES cells, kind TEXT NOT NULL, seed INTEGER NOT NULL, "
    "half INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, "
    "samples INTEGER NOT NULL, leaves INTEGER NOT NULL, near_ties INTEGER NOT NULL, "
    "sums BLOB NOT NULL, PRIMARY KEY (cell, kind, seed, half, start)",
    "pieces": "cell INTEGER NOT NULL REFERENCES cells, estimator TEXT NOT NULL, "
    "half INTEGER NOT NULL, token INTEGER NOT NULL, seed INTEGER NOT NULL, part INTEGER NOT NULL, "
    "log_probability REAL, relative_error REAL, calls INTEGER NOT NULL, macs INTEGER NOT NULL, "
    "seconds REAL NOT NULL, PRIMARY KEY (cell, estimator, half, token, seed, part)",
}


CELL = ", ".join(CellKey._fields)
SPAN = "kind, seed, half, start, stop"
PIECE = ", ".join((*PieceKey._fields, *CertificatePiece._fields[1:]))


def same_cell(asked: CellKey, found: CellKey, where: Path) -> None:
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
    version = 3
    schema = SCHEMA
    since: ClassVar[Mapping[str, int]] = {"pieces": 3}

    def cells(self) -> list[CellKey]:
        """Every cell that has something, in the order of the first."""
        query = f"SELECT {CELL} FROM cells ORDER BY id"
        with self._guard():
            return [checked_cell(*row) for row in self._all(query)]

    def spans(self, cell: CellKey) -> list[Span]:
        """What of a cell is done."""
        query = f"SELECT {SPAN} FROM shards WHERE cell = ? ORDER BY {SPAN}"
        rows = self._all(query, self._find(cell))
        return [Span(Stream(kind, seed, half), *ends) for kind, seed, half, *ends in rows]

    def shards(self, cell: CellKey) -> list[Shard]:
        """All of a cell's shards at once."""
        return list(self.each_shard(cell))

    def each_shard(self, cell: CellKey) -> Iterator[Shard]:
        """A cell's shards in the order of their spans, whatever the order they came in."""
        query = (
            f"SELECT {SPAN}, samples, leaves, near_ties, sums FROM shards WHERE cell = ? "
            f"ORDER BY {SPAN}"
        )
        for *stated, sums in self._all(query, self._find(cell)):
            with self._guard():
                shard = _shard(cell, stated, sums)
            yield shard

    def pieces(self, cell: CellKey) -> list[CertificatePiece]:
        """All pieces of a cell's certificates, in the order of their keys."""
        if "pieces" not in self.tables:
            return []
        query = f"SELECT {PIECE} FROM pieces WHERE cell = ? ORDER BY {PIECE}"
        with self._guard():
            rows = self._all(query, self._find(cell))
            return [CertificatePiece.checked(cell.vocab_size, row) for row in rows]

    def truth(self, cell: CellKey) -> Truth:
        """All that is known of a cell."""
        return Truth.from_shards(cell, self.each_shard(cell), self.pieces(cell))

    def add(self, cell: CellKey, shard: Shard) -> None:
        """Commit one shard, or refuse it and change nothing."""
        with self._transaction():
            self._add(cell, shard)

    def add_piece(self, cell: CellKey, piece: CertificatePiece) -> None:
        """Commit one piece of a certificate."""
        with self._transaction():
            self._add_piece(cell, piece)

    def merge(self, other: Store) -> tuple[int, int]:
        """Take over all of another store or nothing: how many rows, and how many were here."""
        added, known = 0, 0
        with self._transaction():
            for cell in other.cells():
                spans, keys = set(self.spans(cell)), {piece.key for piece in self.pieces(cell)}
                for shard in other.each_shard(cell):
                    known += shard.span in spans
                    if shard.span not in spans:
                        self._add(cell, shard)
                        added += 1
                for piece in other.pieces(cell):
                    known += piece.key in keys
                    if piece.key not in keys:
                        self._add_piece(cell, piece)
                        added += 1
        return added, known

    def _add_piece(self, cell: CellKey, piece: CertificatePiece) -> None:
        self._insert("pieces", (self._claimed(cell), *piece.stated))

    def _claimed(self, cell: CellKey) -> int:
        """The number of a cell, which is noted if it is new."""
        if self._find(cell) is None:
            self._insert("cells", (None, *cell))
        found = self._find(cell)
        assert found is not None
        return found

    def _add(self, cell: CellKey, shard: Shard) -> None:
        (kind, seed, half), start, stop = shard.span
        stream = (self._claimed(cell), kind, seed, half)
        overlap = self._one(
            "SELECT start, stop FROM shards WHERE (cell, kind, seed, half) = (?, ?, ?, ?) "
            "AND start < ? AND stop > ?",
            *(*stream, stop, start),
        )
        if overlap:
            raise LongshotError(
                f"{self.path} already holds units {overlap[0]}–{overlap[1]} of {cell}; "
                f"{shard.span} overlap them and would be counted twice."
            )
        tally = shard.tally
        numbers = (start, stop, tally.samples, tally.leaves, tally.near_ties)
        self._insert("shards", (*stream, *numbers, _packed(tally, kind)))

    def _find(self, cell: CellKey) -> int | None:
        query = f"SELECT id, {CELL} FROM cells WHERE model = ? AND inputs = ?"
        row = self._one(query, cell.model, cell.inputs)
        if row is None:
            return None
        same_cell(cell, CellKey(*row[1:]), self.path)
        return int(row[0])


def _packed(tally: Tally, kind: Kind) -> bytes:
    """The sums of the tokens that were seen, compressed."""
    tokens, sums = tally.sparse(kind)
    parts = [tokens.numpy().astype("<u4"), *(each.numpy().astype("<f8") for each in sums)]
    return zlib.compress(b"".join(part.tobytes() for part in parts))


def _shard(cell: CellKey, stated: list[Any], packed: bytes) -> Shard:
    rows = 1 if stated[0] == "brute" else 2
    entry = 4 + 8 * rows
    raw = unpacked(packed, cell.vocab_size * entry)
    count, rest = divmod(len(raw), entry)
    if rest:
        raise ValueError("a shard's sums are cut short")
    tokens = torch.from_numpy(np.frombuffer(raw, "<u4", count).astype(np.int64))
    sums = np.frombuffer(raw[4 * count :], "<f8").astype(np.float64).reshape(rows, count)
    return Shard.checked(cell, stated, tokens, list(torch.from_numpy(sums)))
