"""Conditional sampling of every token at once: a prefix is drawn, its last free token enumerated.

    p̂_t = (1/n) Σ_i m_t(x_i),   m_t(x) = Σ_y p(y)·1[M(x, y, tail) = t],   x_i ~ D

Sums of m and of m² over the prefixes give each token's probability and its standard error. The
enumeration itself is that of the method of the same name, `longshot.methods.conditional`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from longshot.inputs import ProductInputs
from longshot.methods.conditional import Tree
from longshot.models import Model
from longshot.truth.argmax import Argmax
from longshot.truth.tally import Tally


def prefix_masses(
    tree: Tree, argmax: Argmax, prefixes: Int[Tensor, "n prefix_length"]
) -> tuple[Float64[Tensor, "n vocab"], int]:
    """m_t(x) of each prefix and token, and how many leaves were close."""
    tokens, near_ties = [], 0
    for branches in tree.grow(prefixes):
        won = argmax(branches.activation.flatten(0, 1))
        tokens.append(won.token.view(branches.activation.shape[:2]))
        near_ties += won.near_ties
    winners = torch.cat(tokens, 1)
    weights = tree.leaf.probabilities.expand(len(prefixes), -1)
    weights = weights.masked_fill(winners < 0, 0.0)  # a tie has no winner
    mass = torch.zeros(len(prefixes), tree.model.vocab_size, dtype=torch.float64)
    return mass.scatter_add_(1, winners.clamp_(min=0), weights), near_ties


class Conditional:
    """Units of prefixes of one model and its inputs, each with all its leaves."""

    def __init__(self, model: Model, inputs: ProductInputs) -> None:
        self.tree, self.argmax = Tree(model, inputs), Argmax(model)
        self.leaves_per_unit = self.tree.batch * self.tree.leaf.size

    def unit(self, generator: torch.Generator) -> Tally:
        """One batch of prefixes."""
        prefixes = self.tree.sample(self.tree.batch, generator)
        mass, near_ties = prefix_masses(self.tree, self.argmax, prefixes)
        total, squares = mass.sum(0), mass.square().sum(0)
        return Tally(self.tree.batch, self.leaves_per_unit, near_ties, total, squares)
