"""Samples of every token at once, in units that share one generator.

Plain samples, the paper's truth, count how often each token is the argmax:

    p̂_t = (1/n) Σ_i 1[M(x_i) = t],   x_i ~ D.

Conditional samples are prefixes, whose last free token is enumerated:

    p̂_t = (1/n) Σ_i m_t(x_i),   m_t(x) = Σ_y p(y)·1[M(x, y, tail) = t],   x_i ~ D.

Sums of m and of m² over the prefixes give each token's probability and its standard error. The
enumeration itself is that of the method of the same name, `longshot.methods.conditional`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from longshot.estimate import Cell
from longshot.evaluate import activations, winners
from longshot.inputs import Tree
from longshot.models import Model
from longshot.truth.tally import Kind, Tally

UNIT = 1024  # plain samples of one unit


def plain_tally(model: Model, tokens: Int64[Tensor, "n length"]) -> Tally:
    """How many of these inputs each token wins; an indicator is its own square."""
    won, n = winners(model, activations(model, tokens)), len(tokens)
    total = won.token[won.token >= 0].bincount(minlength=model.vocab_size).double()
    return Tally(n, n, won.near_ties, total, total)


class PlainSampler:
    """Units of plain samples of one cell."""

    def __init__(self, cell: Cell) -> None:
        self.cell, self.leaves_per_unit = cell, UNIT

    def unit(self, generator: torch.Generator) -> Tally:
        """`UNIT` samples."""
        return plain_tally(self.cell.model, self.cell.inputs.sample(UNIT, generator))


def prefix_masses(
    tree: Tree, prefixes: Int[Tensor, "n prefix_length"]
) -> tuple[Float64[Tensor, "n vocab"], int]:
    """m_t(x) of each prefix and token, and how many leaves were close."""
    tokens, near_ties = [], 0
    for branches in tree.grow(prefixes):
        won = winners(tree.model, branches.activation.flatten(0, 1))
        tokens.append(won.token.view(branches.activation.shape[:2]))
        near_ties += won.near_ties
    winner = torch.cat(tokens, 1)
    weights = tree.leaf.probabilities.expand(len(prefixes), -1)
    weights = weights.masked_fill(winner < 0, 0.0)  # a tie has no winner
    mass = torch.zeros(len(prefixes), tree.model.vocab_size, dtype=torch.float64)
    return mass.scatter_add_(1, winner.clamp_(min=0), weights), near_ties


class PrefixSampler:
    """Units of prefixes of one cell, each with all its leaves."""

    def __init__(self, cell: Cell) -> None:
        self.tree = Tree(cell.model, cell.inputs)
        self.leaves_per_unit = self.tree.batch * self.tree.leaf.size

    def unit(self, generator: torch.Generator) -> Tally:
        """One batch of prefixes."""
        prefixes = self.tree.sample(self.tree.batch, generator)
        mass, near_ties = prefix_masses(self.tree, prefixes)
        total, squares = mass.sum(0), mass.square().sum(0)
        return Tally(self.tree.batch, self.leaves_per_unit, near_ties, total, squares)


def sampler(cell: Cell, kind: Kind) -> PlainSampler | PrefixSampler:
    """What draws the units of a kind."""
    return PlainSampler(cell) if kind == "brute" else PrefixSampler(cell)
