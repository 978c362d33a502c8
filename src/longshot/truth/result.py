"""The truth of one cell: every token's probability with its standard error, in two halves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.numerics import derived_generator
from longshot.truth.store import CellName
from longshot.truth.tally import Kind, Shard, Tally

RELATIVE_ERROR = 0.25  # the largest at which a token may be chosen as a target, unless told


@dataclass(frozen=True)
class Truth:
    """Probabilities of all tokens from one set of samples."""

    cell: CellName
    kind: Kind
    tally: Tally
    halves: tuple[Truth, ...] = ()
    """The two independent halves that it is the sum of; a half has none."""

    @classmethod
    def from_shards(cls, cell: CellName, shards: Sequence[Shard]) -> Truth:
        """All shards of one kind together; of the conditional kind, if there are any."""
        kinds = {shard.span.stream.kind for shard in shards}
        kind: Kind = "conditional" if "conditional" in kinds else "brute"
        halves = []
        for half in (0, 1):
            tally = Tally.empty(cell.vocab_size)
            for shard in shards:
                if shard.span.stream.kind == kind and shard.span.stream.half == half:
                    tally += shard.tally
            halves.append(cls(cell, kind, tally))
        return cls(cell, kind, halves[0].tally + halves[1].tally, tuple(halves))

    @property
    def samples(self) -> int:
        """Independent samples: inputs of `brute`, prefixes of `conditional`."""
        return self.tally.samples

    @property
    def leaves(self) -> int:
        """Inputs whose argmax was taken."""
        return self.tally.leaves

    @cached_property
    def probability(self) -> Float64[Tensor, " vocab"]:
        """The share of the samples; 0 for a token that was never seen."""
        return self.tally.total / max(self.samples, 1)

    @cached_property
    def standard_error(self) -> Float64[Tensor, " vocab"]:
        """From the spread between samples; infinite for a token that was never seen."""
        n = self.samples
        if n < 2:
            return torch.full_like(self.probability, torch.inf)
        variance = (self.tally.squares / n - self.probability.square()).clamp(min=0) / (n - 1)
        return variance.sqrt().masked_fill(self.probability == 0, torch.inf)

    @cached_property
    def relative_error(self) -> Float64[Tensor, " vocab"]:
        """Standard error over probability; infinite for a token that was never seen."""
        error = self.standard_error / self.probability
        return error.masked_fill(self.probability == 0, torch.inf)

    def between(self, low: float, high: float) -> Bool[Tensor, " vocab"]:
        """Which tokens were seen with a probability in the range."""
        p = self.probability
        return (p > 0) & (p >= low) & (p <= high)


class NoiseFloor(NamedTuple):
    """What the truth's own error costs a perfect estimate, on average."""

    itakura_saito: float
    squared_log: float


def noise_floor(truth: Truth, tokens: Sequence[int] | Tensor) -> NoiseFloor:
    """mean((se/p)²)/2 of Itakura-Saito loss and mean((se/p)²) of squared log error."""
    square = float(truth.relative_error[torch.as_tensor(tokens)].square().mean())
    return NoiseFloor(square / 2, square)


@dataclass(frozen=True)
class Targets:
    """Tokens chosen on one half of a truth, and the half that judges them."""

    tokens: tuple[int, ...]
    qualified: int
    """How many tokens there were to choose from."""
    judge: Truth

    @property
    def noise_floor(self) -> NoiseFloor:
        return noise_floor(self.judge, self.tokens)


def pick_targets(
    truth: Truth,
    low: float,
    high: float,
    count: int,
    seed: int = 0,
    relative_error: float = RELATIVE_ERROR,
) -> Targets:
    """At most `count` tokens with a probability in the range, known to within `relative_error`.

    They are chosen on half A and judged on half B: choosing and judging on the same noise would
    flatter the lucky. All that qualify are taken if there are no more than `count`.
    """
    if len(truth.halves) != 2 or not all(half.samples for half in truth.halves):
        raise LongshotError(
            f"The truth of {truth.cell} has no two halves to choose and to judge targets on."
        )
    if not 0 <= low <= high:
        raise LongshotError(f"No probability lies between {low} and {high}.")
    chooser, judge = truth.halves
    fits = chooser.between(low, high) & (chooser.relative_error <= relative_error)
    tokens: Int64[Tensor, " n"] = fits.nonzero()[:, 0]
    generator = derived_generator(seed, *truth.cell, "targets")
    chosen = tokens[torch.randperm(len(tokens), generator=generator)[:count]]
    return Targets(tuple(sorted(chosen.tolist())), len(tokens), judge)
