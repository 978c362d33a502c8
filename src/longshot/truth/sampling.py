"""Plain sampling of every token at once: how often each is the argmax (the paper's truth).

p̂_t = (1/n) Σ_i 1[M(x_i) = t],   x_i ~ D
"""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

from longshot.evaluate import activations
from longshot.inputs import ProductInputs
from longshot.models import Model
from longshot.truth.argmax import Argmax
from longshot.truth.tally import Tally

UNIT = 1024  # samples that share one generator


def brute_counts(
    model: Model, argmax: Argmax, tokens: Int64[Tensor, "n length"]
) -> tuple[Int64[Tensor, " vocab"], int]:
    """How many of these inputs each token wins, and how many were close."""
    won = argmax(activations(model, tokens))
    winners = won.token[won.token >= 0]
    return torch.bincount(winners, minlength=model.vocab_size), won.near_ties


class Brute:
    """Units of plain samples of one model and its inputs."""

    def __init__(self, model: Model, inputs: ProductInputs) -> None:
        self.model, self.inputs = model, inputs
        self.argmax = Argmax(model)
        self.leaves_per_unit = UNIT

    def unit(self, generator: torch.Generator) -> Tally:
        """`UNIT` samples."""
        counts, near_ties = brute_counts(
            self.model, self.argmax, self.inputs.sample(UNIT, generator)
        )
        total = counts.double()  # whole numbers: exact to 2⁵³
        return Tally(UNIT, UNIT, near_ties, total, total)  # an indicator is its own square
