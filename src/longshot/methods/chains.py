"""What several weighted chains say together: the self-normalised ratio, its error, its honesty."""

from __future__ import annotations

import math

from jaxtyping import Bool, Float64
from torch import Tensor

from longshot.intervals import LEAST_REPLICATES, Interval, log_share_limit, of_replicates
from longshot.numerics import r_hat


def ratio(
    log_weight: Float64[Tensor, "chain step"], grade: Float64[Tensor, "chain step"]
) -> tuple[float, float | None]:
    """log of Σ w·grade/Σ w, and its relative error by the delta method over chains.

    With a_c and b_c a chain's share of the upper and of the lower sum,
    Var(p̂)/p̂² ≈ C/(C−1) · Σ_c (a_c − b_c)².
    """
    above = (log_weight + grade.log()).logsumexp(1)
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


def interval(
    log_p: float,
    error: float | None,
    hit: Bool[Tensor, "chain step"],
    reached: int,
    worst: float,
) -> Interval | str:
    """The interval of replicates, whose lower end allows for the part of p left behind by all.

    Nothing is presumed to hit there, so that p̂·Pr(S) is what is estimated, and log Pr(S) is
    uncertain by as much as the lower limit that the starts support is below 0. The two errors are
    independent: lengths on the log scale add in squares. Chains that differ from each other by
    more than each does in itself (an R-hat of √2) have not moved.
    """
    chains, with_hits = len(hit), int(hit.any(1).sum())
    if 0 < with_hits < LEAST_REPLICATES <= chains:
        return f"Only {with_hits} of {chains} chains found the target."
    if bool(hit.all()):
        return "Every state hits: nothing tells of the inputs that miss."
    if with_hits and chains >= LEAST_REPLICATES and not worst < math.sqrt(2):
        return f"The chains stay apart (R-hat = {worst:.2f}, not below √2)."
    if with_hits and not reached:
        return (
            "The chains never came back to scores as low as those of the inputs that they started "
            "from: raise the temperature."
        )
    return of_replicates(log_p, error, chains, below=-log_share_limit(reached, chains))
