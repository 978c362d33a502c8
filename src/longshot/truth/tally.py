"""Sums that merge, and the names of the shards they come in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

Kind = Literal["brute", "conditional"]
KINDS: tuple[Kind, ...] = ("brute", "conditional")


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


def joined(shards: Iterable[Shard]) -> list[Shard]:
    """The same sums in as few shards as possible: neighbours become one."""
    pieces: list[Shard] = []
    for shard in sorted(shards, key=lambda shard: shard.span):
        last = pieces[-1] if pieces else None
        if last and (last.span.stream, last.span.stop) == (shard.span.stream, shard.span.start):
            span = last.span._replace(stop=shard.span.stop)
            pieces[-1] = Shard(span, last.tally + shard.tally)
        else:
            pieces.append(shard)
    return pieces
