"""A distribution over tokens: a support and a log probability on each of its tokens.

Sampling inverts the cumulative distribution with a binary search. Alias tables draw no faster on
a CPU and would have to be rebuilt for every tilt, so this is the one mechanism.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from longshot.errors import LongshotError


@dataclass(frozen=True, eq=False)
class TokenDistribution:
    """Probabilities on a sorted support; a batch of distributions may share one support.

    The constructor trusts its arguments; `from_weights` is the door for anything from outside.
    """

    support: Int64[Tensor, " size"]
    log_probs: Float64[Tensor, "*batch size"]

    @classmethod
    def from_weights(
        cls, support: Sequence[int] | Tensor, weights: Sequence[float] | Tensor
    ) -> TokenDistribution:
        """Probabilities in proportion to `weights`; a token of weight zero leaves the support."""
        tokens = torch.as_tensor(support, dtype=torch.int64)
        masses = torch.as_tensor(weights, dtype=torch.float64)
        if tokens.ndim != 1 or tokens.shape != masses.shape:
            raise LongshotError(
                f"A token distribution needs one weight for each token; "
                f"got shapes {tuple(tokens.shape)} and {tuple(masses.shape)}."
            )
        if (wrong := ~(masses.isfinite() & (masses >= 0))).any():
            raise LongshotError(
                f"Token {int(tokens[wrong][0])} has weight {float(masses[wrong][0])}; "
                f"weights are finite and not negative."
            )
        tokens, masses = tokens[masses > 0], masses[masses > 0]
        if not len(tokens):
            raise LongshotError("A token distribution needs a token of positive weight.")
        tokens, order = tokens.sort()
        if (twice := tokens[1:] == tokens[:-1]).any():
            raise LongshotError(
                f"Token {int(tokens[1:][twice][0])} stands twice in one support; merge its weights."
            )
        # The logarithm first: a sum of the largest doubles would overflow.
        return cls(tokens, torch.log_softmax(masses[order].log(), dim=-1))

    @classmethod
    def fixed(cls, token: int) -> TokenDistribution:
        """All probability on one token."""
        return cls(torch.tensor([token]), torch.zeros(1, dtype=torch.float64))

    def tilt(self, scores: Float[Tensor, "*batch size"], temperature: float) -> TokenDistribution:
        """The distribution q ∝ p·exp(scores/T), one for each row of `scores`.

        A score of −inf takes a token out; what has no finite normaliser is an error.
        """
        if not temperature > 0:
            raise LongshotError(f"The temperature must be positive, not {temperature}.")
        log_probs = torch.log_softmax(self.log_probs + scores.double() / temperature, dim=-1)
        # A normaliser that is NaN spoils its whole row, so one column tells.
        if log_probs[..., 0].isnan().any():
            raise LongshotError(
                f"Scores tilt a token distribution to NaN: a score is NaN or +inf, or all of a "
                f"row are −inf (temperature {temperature})."
            )
        return TokenDistribution(self.support, log_probs)

    def sample(self, n: int, generator: torch.Generator) -> Int64[Tensor, "*batch n"]:
        """`n` independent draws from each distribution, as indices into the support."""
        shape = (*self.log_probs.shape[:-1], n)
        return self.invert(torch.rand(shape, generator=generator, dtype=torch.float64))

    def invert(self, uniform: Float64[Tensor, "*batch n"]) -> Int64[Tensor, "*batch n"]:
        """The index at which the cumulative distribution passes each number of [0, 1)."""
        return torch.searchsorted(self._cumulative, uniform.contiguous(), right=True)

    def index_of(self, tokens: Int[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """Where each token stands in the support; −1 for a token outside it."""
        index = torch.searchsorted(self.support, tokens.long().contiguous()).clamp_(
            max=self.size - 1
        )
        return index.masked_fill_(self.support[index] != tokens, -1)

    @property
    def size(self) -> int:
        return self.support.shape[0]

    @property
    def is_fixed(self) -> bool:
        return self.size == 1

    @cached_property
    def probabilities(self) -> Float64[Tensor, "*batch size"]:
        return self.log_probs.exp()

    @property
    def entropy(self) -> Float64[Tensor, "*batch"]:
        """In nats."""
        return -torch.xlogy(self.probabilities, self.probabilities).sum(dim=-1)

    @cached_property
    def _cumulative(self) -> Float64[Tensor, "*batch size"]:
        """Running sums, with 1 where the total is reached.

        The first index whose sum exceeds a uniform number in [0, 1) has positive probability,
        and exists because rounding can no longer leave the last sum below 1.
        """
        sums = self.probabilities.cumsum(dim=-1)
        return sums.masked_fill_(sums >= sums[..., -1:], 1.0)
