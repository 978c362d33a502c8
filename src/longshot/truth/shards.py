"""Shards: what one worker does at a time.

A shard is a range of units of one stream. Each unit has a generator of its own and fixed batch
shapes, so a shard's sums depend on its name, the model and the inputs, and on nothing else: neither
on the engine that ran it nor on what ran beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from longshot.estimate import Cell
from longshot.truth.sampling import sampler
from longshot.truth.tally import Kind, Shard, Span, Tally

# Some seconds of one core each: what a kill can lose.
SHARD_LEAVES: dict[Kind, int] = {"brute": 2**14, "conditional": 2**19}


def units_per_shard(cell: Cell, kind: Kind, leaves: int | None = None) -> int:
    """How many units make a shard of at least that many leaves."""
    return math.ceil((leaves or SHARD_LEAVES[kind]) / sampler(cell, kind).leaves_per_unit)


def run_span(cell: Cell, span: Span) -> Shard:
    """The sums over all units of a span."""
    (kind, seed, half), start, stop = span
    drawing, tally = sampler(cell, kind), Tally.empty(cell.model.vocab_size)
    for unit in range(start, stop):
        tally += drawing.unit(cell.generator(seed, "truth", kind, half, unit))
    return Shard(span, tally)


@dataclass(frozen=True)
class ShardRunner:
    """What an engine maps over tasks; it travels to a worker once, with the models in it."""

    cells: Sequence[Cell]

    def __call__(self, task: tuple[int, Span]) -> tuple[int, Shard]:
        """Run a span of the cell of that number."""
        number, span = task
        return number, run_span(self.cells[number], span)
