"""A problem whose every input can be listed, and how to reach each token of a distribution."""

from __future__ import annotations

from jaxtyping import Float64
from torch import Tensor

from longshot.inputs import TokenDistribution
from longshot.testing import Enumerated, enumerated

__all__ = ["Enumerated", "enumerated", "midpoints"]


def midpoints(distribution: TokenDistribution) -> Float64[Tensor, "*batch size"]:
    """For each index of the support a uniform number of [0, 1) that inversion turns into it."""
    middle = distribution.probabilities.cumsum(-1) - distribution.probabilities / 2
    return middle.clamp(max=1 - 2**-53)  # the last token may be so rare that the sum rounds to 1
