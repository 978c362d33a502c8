"""The normaliser of chains by bridge sampling against plain draws (Meng and Wong 1996).

Chains have the law q(x) = p(x)·e^u(x)/Z, u = M_t/T, and Z = E_p e^u. With n plain draws and chains
worth m independent ones, the best bridge between p and q is the c = log Z − log(m/n) at which

    n·mean_p σ(u − c) = m·mean_q σ(c − u),        σ the logistic function:

with the true Z both sides are the integral of n·p·m·q/(n·p + m·q), whatever n and m, so that means
over all inputs give Z exactly. The left side falls in c and the right one rises: one root. Then

    p̂ = Z·mean_q( e^(−u)·1[hit] ).

**Error**, to first order. With D = n·mean_p σ′ + m·mean_q σ′ the root moves by δ/D when the left
side less the right one moves by δ. Plain draws are independent: Var = n·var_p(σ)/D². Chains are
replicates of each other, each with ψ_c = A_c/Ā − 1 − m·(B_c − B̄)/D of the mean of weighted hits A
and of B = σ(c − u).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from longshot.intervals import LEAST_REPLICATES, Interval, of_replicates
from longshot.numerics import autocorrelation_size, effective_sample_size, log_mean

LEAST_MET = 10.0
"""How many plain draws must lie where the chains are: Kish's size of their σ(u − c)."""


class Bridged(NamedTuple):
    """What chains and plain draws say together."""

    log_probability: float
    relative_error: float | None
    log_z: float
    met: float


def log_normaliser(
    plain: Float64[Tensor, " draw"],
    walked: Float64[Tensor, " state"],
    n: float,
    m: float,
    weights: tuple[Tensor, Tensor] | None = None,
) -> float:
    """log Z from u on draws of p and of q; `weights` make means of listed inputs instead."""
    of_plain, of_walked = weights or (
        torch.full_like(plain, 1 / len(plain)),
        torch.full_like(walked, 1 / len(walked)),
    )
    low = min(float(plain.min()), float(walked.min())) - abs(math.log(n / m)) - 40
    high = max(float(plain.max()), float(walked.max())) + abs(math.log(n / m)) + 40
    for _ in range(100):
        c = (low + high) / 2
        left = n * float((of_plain * torch.sigmoid(plain - c)).sum())
        right = m * float((of_walked * torch.sigmoid(c - walked)).sum())
        low, high = (c, high) if left > right else (low, c)
        if high - low < 1e-13 * max(1.0, abs(c)):
            break
    return (low + high) / 2 + math.log(m / n)


def bridged(
    u: Float64[Tensor, "chain step"],
    grade: Float64[Tensor, "chain step"],
    plain: Float64[Tensor, " draw"],
) -> Bridged:
    """The probability from chains with u and grade, and plain draws with u."""
    chains, n = len(u), len(plain)
    size = autocorrelation_size(u)
    m = u.numel() if math.isnan(size) else max(size, 1.0)
    log_z = log_normaliser(plain, u.flatten(), n, m)
    c = log_z - math.log(m / n)
    meets, leaves = torch.sigmoid(plain - c), torch.sigmoid(c - u)
    met = effective_sample_size(meets.log())
    log_value = grade.log() - u
    log_hits = log_mean(log_value.flatten())
    if log_hits == -math.inf:
        return Bridged(-math.inf, None, log_z, met)
    slope = n * float((meets * (1 - meets)).mean()) + m * float((leaves * (1 - leaves)).mean())
    if chains < 2 or n < 2 or not slope:
        return Bridged(log_z + log_hits, None, log_z, met)
    a = (log_value.logsumexp(1) - math.log(u.shape[1]) - log_hits).exp()
    b = leaves.mean(1)
    psi = a - 1 - m * (b - b.mean()) / slope
    variance = n * float(meets.var()) / slope**2 + float(psi.square().sum()) / chains / (chains - 1)
    return Bridged(log_z + log_hits, math.sqrt(variance) or None, log_z, met)


def bridged_interval(
    found: Bridged, hit: Bool[Tensor, "chain step"], worst: float
) -> Interval | str:
    """The interval of replicates, or why there is none."""
    chains, with_hits = len(hit), int(hit.any(1).sum())
    if 0 < with_hits < LEAST_REPLICATES <= chains:
        return f"Only {with_hits} of {chains} chains found the target."
    if with_hits and chains >= LEAST_REPLICATES and not worst < math.sqrt(2):
        return f"The chains stay apart (R-hat = {worst:.2f}, not below √2)."
    if with_hits and found.met < LEAST_MET:
        return (
            f"Only {found.met:.1f} plain draws lie where the chains are, of {LEAST_MET:g} that it "
            "takes: raise the temperature."
        )
    return of_replicates(min(found.log_probability, 0.0), found.relative_error, chains)
