"""Inputs that carry the randomness of a sampled output, so that it is drawn and redrawn with them.

A row is an input, filled up, with one number more for each token that is sampled: the uniform u of
[0, 1) that the token's distribution is inverted at, as the whole number −2 − ⌊u·2^53⌋. It is no
token, so whatever runs inputs passes over it as over NOTHING, and given its row an output is
certain: what is said of inputs and events holds for rows.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.inputs.base import NOTHING, Inputs, log_prob

_UNIT = 2**53


class NoisyInputs:
    """Inputs with uniform numbers behind them."""

    def __init__(self, inputs: Inputs, numbers: int) -> None:
        self.inputs, self.numbers = inputs, numbers
        self.name, self.length = inputs.name, inputs.length
        self.beginning: tuple[int, ...] = tuple(getattr(inputs, "beginning", ()))

    def __repr__(self) -> str:
        return f"NoisyInputs({self.inputs!r}, {self.numbers})"

    @property
    def free_positions(self) -> tuple[int, ...]:
        """From where on something is redrawn: those of the inputs, and the numbers alone."""
        every = tuple(range(self.length))
        return (*getattr(self.inputs, "free_positions", every), self.length)

    @property
    def fingerprint(self) -> str:
        return f"{self.inputs.fingerprint}+{self.numbers}"

    @property
    def macs_beside(self) -> int:
        return int(getattr(self.inputs, "macs_beside", 0))

    def sample(self, n: int, generator: torch.Generator) -> Int64[Tensor, "n row"]:
        """`n` independent inputs, each with its own numbers."""
        tokens = self.inputs.sample(n, generator)
        return torch.cat([tokens, self._numbers(n, generator)], 1)

    def redraw(
        self,
        tokens: Int64[Tensor, "n row"],
        generator: torch.Generator,
        start: int = 0,
        share: float = 1.0,
    ) -> Int64[Tensor, "n row"]:
        """What stands from `start` on, and each number, drawn anew with probability `share`."""
        old = tokens[:, self.length :]
        new = self.inputs.redraw(tokens[:, : self.length], generator, start, share)
        drawn = self._numbers(len(tokens), generator)
        kept = torch.rand(old.shape, generator=generator) >= share
        return torch.cat([new, torch.where(kept, old, drawn)], 1)

    def log_prob(self, tokens: Int[Tensor, "n row"]) -> Float64[Tensor, " n"] | None:
        """Of the input alone: its numbers have a density of 1."""
        return log_prob(self.inputs, tokens[:, : self.length])

    def _numbers(self, n: int, generator: torch.Generator) -> Int64[Tensor, "n number"]:
        return NOTHING - 1 - torch.randint(_UNIT, (n, self.numbers), generator=generator)


def with_noise(inputs: Inputs, numbers: int) -> Inputs:
    """The inputs with so many uniform numbers; themselves where none are needed."""
    return NoisyInputs(inputs, numbers) if numbers else inputs


def noise_of(tokens: Int[Tensor, "n row"], numbers: int) -> Float64[Tensor, "n number"]:
    """The uniform numbers that rows carry."""
    own = tokens[:, tokens.shape[1] - numbers :]
    if tokens.shape[1] < numbers or bool((own >= NOTHING).any()):
        raise LongshotError(
            "A sampled output needs inputs that carry its randomness: with_noise(inputs, …)."
        )
    return (NOTHING - 1 - own).double() / _UNIT
