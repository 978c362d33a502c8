"""What several weighted chains say together: the self-normalised ratio, its error, its honesty."""

from __future__ import annotations

import math

from jaxtyping import Bool, Float64
from torch import Tensor

from longshot.numerics import log_interval, r_hat


def ratio(
    log_weight: Float64[Tensor, "chain step"], hit: Bool[Tensor, "chain step"]
) -> tuple[float, float | None]:
    """log of Σ w·1[hit]/Σ w, and its relative error by the delta method over chains.

    With a_c and b_c a chain's share of the upper and of the lower sum,
    Var(p̂)/p̂² ≈ C/(C−1) · Σ_c (a_c − b_c)².
    """
    above = log_weight.masked_fill(~hit, -math.inf).logsumexp(1)
    below = log_weight.logsumexp(1)
    log_p = float(above.logsumexp(0) - below.logsumexp(0))
    chains = len(log_weight)
    if log_p == -math.inf or chains < 2:
        return log_p, None
    spread = float((above.softmax(0) - below.softmax(0)).square().sum())
    return log_p, math.sqrt(chains / (chains - 1) * spread) if spread > 0 else None


def disagreement(
    log_weight: Float64[Tensor, "chain step"], hit: Bool[Tensor, "chain step"]
) -> float:
    """The largest R-hat of what the ratio is made of: scores, weights and hits."""
    weight = (log_weight - log_weight.max()).exp()
    return max(r_hat(log_weight), r_hat(weight), r_hat(hit.double()))


def interval(log_p: float, error: float, chains: int, k: float | None) -> tuple[float, float]:
    """Student's over chains, whose lower half allows for weights with a tail of shape k.

    The rarer the large weights, the more often their sum is too low and the ratio too high: the
    mirror image of a mean of weights, and the same factor.
    """
    return log_interval(log_p, error, chains - 1, downward=1 + 2 * max(k or 0.0, 0.0))


def no_interval(
    hit: Bool[Tensor, "chain step"], error: float | None, worst: float, k: float | None
) -> str | None:
    """Why chains with a largest R-hat and a tail of their weights bear no interval, or None."""
    chains, with_hits = len(hit), int(hit.any(1).sum())
    misses = float((~hit).double().mean())
    if not with_hits:
        return "No sample hit."
    if chains < 3:
        return f"An interval needs 3 chains, not {chains}: raise the budget, or set chains."
    if with_hits < max(3, chains / 2):
        return f"Only {with_hits} of {chains} chains found the target."
    if math.isnan(worst):
        return "The chains are too short to be compared with each other."
    if not worst < 1.05:
        return f"The chains disagree (R-hat = {worst:.2f} ≥ 1.05)."
    if misses < 0.1:
        return f"Only {misses:.1%} of the states miss the target: nothing tells the normaliser."
    if k is not None and k > 0.7:
        return f"The normaliser's weights have a heavy tail (Pareto k = {k:.2f} > 0.7)."
    if error is None or error > 0.5:
        return "The chains differ too much for a standard error to be trusted."
    return None
