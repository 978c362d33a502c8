"""A problem whose every input can be listed, so that its probabilities are known exactly."""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longshot.inputs import ProductInputs, TokenDistribution
from longshot.models import Model
from tests.toys import toy_model


class Enumerated(NamedTuple):
    """A toy model and inputs with all inputs, their probabilities and their outputs."""

    model: Model
    inputs: ProductInputs
    tokens: Int64[Tensor, "input position"]
    probability: Float64[Tensor, " input"]
    output: Int64[Tensor, " input"]

    def exact(self, token: int) -> float:
        return float(self.probability[self.output == token].sum())

    def targets(self, low: float, high: float) -> list[int]:
        """The tokens whose probability lies between the two."""
        return [t for t in range(self.model.vocab_size) if low <= self.exact(t) <= high]


@cache
def enumerated(seed: int = 1, dtype: torch.dtype = torch.float64) -> Enumerated:
    """Four free positions of two kinds, between and before fixed ones."""
    model = toy_model(seed, vocab=12, layers=2, width=8, dtype=dtype)
    model.embedding.mul_(3)  # tokens matter more than positions, as in a trained model
    generator = torch.Generator().manual_seed(seed)

    def some(support: list[int]) -> TokenDistribution:
        weights = torch.rand(len(support), generator=generator, dtype=torch.float64) ** 2
        return TokenDistribution.from_weights(support, weights + 0.01)

    wide, narrow = some([1, 2, 3, 5, 7, 9, 11]), some([0, 4, 6, 8, 10])
    positions = [TokenDistribution.fixed(0), wide, narrow, TokenDistribution.fixed(3), wide, narrow]
    inputs = ProductInputs("toy", positions)
    tokens = torch.tensor(list(itertools.product(*(d.support.tolist() for d in positions))))
    activation = model.network.activation(model.embed(tokens))
    logits = activation @ model.unembedding + model.unembedding_bias
    return Enumerated(model, inputs, tokens, inputs.log_prob(tokens).exp(), logits.argmax(1))


def midpoints(distribution: TokenDistribution) -> Float64[Tensor, "*batch size"]:
    """For each index of the support a uniform number of [0, 1) that inversion turns into it."""
    middle = distribution.probabilities.cumsum(-1) - distribution.probabilities / 2
    return middle.clamp(max=1 - 2**-53)  # the last token may be so rare that the sum rounds to 1
