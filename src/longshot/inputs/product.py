"""Inputs whose tokens are independent: one token distribution for each position."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.inputs.base import Group, Listed, PositionSummary, mixed_radix
from longshot.inputs.tokens import TokenDistribution
from longshot.shown import Shown

# Uniform numbers, indices and tokens of one block together stay in the processor's cache.
_ROWS_PER_BLOCK = 2**12


class ProductInputs(Shown):
    """A distribution over token sequences of one length, independent from position to position."""

    def __init__(self, name: str, positions: Sequence[TokenDistribution]) -> None:
        if not positions:
            raise LongshotError(f"The inputs {name!r} have no position.")
        if any(distribution.log_probs.ndim != 1 for distribution in positions):
            raise LongshotError(f"The inputs {name!r} take one distribution for each position.")
        self.name = name
        self.positions = tuple(positions)

    def __repr__(self) -> str:
        return f"ProductInputs({self.name!r}, {self.length} positions, {self.fingerprint})"

    @property
    def length(self) -> int:
        return len(self.positions)

    @cached_property
    def free_positions(self) -> tuple[int, ...]:
        return tuple(i for i, d in enumerate(self.positions) if not d.is_fixed)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The free positions by the distribution object they share, in order of first use."""
        shared: dict[TokenDistribution, list[int]] = {}
        for i in self.free_positions:
            shared.setdefault(self.positions[i], []).append(i)
        return tuple(Group(distribution, tuple(where)) for distribution, where in shared.items())

    def fixed_token(self, position: int) -> int | None:
        """The only token a position can hold; None where it is free."""
        distribution = self.positions[position]
        return int(distribution.support[0]) if distribution.is_fixed else None

    def sample(self, n: int, generator: torch.Generator) -> Int64[Tensor, "n length"]:
        """`n` independent inputs."""
        tokens = torch.stack([d.support[0] for d in self.positions]).repeat(n, 1)
        for start in range(0, n, _ROWS_PER_BLOCK):
            block = tokens[start : start + _ROWS_PER_BLOCK]
            for distribution, positions in self.groups:
                drawn = distribution.sample(len(block) * len(positions), generator)
                values = distribution.support.index_select(0, drawn).view(len(block), -1)
                block[:, _columns(positions)] = values
        return tokens

    def redraw(
        self,
        tokens: Int64[Tensor, "n length"],
        generator: torch.Generator,
        start: int = 0,
        share: float = 1.0,
    ) -> Int64[Tensor, "n length"]:
        """Each position from `start` on drawn anew with probability `share`."""
        drawn = self.sample(len(tokens), generator)
        kept = torch.rand(drawn.shape, generator=generator) >= share
        kept[:, :start] = True
        return torch.where(kept, tokens, drawn)

    def log_prob(self, tokens: Int[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        """The exact log probability of each input; −inf outside the support."""
        fixed = [i for i in range(self.length) if self.positions[i].is_fixed]
        total = torch.zeros(len(tokens), dtype=torch.float64)
        for distribution, positions in (*self.groups, *((self.positions[i], (i,)) for i in fixed)):
            index = distribution.index_of(tokens[:, _columns(positions)])
            terms = distribution.log_probs[index].masked_fill_(index < 0, -math.inf)
            total += terms.sum(dim=1)
        return total

    @property
    def count(self) -> int:
        return math.prod(distribution.size for distribution in self.positions)

    def listed(self, start: int, stop: int) -> Listed:
        """Some of all inputs, the last position the first to change."""
        index = mixed_radix(torch.arange(start, stop), [d.size for d in self.positions])
        columns = [
            (d.support[i], d.log_probs[i]) for d, i in zip(self.positions, index.T, strict=True)
        ]
        tokens, log_probs = (torch.stack(both, 1) for both in zip(*columns, strict=True))
        return Listed(tokens, log_probs.sum(1))

    @cached_property
    def fingerprint(self) -> str:
        """A short digest of supports and probabilities: inputs that agree in it are the same.

        Log probabilities enter in single precision, because the last bits of a double differ
        between types of processor.
        """
        digests: dict[TokenDistribution, bytes] = {}
        for distribution in self.positions:
            if distribution not in digests:
                support = distribution.support.numpy().astype("<i8").tobytes()
                log_probs = distribution.log_probs.numpy().astype("<f4").tobytes()
                digests[distribution] = hashlib.sha256(support + log_probs).digest()
        return hashlib.sha256(b"".join(digests[d] for d in self.positions)).hexdigest()[:16]

    def describe(self, likeliest: int = 5) -> tuple[PositionSummary, ...]:
        """For each position its support, entropy and most probable tokens."""
        return tuple(
            PositionSummary(
                position=i,
                size=distribution.size,
                entropy_bits=float(distribution.entropy) / math.log(2),
                fixed=self.fixed_token(i),
                likeliest=_likeliest(distribution, likeliest),
            )
            for i, distribution in enumerate(self.positions)
        )


def _likeliest(distribution: TokenDistribution, count: int) -> tuple[tuple[int, float], ...]:
    best = distribution.probabilities.sort(descending=True, stable=True).indices[:count]
    pairs = zip(distribution.support[best], distribution.probabilities[best], strict=True)
    return tuple((int(token), float(probability)) for token, probability in pairs)


def _columns(positions: tuple[int, ...]) -> slice | list[int]:
    """Consecutive positions as a slice, which copies several times faster than a list."""
    if positions[-1] - positions[0] == len(positions) - 1:
        return slice(positions[0], positions[-1] + 1)
    return list(positions)
