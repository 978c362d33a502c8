"""Statistics on plain tensors: log-space means, sample sizes, tails, chains, seeds.

Nothing here knows of models. Weights come as logarithms, −inf is a weight of zero, and NaN is an
error where it appears.
"""

from __future__ import annotations

import hashlib
import math
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from scipy import special
from torch import Tensor

LEVEL = 0.95


_WORDS = 624  # of the Mersenne twister's state, which torch stores in 8 bytes each
_HEADER = 24  # bytes before them: seed, counters


def derived_generator(seed: int, *parts: str | int) -> torch.Generator:
    """A generator that depends on all of its arguments and on nothing else.

    All of its state is drawn from a digest of them: torch's own seeding keeps 32 bits, and among
    the 10⁵ streams of one table some would be equal.
    """
    texts = [str(part) for part in (seed, *parts)]
    name = "".join(f"{len(text)}:{text}" for text in texts)  # no two lists share a name
    digest = bytearray(hashlib.shake_256(name.encode()).digest(4 * _WORDS))
    words = torch.frombuffer(digest, dtype=torch.int32).long() & 0xFFFFFFFF
    generator = torch.Generator()
    state = generator.manual_seed(0).get_state()
    state[_HEADER : _HEADER + 8 * _WORDS].view(torch.int64).copy_(words)
    return generator.set_state(state)


def _refuse_nan(log_values: Tensor) -> None:
    if log_values.isnan().any():
        raise FloatingPointError("a log weight is NaN")


def log_mean(log_values: Float64[Tensor, " n"]) -> float:
    """log of the mean of exp(log_values); −inf when all are."""
    _refuse_nan(log_values)
    return float(torch.logsumexp(log_values, 0)) - math.log(len(log_values))


def row_keys(rows: Int64[Tensor, "rows n"]) -> Int64[Tensor, " rows"]:
    """A 64-bit number for each row: equal rows have equal ones and others, chance aside, not."""
    return (rows * _factors(rows.shape[1])).sum(1)  # modulo 2⁶⁴


@cache
def _factors(count: int) -> Int64[Tensor, " count"]:
    generator = derived_generator(0, "row keys")
    return torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator)


def relative_error(log_values: Float64[Tensor, " n"]) -> float | None:
    """Standard error of the mean of exp(log_values), as a fraction of that mean.

    The values need only be uncorrelated with one common mean, as those of an importance sampler
    are whose proposals adapt to the past. None when there is nothing to tell it from.
    """
    n, centre = len(log_values), log_mean(log_values)
    if n < 2 or centre == -math.inf:
        return None
    variance = float(((log_values - centre).exp() - 1).square().sum()) / (n - 1)
    return math.sqrt(variance / n) if variance > 0 else None


def effective_sample_size(log_weights: Float64[Tensor, " n"]) -> float:
    """Kish's (Σw)²/Σw²: how many equal weights would be as good; 0 when all are zero."""
    _refuse_nan(log_weights)
    kept = log_weights[log_weights > -math.inf]
    if not len(kept):
        return 0.0
    return float((2 * torch.logsumexp(kept, 0) - torch.logsumexp(2 * kept, 0)).exp())


def pareto_k(log_weights: Float64[Tensor, " n"]) -> float | None:
    """Shape of the generalised Pareto tail of the weights; above 0.7 their mean is unreliable.

    The tail is the largest min(n/5, 3√n) of the n given (Vehtari et al. 2024, section 2), and the
    fit is Zhang and Stephens' (2009) posterior mean with the weak prior of that paper. None when
    fewer than 5 values exceed the tail's threshold. Equal weights have no tail: −inf. One too long
    for a double: +inf.
    """
    _refuse_nan(log_weights)
    kept = log_weights[log_weights > -math.inf].sort().values
    n = len(log_weights)
    tail = min(math.ceil(min(n / 5, 3 * math.sqrt(n))), len(kept) - 1)
    if tail < 5:
        return None
    threshold, largest = kept[-tail - 1], kept[-1]
    if threshold == largest:
        return -math.inf
    above = kept[kept > threshold]
    if len(above) < 5:
        return None
    # (w − threshold)/largest, of which neither factor can overflow or cancel
    return _generalised_pareto_shape((above - largest).exp() * -(threshold - above).expm1())


def _generalised_pareto_shape(x: Float64[Tensor, " n"]) -> float:
    n = len(x)
    grid = 30 + int(math.sqrt(n))
    quarter = x[max(int(n / 4 + 0.5) - 1, 0)]
    if quarter < 1e-290:  # of the largest: its inverse would overflow
        return math.inf
    spacing = 1 - torch.sqrt(grid / (torch.arange(1, grid + 1, dtype=torch.float64) - 0.5))
    theta = 1 / x[-1] + spacing / (3 * quarter)
    shape = torch.log1p(-theta[:, None] * x).mean(1)
    inverse_scale = torch.where(theta == 0, 1 / x.mean(), -theta / shape)  # 0: exponential
    log_likelihood = n * (inverse_scale.log() - shape - 1)
    weight = log_likelihood.softmax(0)
    k = float(torch.log1p(-(weight * theta).sum() * x).mean())
    return (n * k + 10 * 0.5) / (n + 10)


def binomial_interval(hits: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Clopper and Pearson's exact interval for a proportion."""
    tail = (1 - level) / 2
    low = float(special.betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return low, high


class Replicates(NamedTuple):
    """Independent estimates of one probability together, each with a weight of its own."""

    log_mean: float
    relative_error: float | None
    """Of the mean, by the spread between the estimates; None where there is none."""
    size: float
    """How many equally weighted ones they are worth."""

    @classmethod
    def of(cls, log_values: Float64[Tensor, " n"], weights: Float64[Tensor, " n"]) -> Replicates:
        share = weights / weights.sum()
        log_mean = float((log_values + share.log()).logsumexp(0))
        n, size = len(log_values), float(1 / share.square().sum())
        if n < 2 or log_mean == -math.inf:
            return cls(log_mean, None, size)
        spread = share.square() * ((log_values - log_mean).exp() - 1).square()
        error = math.sqrt(float(spread.sum()) * n / (n - 1))
        return cls(log_mean, error if error > 0 else None, size)

    @property
    def student_error(self) -> float:
        """The relative error that a normal law would need for Student's interval, inf for none."""
        if self.relative_error is None:
            return math.inf
        t = float(special.stdtrit(max(self.size - 1, 1.0), (1 + LEVEL) / 2))
        return self.relative_error * t / float(special.ndtri((1 + LEVEL) / 2))


def r_hat(draws: Float64[Tensor, "chain draw"]) -> float:
    """Gelman and Rubin's ratio on split chains: 1 when chains agree with each other and in time."""
    half = draws.shape[1] // 2
    if half < 2:
        return math.nan
    split = torch.cat([draws[:, :half], draws[:, half : 2 * half]])
    within = float(split.var(1).mean())
    between = float(split.mean(1).var())
    if within == 0:
        return 1.0 if between == 0 else math.inf
    return math.sqrt((half - 1) / half + between / within)


def rank_r_hat(draws: Float64[Tensor, "chain draw"]) -> float:
    """The larger split R-hat of the draws' normal scores and of their distances from the median.

    Ranks make it meaningful for heavy tails, and the distances see chains that differ in spread
    alone (Vehtari et al. 2021). Equal draws share their mean rank.
    """
    folded = (draws - draws.median()).abs()
    return max(r_hat(_normal_scores(draws)), r_hat(_normal_scores(folded)))


def _normal_scores(draws: Float64[Tensor, "chain draw"]) -> Float64[Tensor, "chain draw"]:
    _, place, counts = draws.flatten().unique(return_inverse=True, return_counts=True)
    mean_rank = counts.cumsum(0).double() - (counts - 1).double() / 2
    scores: Tensor = torch.special.ndtri((mean_rank - 0.375) / (draws.numel() + 0.25))
    return scores[place].view_as(draws)


def autocorrelation_size(draws: Float64[Tensor, "chain draw"]) -> float:
    """How many independent draws the chains are worth for their mean, by autocorrelation.

    C·n/(1 + 2·Σ ρ_t), ρ_t pooled over chains with the variance between them included, summed in
    pairs of lags while these are positive and not above the pair before (Geyer 1992).
    """
    chains, n = draws.shape
    if n < 4:
        return math.nan
    centred = draws - draws.mean(1, keepdim=True)
    power = torch.fft.rfft(centred, 2 * n).abs().square()
    covariance = torch.fft.irfft(power, 2 * n)[:, :n].mean(0) / n
    within = float(covariance[0]) * n / (n - 1)
    between = float(draws.mean(1).var()) if chains > 1 else 0.0
    total = float(covariance[0]) + between
    if total <= 0 or within <= 0:
        return float(chains * n) if total <= 0 else float(chains)
    rho = 1 - (within - covariance) / total
    rho[0] = 1.0
    pairs = rho[: n - n % 2].view(-1, 2).sum(1)
    ended = (pairs <= 0).nonzero()[:, 0]
    kept = pairs[: int(ended[0])] if len(ended) else pairs
    tau = max(float(2 * kept.cummin(0).values.sum()) - 1 if len(kept) else 1.0, 1e-3)
    return min(chains * n / tau, float(chains * n))


def autocorrelated_size(draws: Float64[Tensor, "chain draw"]) -> float:
    """How many independent draws the chains are worth for their mean.

    Total variance over the variance of the chains' means: between-chain spread is all it trusts,
    so that one chain alone gives NaN.
    """
    chains, n = draws.shape
    if chains < 2:
        return math.nan
    total, between = float(draws.var()), float(draws.mean(1).var())
    return min(chains * total / between, chains * n) if between > 0 else float(chains * n)


def chain_effective_size(log_values: Float64[Tensor, "chain draw"]) -> float:
    """How many independent equal hits the chains' weighted hits are worth; −inf is a miss.

    Kish's size, which takes all draws for independent, times the share of draws that are, by the
    spread between half-chains.
    """
    size, half = effective_sample_size(log_values.flatten()), log_values.shape[1] // 2
    if not size or half < 2:
        return size
    values = (log_values - log_values.max()).exp()
    halves = torch.cat([values[:, :half], values[:, half : 2 * half]])
    return size * min(autocorrelated_size(halves) / halves.numel(), 1.0)
