"""What several weighted chains say together: the self-normalised ratio, its error, its honesty."""

from __future__ import annotations

import math

from jaxtyping import Bool, Float64
from torch import Tensor

from longshot.numerics import binomial_interval, log_interval, r_hat


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


def starts_reached(
    log_weight: Float64[Tensor, "chain step"], start: Float64[Tensor, " chain"]
) -> int:
    """How many of the starts weigh no more than the heaviest state after burn-in.

    Starts are draws of p, and of what is heavier than all states the chains know nothing. With S
    the rest, their ratio is Pr(hit | S); that Pr(S) is 1, as it presumes, only the starts can tell.
    Chains that all leave the same part of p behind agree with each other.
    """
    return int((start <= log_weight.max() + 1e-3).sum())  # more than the noise of float32


def interval(log_p: float, error: float, chains: int, reached: int) -> tuple[float, float]:
    """Student's over chains, whose lower end allows for the part of p that they left behind.

    Nothing is presumed to hit there, so that p̂·Pr(S) is what is estimated. Where a start lies
    outside of S, log Pr(S) is uncertain by as much as its binomial lower limit is below 0. The two
    errors are independent: lengths on the log scale add in squares.
    """
    behind = -math.log(binomial_interval(reached, chains)[0]) if reached < chains else 0.0
    return log_interval(log_p, error, chains - 1, below=behind)


def no_interval(
    hit: Bool[Tensor, "chain step"], error: float | None, worst: float, reached: int
) -> str | None:
    """Why chains with a largest R-hat and so many starts within reach bear no interval, or None."""
    chains, with_hits = len(hit), int(hit.any(1).sum())
    if not with_hits:
        return "No sample hit."
    if chains < 3:
        return f"An interval needs 3 chains, not {chains}: raise the budget, or set chains."
    if with_hits < max(3, chains / 2):
        return f"Only {with_hits} of {chains} chains found the target."
    if math.isnan(worst):
        return "The chains are too short to be compared with each other."
    if not worst < 1.5:  # short of that the spread between chains still tells their error
        return f"The chains disagree (R-hat = {worst:.2f} ≥ 1.5)."
    if bool(hit.all()):
        return "Every state hits: nothing tells of the inputs that miss."
    if reached < chains / 2:
        return (
            f"The chains never came back to scores as low as those of {chains - reached} of the "
            f"{chains} inputs that they started from: raise the temperature."
        )
    if error is None or error > 0.8:
        return "The chains differ too much for a standard error to be trusted."
    return None
