"""Sums that merge, and the names of the shards they come in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from longshot.errors import visible
from longshot.estimate import CellKey

Kind = Literal["brute", "conditional"]
KINDS: tuple[Kind, ...] = ("brute", "conditional")
LARGEST_VOCABULARY = 2**20


class Stream(NamedTuple):
    """An endless sequence of units; the two halves of a truth are streams of their own."""

    kind: Kind
    seed: int
    half: int


class Span(NamedTuple):
    """Units `start` to `stop` of a stream: a shard's name."""

    stream: Stream
    start: int
    stop: int

    def __str__(self) -> str:
        kind, seed, half = self.stream
        return f"{kind} units {self.start}–{self.stop} of seed {seed}, half {'AB'[half]}"


@dataclass(frozen=True)
class Tally:
    """Sums over independent samples: inputs of `brute`, prefixes of `conditional`.

    `total` holds for each token Σ m and `squares` Σ m², m being the probability, given a sample,
    that the token wins: 0 or 1 for a whole input.
    """

    samples: int
    leaves: int
    near_ties: int
    total: Float64[Tensor, " vocab"]
    squares: Float64[Tensor, " vocab"]

    @classmethod
    def empty(cls, vocab_size: int) -> Tally:
        zero = torch.zeros(vocab_size, dtype=torch.float64)
        return cls(0, 0, 0, zero, zero)

    @classmethod
    def from_sparse(
        cls, vocab_size: int, tokens: Tensor, sums: Sequence[Tensor], *numbers: int
    ) -> Tally:
        """The inverse of `sparse`; `numbers` are samples, leaves and near-ties."""
        rows = torch.zeros(len(sums), vocab_size, dtype=torch.float64)
        rows[:, tokens] = torch.stack(tuple(sums)).double()
        samples, leaves, near_ties = numbers
        return cls(samples, leaves, near_ties, rows[0], rows[-1])

    def sparse(self, kind: Kind) -> tuple[Tensor, list[Tensor]]:
        """The tokens that were seen and their sums, the squares only where they say more."""
        tokens = self.total.nonzero()[:, 0]
        sums = [self.total] if kind == "brute" else [self.total, self.squares]
        return tokens, [each[tokens] for each in sums]

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.samples + other.samples,
            self.leaves + other.leaves,
            self.near_ties + other.near_ties,
            self.total + other.total,
            self.squares + other.squares,
        )


@dataclass(frozen=True)
class Shard:
    """A span and its sums."""

    span: Span
    tally: Tally

    @classmethod
    def checked(
        cls, cell: CellKey, stated: Sequence[Any], tokens: Tensor, sums: Sequence[Tensor]
    ) -> Shard:
        """A shard that a file states, or a ValueError where no samples could have given it.

        `stated` are the kind, seed, half, start, stop, samples, leaves and near-ties.
        """
        kind, *numbers = stated
        if kind not in KINDS or any(type(n) is not int or abs(n) >= 2**63 for n in numbers):
            raise ValueError("a shard's numbers are none")
        seed, half, start, stop, samples, leaves, near_ties = numbers
        if half not in (0, 1) or not 0 <= start < stop or not 0 <= near_ties <= leaves:
            raise ValueError("a shard's numbers are out of range")
        if any(s.dtype != torch.float64 or s.shape != tokens.shape for s in sums):
            raise ValueError("a shard's sums are of the wrong shape")
        seen = (tokens >= 0) & (tokens < cell.vocab_size)
        if tokens.ndim != 1 or not seen.all() or len(tokens.unique()) < len(tokens):
            raise ValueError("a shard's tokens are not those of a vocabulary")
        total, squares = sums[0], sums[-1]  # of plain samples they are the same
        slack = 1 + 1e-6
        if not (torch.isfinite(total) & (total > 0) & (squares > 0)).all():
            raise ValueError("a shard's sums are not positive numbers")
        if (squares > slack * total).any() or (total.square() > slack * samples * squares).any():
            raise ValueError("a shard's squares do not go with its sums")
        if float(total.sum()) > slack * samples or not samples <= leaves:
            raise ValueError("a shard's probabilities add up to more than one")
        tally = Tally.from_sparse(cell.vocab_size, tokens, sums, samples, leaves, near_ties)
        return cls(Span(Stream(kind, seed, half), start, stop), tally)


def checked_cell(*stated: Any) -> CellKey:
    """The name of a cell that a file states, or a ValueError where it can be none's."""
    *names, vocab_size = stated
    if any(type(n) is not str or not 0 < len(n) < 1000 or n != visible(n) for n in names):
        raise ValueError("a cell's names do not print")
    if type(vocab_size) is not int or not 0 < vocab_size <= LARGEST_VOCABULARY:
        raise ValueError(f"{vocab_size} is the size of no vocabulary")
    return CellKey(*stated)


def joined(shards: Iterable[Shard]) -> Iterator[Shard]:
    """The same sums in as few shards as possible: neighbours, which come in order, become one."""
    last = None
    for shard in shards:
        if last and (last.span.stream, last.span.stop) == (shard.span.stream, shard.span.start):
            last = Shard(last.span._replace(stop=shard.span.stop), last.tally + shard.tally)
        else:
            if last:
                yield last
            last = shard
    if last:
        yield last
