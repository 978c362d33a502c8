"""The driver: streams shards through an engine into a store until a goal is met.

All cells grow together: the next shard is always of the cell that is furthest from its goal, and of
its shorter half. What is in the store is never computed again, whatever the size of its shards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from longshot.errors import LongshotError
from longshot.estimate import Cell
from longshot.truth.result import Truth
from longshot.truth.sampling import sampler
from longshot.truth.shards import SHARD_LEAVES, ShardRunner, units_per_shard
from longshot.truth.store import Store
from longshot.truth.tally import Kind, Shard, Span, Stream, Tally
from longshot.work import Engine


@dataclass(frozen=True)
class Goal:
    """When to stop; whichever comes first of what is given.

    `leaves` and `relative_error` are for each cell (the median over the tokens seen in the range),
    `minutes` is for all together.
    """

    leaves: int | None = None
    minutes: float | None = None
    relative_error: float | None = None
    low: float = 1e-7
    high: float = 1e-4

    def __post_init__(self) -> None:
        given = [self.leaves, self.minutes, self.relative_error]
        if all(value is None for value in given):
            raise LongshotError(
                "Say when to stop: a number of leaves, minutes, or a relative error."
            )
        if any(value is not None and not 0 < value < math.inf for value in given):
            raise LongshotError("Leaves, minutes and relative errors must be positive.")
        if not 0 <= self.low < self.high:
            raise LongshotError(f"No probability lies between {self.low} and {self.high}.")


class CellInProgress:
    """One cell's truth of one kind while it is being made."""

    def __init__(self, cell: Cell, stored: Iterable[Shard], kind: Kind, seed: int, size: int):
        self.key = cell.key
        self.kind, self.seed, self.size = kind, seed, size
        self.leaves_per_unit = sampler(cell, kind).leaves_per_unit
        self.spans: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
        self.leaves = [0, 0]  # of each half, those in hand included
        self.tallies = [Tally.empty(cell.model.vocab_size)] * 2
        for shard in stored:
            if shard.span.stream.kind == kind:
                half = shard.span.stream.half
                self.leaves[half] += shard.tally.leaves
                self.tallies[half] += shard.tally
                if shard.span.stream.seed == seed:
                    self.spans[half].append((shard.span.start, shard.span.stop))

    @property
    def truth(self) -> Truth:
        return Truth(self.key, {self.kind: self.tallies[0] + self.tallies[1]})

    def next_span(self) -> Span:
        """The first gap of the shorter half, at most `size` units of it; now in hand."""
        half = 0 if self.leaves[0] <= self.leaves[1] else 1
        start, limit = 0, math.inf
        for begin, end in sorted(self.spans[half]):
            if start < begin:
                limit = begin
                break
            start = max(start, end)
        stop = int(min(start + self.size, limit))
        self.spans[half].append((start, stop))
        self.leaves[half] += (stop - start) * self.leaves_per_unit
        return Span(Stream(self.kind, self.seed, half), start, stop)

    def finish(self, shard: Shard) -> None:
        self.tallies[shard.span.stream.half] += shard.tally

    def share(self, goal: Goal) -> float:
        """How much of its goal the cell has reached or in hand, 1 when it needs no more."""
        shares = [0.0]
        if goal.leaves is not None:
            half = goal.leaves / 2
            shares.append(sum(min(leaves, half) for leaves in self.leaves) / goal.leaves)
        if goal.relative_error is not None:
            error = median_error(self.truth, goal.low, goal.high)
            if error is not None:  # errors fall with the root of the work
                shares.append((goal.relative_error / max(error, goal.relative_error)) ** 2)
        return min(max(shares), 1.0)

    def order(self, goal: Goal) -> tuple[float, int]:
        """Small for the cell that is to grow next."""
        return self.share(goal), sum(self.leaves)


def median_error(truth: Truth, low: float, high: float) -> float | None:
    """The median relative error of the tokens seen in a range; None if there is none."""
    errors = truth.relative_error[truth.between(low, high)]
    return float(errors.median()) if len(errors) else None


@dataclass
class TruthStatus:
    """How far all cells together are; handed to the callback after each shard."""

    goal: Goal
    cells: list[CellInProgress]
    started: float = field(default_factory=time.monotonic)
    leaves: int = 0
    """Of this run."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def share(self) -> float:
        """Of the whole work, from 0 to 1."""
        share = sum(cell.share(self.goal) for cell in self.cells) / len(self.cells)
        if self.goal.minutes is not None:
            share = max(share, self.seconds / 60 / self.goal.minutes)
        return min(share, 1.0)

    @property
    def rate(self) -> float:
        """Leaves a second in this run."""
        return self.leaves / max(self.seconds, 1e-9)

    @property
    def in_range(self) -> int:
        """Tokens seen in the range of interest, over all cells."""
        goal = self.goal
        return sum(int(c.truth.between(goal.low, goal.high).sum()) for c in self.cells)


def make_truth(
    cells: Sequence[Cell],
    store: Store,
    engine: Engine,
    goal: Goal,
    *,
    kind: Kind = "conditional",
    seed: int = 0,
    shard_leaves: int | None = None,
    on_progress: Callable[[TruthStatus], None] = lambda status: None,
) -> TruthStatus:
    """Fill the store until every cell has reached the goal or the time is up."""
    if shard_leaves is None and goal.leaves is not None:  # a small goal needs no large shard
        shard_leaves = min(SHARD_LEAVES[kind], math.ceil(goal.leaves / 2))
    growing = [
        CellInProgress(
            cell, store.each_shard(cell.key), kind, seed, units_per_shard(cell, kind, shard_leaves)
        )
        for cell in cells
    ]
    status = TruthStatus(goal, growing)

    def tasks() -> Iterator[tuple[int, Span]]:
        while status.share < 1:
            number = min(range(len(cells)), key=lambda i: growing[i].order(goal))
            yield number, growing[number].next_span()

    on_progress(status)
    for number, shard in engine.map(ShardRunner(tuple(cells)), tasks()):
        store.add(growing[number].key, shard)
        growing[number].finish(shard)
        status.leaves += shard.tally.leaves
        on_progress(status)
    return status


def parse_range(text: str) -> tuple[float, float]:
    """A range of probabilities, "1e-7:1e-4"."""
    try:
        low, high = (float(end) for end in text.split(":"))
    except ValueError:
        raise LongshotError(f'{text!r} is no range; write for example "1e-7:1e-4".') from None
    return low, high
