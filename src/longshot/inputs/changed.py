"""Inputs under a changed law: rare kinds of input come up more often, with weights that are known.

    p̃(x) = b(x)·g(x),     b = Π_i b_i,   b_k = r,   b_i = p_i at the other positions,
    g(x) = 1 − β + β·Σ_i ω_i·f_i(x_i)/p_i(x_i),     f_i ∝ p_i^¼,   ω_i ∝ 1/(1 + k − i).

The last free token, at position k, has a law r of its own. With probability β one of the earlier
positions, mostly a late one, is drawn from flattened probabilities. So p̃ is a law that can be
sampled, and p/p̃ = p_k/(r·g) is known, and bounded because r keeps a share of p_k.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longshot.inputs.base import Inputs, Product
from longshot.inputs.product import ProductInputs
from longshot.inputs.tokens import TokenDistribution

FLATTENED = 0.2  # β
POWER = 0.25  # of p_i in f_i


@runtime_checkable
class Law(Protocol):
    """A law p̃ = b·g of inputs: sampled, redrawn by steps that keep b, and weighted by p/p̃."""

    free_positions: tuple[int, ...]
    log_largest_weight: float

    def sample(self, n: int, generator: torch.Generator) -> Int64[Tensor, "n length"]:
        """`n` independent inputs of the law p̃."""

    def redraw(
        self,
        tokens: Int64[Tensor, "n length"],
        generator: torch.Generator,
        start: int = 0,
        share: float = 1.0,
    ) -> Int64[Tensor, "n length"]:
        """A step as in `Inputs.redraw` that leaves b as it is."""

    def log_factor(self, tokens: Int64[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        """log g of each input."""

    def log_weight(self, tokens: Int64[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        """log of p/p̃ of each input."""

    def learned(self, tokens: Int64[Tensor, "n length"], log_mass: Float64[Tensor, " n"]) -> Law:
        """The law after some inputs that hit were found, with the logarithms of their masses."""


class UnchangedInputs:
    """Any inputs under their own law: b = p, and g and all weights are 1."""

    log_largest_weight = 0.0

    def __init__(self, inputs: Inputs, free_positions: tuple[int, ...]) -> None:
        self.inputs, self.free_positions = inputs, free_positions
        self.sample, self.redraw = inputs.sample, inputs.redraw

    def log_factor(self, tokens: Int64[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        return torch.zeros(len(tokens), dtype=torch.float64)

    def log_weight(self, tokens: Int64[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        return torch.zeros(len(tokens), dtype=torch.float64)

    def learned(
        self, tokens: Int64[Tensor, "n length"], log_mass: Float64[Tensor, " n"]
    ) -> UnchangedInputs:
        return self


class ChangedInputs:
    """Product inputs whose last free token has another law, some earlier ones flattened."""

    def __init__(
        self, inputs: Product, last: TokenDistribution, first: TokenDistribution | None = None
    ) -> None:
        self.inputs, self.last, self.first = inputs, last, last if first is None else first
        self.free_positions = inputs.free_positions
        (*earlier, k), positions = inputs.free_positions, list(inputs.positions)
        self.earlier, self.k, self.positions = earlier, k, positions[:]
        self.log_ratio = positions[k].log_probs - last.log_probs
        positions[k] = last
        base = ProductInputs(inputs.name, positions)
        self._sample, self.redraw = base.sample, base.redraw
        self.flat = {
            p: TokenDistribution(p.support, (POWER * p.log_probs).log_softmax(0))
            for p in {inputs.positions[i] for i in earlier}
        }
        near = torch.tensor([1 / (1 + k - i) for i in earlier], dtype=torch.float64)
        self.choice = near / near.sum()
        self.alike = {p: [j for j, i in enumerate(earlier) if positions[i] is p] for p in self.flat}
        self.log_largest_weight = float(self.log_ratio.max())
        if earlier:
            self.log_largest_weight -= math.log(1 - FLATTENED)

    def sample(self, n: int, generator: torch.Generator) -> Int64[Tensor, "n length"]:
        tokens = self._sample(n, generator)
        if not self.earlier:
            return tokens
        flattened = torch.rand(n, generator=generator) < FLATTENED
        which = torch.multinomial(self.choice, n, replacement=True, generator=generator)
        for j, i in enumerate(self.earlier):
            rows = (flattened & (which == j)).nonzero()[:, 0]
            p = self.positions[i]
            tokens[rows, i] = p.support[self.flat[p].sample(len(rows), generator)]
        return tokens

    def log_factor(self, tokens: Int64[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        total = torch.zeros(len(tokens), dtype=torch.float64)
        if not self.earlier:
            return total
        for p, places in self.alike.items():
            ratio = (self.flat[p].log_probs - p.log_probs).exp()
            drawn = p.index_of(tokens[:, [self.earlier[j] for j in places]])
            total += (self.choice[places] * ratio[drawn]).sum(1)
        return (1 - FLATTENED + FLATTENED * total).log()

    def log_weight(self, tokens: Int64[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        return self.log_ratio[self._place(tokens)] - self.log_factor(tokens)

    def learned(
        self, tokens: Int64[Tensor, "n length"], log_mass: Float64[Tensor, " n"]
    ) -> ChangedInputs:
        """Half of r as it first was, half in proportion to the root of each last token's mass."""
        if not len(tokens):
            return self
        mass = torch.zeros(self.last.size, dtype=torch.float64)
        mass.index_add_(0, self._place(tokens), (log_mass - log_mass.max()).exp())
        learned = mass.sqrt() / mass.sqrt().sum()
        r = (0.5 * self.first.probabilities + 0.5 * learned).log()
        return ChangedInputs(self.inputs, TokenDistribution(self.last.support, r), self.first)

    def _place(self, tokens: Int64[Tensor, "n length"]) -> Int64[Tensor, " n"]:
        return self.last.index_of(tokens[:, self.k])
