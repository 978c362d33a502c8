"""Cells small enough to enumerate, and how long truth takes on them: milliseconds a unit."""

from __future__ import annotations

import itertools

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longshot.estimate import Cell
from longshot.inputs import ProductInputs, TokenDistribution
from tests.toys import toy_model

FIXED = TokenDistribution.fixed
WIDE = TokenDistribution.from_weights([1, 2, 3, 5, 7, 9, 11], [5, 1, 0.2, 3, 0.01, 2, 1])
NARROW = TokenDistribution.from_weights([0, 4, 6, 8], [1, 7, 0.5, 2])
SHAPES = {
    "leaf last": [FIXED(0), WIDE, NARROW, FIXED(3), WIDE],
    "two after the leaf": [FIXED(0), NARROW, WIDE, NARROW, FIXED(3), FIXED(9)],
    "only the leaf is free": [FIXED(0), FIXED(5), WIDE, FIXED(2)],
    "no prefix at all": [WIDE],
}


def toy_cell(
    shape: str = "leaf last", seed: int = 1, dtype: torch.dtype = torch.float32, name: str = "toy"
) -> Cell:
    model = toy_model(seed, vocab=12, layers=2, width=8, dtype=dtype)
    model.embedding.mul_(3)  # tokens matter more than positions, as in a trained model
    return Cell(model, ProductInputs(name, SHAPES[shape]))


def all_tokens(positions: tuple[TokenDistribution, ...]) -> Int64[Tensor, "input position"]:
    rows = list(itertools.product(*(d.support.tolist() for d in positions)))
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), len(positions))


def exact_probabilities(cell: Cell) -> Float64[Tensor, " vocab"]:
    """By enumeration, with plain arithmetic of the test's own."""
    tokens = all_tokens(cell.inputs.positions)
    logits = cell.model.network.activation(cell.model.embed(tokens)) @ cell.model.unembedding
    winner = (logits + cell.model.unembedding_bias).argmax(1)
    return torch.zeros(cell.model.vocab_size, dtype=torch.float64).index_add_(
        0, winner, cell.inputs.log_prob(tokens).exp()
    )
