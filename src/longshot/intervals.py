"""Intervals: one rule for weighted draws, one for independent replicates, a bound for no hit.

All are made of what an estimate stores, so that they can be computed again from stored rows. Two of
them are Student's on the log scale, where a skewed positive mean is nearly normal,

    log p̂ − t·e … log p̂ + t·e·u,        e the relative error of p̂,

with an upper arm that is stretched by u ≥ 1: while the few values that hold much of the mean are
missing, the mean and its error are both too small.

- Weighted draws, of which those that hit are worth m equal ones: t has 2m − 1 degrees of freedom,
  as a sum of m gamma-like values has, and u = 1 + 2k, k the shape of the weights' tail.
- Replicates: t has one degree fewer than there are replicates, and u = 1 + their relative spread.

**What they do not do** is refuse a tail that looks bad. A k above 0.7 makes an interval long.
Withholding it instead keeps the lucky runs, which saw nothing of the tail, and these hold less
often. The constants were chosen on simulated values (`benchmarks/simulated.py`), of which 24
families only judge; that narrow proposals divide the upper end by their mean weight, on toys that
no test looks at.
"""

from __future__ import annotations

import math
from typing import TypedDict

from scipy import special, stats

from longshot.numerics import LEVEL

Interval = tuple[float, float]

LEAST_EFFECTIVE = 2.0
"""How many equal draws those that hit must be worth."""
LEAST_REPLICATES = 3
UNKNOWN_TAIL = 0.5
"""The k of hits too few to tell: the mean of the prior in `pareto_k`."""
LEAST_MEAN_WEIGHT = 1e-3
"""What the weights of all draws, hit or not, must average; their expectation is 1."""


def log_interval(
    log_mean: float,
    relative_error: float,
    freedom: float,
    *,
    upward: float = 1.0,
    above: float = 0.0,
    below: float = 0.0,
    level: float = LEVEL,
) -> Interval:
    """Student's interval on the log scale, as the ends of a probability.

    `upward` stretches its upper half, for means that are more often too low than too high. `above`
    is added to the upper end, for what the relative error does not know of. `below` is the length
    of a lower half by an error of its own, independent of this one.
    """
    reach = float(stats.t.ppf((1 + level) / 2, max(freedom, 1.0))) * relative_error
    low, high = log_mean - math.hypot(reach, below), log_mean + upward * reach + above
    return math.exp(min(low, 0.0)), math.exp(min(high, 0.0))


def of_weighted_draws(
    log_mean: float,
    relative_error: float | None,
    effective: float,
    k: float | None,
    *,
    log_mean_weight: float = 0.0,
) -> Interval | str:
    """The interval of a mean of uncorrelated weighted hits, or a sentence why there is none.

    `effective` is Kish's size of the values above zero and `k` the Pareto shape of their tail.
    Where proposals may be too narrow, `log_mean_weight` is the logarithm of w̄, the average weight
    of all draws: w̄ < 1 says that the proposals reach only inputs of probability w̄, and the upper
    end is divided by w̄, as if the event were as likely among the others.
    """
    if not effective:
        return "No sample hit."
    if effective < LEAST_EFFECTIVE:
        return (
            f"The hits are worth only {effective:.1f} equal ones, "
            f"and an interval needs {LEAST_EFFECTIVE:g}."
        )
    if relative_error is None:
        return "All samples agree, so their spread says nothing of the error."
    if log_mean_weight < math.log(LEAST_MEAN_WEIGHT):
        return (
            f"The proposals have left nearly all inputs behind (the weights average "
            f"{math.exp(log_mean_weight):.0e}, not 1): raise the temperature."
        )
    stretch = 1 + 2 * min(max(UNKNOWN_TAIL if k is None else k, 0.0), 1.0)
    above = max(-log_mean_weight, 0.0)
    return log_interval(log_mean, relative_error, 2 * effective - 1, upward=stretch, above=above)


def of_replicates(
    log_mean: float, relative_error: float | None, count: float, *, below: float = 0.0
) -> Interval | str:
    """The interval of the mean of some independent estimates, zeros among them or not.

    `relative_error` is that of the mean by the spread between them, `count` how many equal ones
    they are worth. `below` is as in
    `log_interval`.
    """
    if log_mean == -math.inf:
        return "No sample hit."
    if count < LEAST_REPLICATES:
        return f"An interval needs {LEAST_REPLICATES} independent runs, not {count:.2g}."
    if relative_error is None:
        return "All runs agree, so their spread says nothing of the error."
    stretch = 1 + relative_error * math.sqrt(count)
    return log_interval(log_mean, relative_error, count - 1, upward=stretch, below=below)


def upper_bound(samples: int, hits: int = 0, *, log_largest_weight: float = 0.0) -> Interval:
    """Zero and the one-sided bound that draws support whose weights have a known maximum.

    Plain draws have the weight 1, and without a hit the bound is about 3/n. E_q[w·1[hit]] is at
    most the largest weight times Pr_q[hit].
    """
    share = float(special.betaincinv(hits + 1, samples - hits, LEVEL)) if hits < samples else 1.0
    return 0.0, math.exp(min(math.log(share) + log_largest_weight, 0.0))


def log_share_limit(found: float, count: float) -> float:
    """log of Jeffreys' lower limit of a share that was seen in `found` of `count` draws."""
    return math.log(float(special.betaincinv(found + 0.5, count - found + 0.5, (1 - LEVEL) / 2)))


class Fields(TypedDict):
    """The fields of an estimate that say how well it is known."""

    interval: Interval
    no_interval: str | None


def fields_of(found: Interval | str, bound: Interval = (0.0, 1.0)) -> Fields:
    """An interval, or the bound that holds in its place and the sentence why there is no more."""
    if isinstance(found, str):
        return {"interval": bound, "no_interval": found}
    return {"interval": found, "no_interval": None}
