"""Splitting and leafwise together: one finds every kind of hit, the other measures exactly.

Draws of leafwise (`leafwise.py`) come from a known law q, but kinds of input that q hardly reaches
are missing from their mean, and from its error. Hits of splitting (`splitting.py`) come from
p(x)·1[hit]/P, of whatever kind; how many there are says P only roughly. With w = p/q, and any
τ > 0, the hits that q reaches, h = 1/(1 + w/τ) of each, are what both have in common:

    P = N/D,      N = E_q[ w·h·1[hit] ],      D = E_p[ h | hit ].

N is a mean of weights that are bounded by τ, D the share of splitting's hits that q reaches: near 1
where leafwise sees all, less where it does not, and then only as sure as populations agree on it.
Where fewer than three hit, no spread tells, and Jeffreys' limit of a share that m hits show does.
The τ = P·n/m for n draws and m hits that are independent, a population counting as one, is
optimal (Meng and Wong 1996: a bridge), and is found from the same draws.

Rounds take turns: populations, from whose hits leafwise chooses its leaves, then a climb and draws.
Each round is twice as large as the one before it. All populations count, and the draws of the last
round, which know most. The answer is the mean of N/D and of splitting's own estimate by their
precision; where their intervals do not meet it is the larger one, with an interval that covers both
and a warning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from longshot.estimate import Cost, Estimate, Job, Problem, Round, best_witnesses
from longshot.intervals import (
    LEAST_REPLICATES,
    Interval,
    log_interval,
    log_share_limit,
    of_weighted_draws,
)
from longshot.methods.bridge import log_normaliser
from longshot.methods.leafwise import LeafDraws, LeafRun, as_one_mean, favoured_last, hits_of
from longshot.methods.splitting import FIRST_ROUND, Splitting, SplittingRun
from longshot.numerics import effective_sample_size, log_mean, pareto_k, relative_error

UNREACHED = 60.0  # log of how much more a hit that q does not reach weighs than any draw
LEAST_REACHED = 0.05  # the smallest D that says something
SMALLEST = 1e-300  # an end that is rounded to zero
NORMAL = 1.96  # errors of a normal law in half an interval


class Claim(NamedTuple):
    """An estimate with its interval, and how far that reaches on the log scale."""

    log_probability: float
    interval: Interval
    unmet: float = 0.0
    """How much of the upper arm is for kinds of input that may have been missed."""

    @property
    def arms(self) -> tuple[float, float]:
        """How far the interval reaches down and up, on the log scale."""
        low, high = (math.log(max(end, SMALLEST)) for end in self.interval)
        return self.log_probability - low, high - self.log_probability

    @property
    def error(self) -> float:
        """The relative error that a normal law would need for the lower arm and what is unmet."""
        return math.hypot(self.arms[0], self.unmet) / NORMAL


def of_draws(log_w: Float64[Tensor, " draw"]) -> Claim | str:
    """The mean of independent draws of w·1[hit], −inf for those that miss."""
    log_p, error = log_mean(log_w), relative_error(log_w)
    size, k = effective_sample_size(log_w), pareto_k(log_w[log_w > -math.inf])
    found = of_weighted_draws(log_p, error, size, k)
    return found if isinstance(found, str) else Claim(log_p, found)


class Hits(NamedTuple):
    """Hits of one population: the log of their parts of the probability, and of their w."""

    log_mass: Float64[Tensor, " hit"]
    log_w: Float64[Tensor, " hit"]


def joined(log_w: Float64[Tensor, " draw"], populations: Sequence[Hits]) -> Claim | str:
    """N/D from the w of independent draws, −inf for those that miss, and populations with hits.

    Of fewer than three populations no spread tells the error of D: the draws' own mean, with an
    upper arm for what the draws may not reach.
    """
    m, n, hit = len(populations), len(log_w), log_w[log_w > -math.inf]
    if not m or not len(hit):
        return unvouched(of_draws(log_w), 0.0, 0)
    every = Hits(*(torch.cat(column) for column in zip(*populations, strict=True)))
    walked = every.log_w.clamp(max=float(hit.max()) + UNREACHED)
    weights = torch.full_like(hit, 1 / n), every.log_mass.softmax(0)
    log_tau = log_normaliser(hit, walked, n, m, weights) + math.log(n / m)
    log_mass, log_part = reached(log_tau, populations)
    if m < LEAST_REPLICATES:
        return unvouched(of_draws(log_w), float((log_part - log_mass).exp().sum()), m)
    of_n = of_draws(log_tau + torch.nn.functional.logsigmoid(log_w - log_tau))
    if isinstance(of_n, str):
        return of_n
    log_d, of_d = share_reached(log_mass, log_part)
    if log_d < math.log(LEAST_REACHED):
        return f"The draws reach only {math.exp(log_d):.1e} of what populations found."
    (down, up), (up_d, down_d) = of_n.arms, Claim(log_d, of_d).arms  # more D is less P
    return claim(of_n.log_probability - log_d, math.hypot(down, down_d), math.hypot(up, up_d))


def unvouched(found: Claim | str, met: float, m: int) -> Claim | str:
    """The draws' own claim, with an upper arm for kinds of hit that they may not reach.

    Each population counts as one hit, and of m such hits `met` are reached. Jeffreys' lower limit ℓ
    of D = Pr[reached | hit] makes an error of its own, of the length −log ℓ.
    """
    if isinstance(found, str):
        return found
    (down, up), unmet = found.arms, -log_share_limit(met, m)
    return claim(found.log_probability, down, math.hypot(up, unmet), unmet)


def reached(
    log_tau: float, populations: Sequence[Hits]
) -> tuple[Float64[Tensor, " population"], Float64[Tensor, " population"]]:
    """The log of each population's mass of hits, and of as much of it as q reaches: Σ h."""
    log_mass = [hits.log_mass.logsumexp(0) for hits in populations]
    log_h = [torch.nn.functional.logsigmoid(log_tau - hits.log_w) for hits in populations]
    part = [(h + hits.log_mass).logsumexp(0) for h, hits in zip(log_h, populations, strict=True)]
    return torch.stack(log_mass), torch.stack(part)


def share_reached(
    log_mass: Float64[Tensor, " population"], log_part: Float64[Tensor, " population"]
) -> tuple[float, Interval]:
    """log D, the mean of h over all hits, with its interval by the spread between populations."""
    log_d = float(log_part.logsumexp(0) - log_mass.logsumexp(0))
    share = log_mass.softmax(0)
    apart = share * ((log_part - log_mass - log_d).exp() - 1)
    count, size = len(log_mass), float(1 / share.square().sum())
    error = math.sqrt(float(apart.square().sum()) * count / (count - 1))
    stretch = 1 + error * math.sqrt(size)
    return log_d, log_interval(log_d, error, size - 1, upward=stretch)


def claim(log_probability: float, down: float, up: float, unmet: float = 0.0) -> Claim:
    """A claim by the arms of its interval, none of it above 1."""
    log_p = min(log_probability, 0.0)
    return Claim(log_p, (math.exp(log_p - down), math.exp(min(log_p + up, 0.0))), unmet)


def combined(claims: Sequence[Claim]) -> Claim:
    """The mean by precision; of claims that do not meet the largest, and what all cover.

    What missed a kind of input is too low, and seldom is an unbiased estimate far too high.
    """
    if not meet(claims):
        ends = [c.interval for c in claims]
        largest = max(c.log_probability for c in claims)
        return Claim(largest, (min(e[0] for e in ends), max(e[1] for e in ends)))
    log_p = torch.tensor([c.log_probability for c in claims], dtype=torch.float64)
    precision = torch.tensor([max(c.error, 1e-9) ** -2 for c in claims], dtype=torch.float64)
    share = (log_p + precision.log()).softmax(0)
    log_mean_p = float((log_p + precision.log()).logsumexp(0) - precision.log().logsumexp(0))
    arms = torch.tensor([(*c.arms, c.unmet) for c in claims], dtype=torch.float64)
    # as if their errors were one: populations serve both
    return claim(log_mean_p, *(share @ arms).tolist())


def meet(claims: Sequence[Claim]) -> bool:
    """Whether all intervals have a point in common."""
    return max(c.interval[0] for c in claims) <= min(c.interval[1] for c in claims)


class TogetherRun:
    """Rounds of splitting and leafwise for the only event of a job."""

    def __init__(self, job: Job, wanted: float) -> None:
        self.job, self.wanted, (self.event,) = job, wanted, job.events
        self.splitting = SplittingRun(job, Splitting(relative_error=wanted))
        self.leafwise = LeafRun(job, self.event, job.generator("leafwise", self.event))
        self.trace: list[Round] = []

    @property
    def spent(self) -> float:
        return self.splitting.spent + self.leafwise.spent

    def rounds(self) -> Iterator[Estimate]:
        """The answer after each round, all of them together as long as the budget."""
        left = self.job.budget - self.spent
        count = max(1, round(math.log2(left / (2 * FIRST_ROUND) + 1)))
        for number in range(count):
            end = self.spent + left * 2**number / (2**count - 1)
            self.splitting.round((end - self.spent) / 2)
            law = favoured_last(self.splitting, self.leafwise.last)
            answer = self.answer(self.leafwise.draws(law, end - self.spent))
            yield answer
            error = answer.standard_error if answer.is_two_sided else None
            if number and error is not None and error <= self.wanted * answer.probability:
                break
        self.job.progress(1.0)

    def hits(self, drawn: LeafDraws) -> list[Hits]:
        """The hits of each population that has any, weighed by its calls, with w by the draws."""
        found, run = [], self.splitting
        for population, calls in zip(run.populations, run.calls, strict=True):
            if population.hits:
                columns = zip(*population.found, strict=True)
                tokens, _, grade, log_mass = (torch.cat(column) for column in columns)
                log_w = self.leafwise.log_weights(drawn, tokens) + grade.log()
                found.append(Hits(log_mass + math.log(calls), log_w))
        return found

    def answer(self, drawn: LeafDraws) -> Estimate:
        """The estimate from all populations and the last draws."""
        alone, log_w = self.splitting.answer(), as_one_mean(drawn.strata)
        measured = joined(log_w, self.hits(drawn))
        macs = self.splitting.macs + self.leafwise.macs
        cost = Cost(math.ceil(macs / self.job.call_macs), 0, macs, alone.cost.seconds)
        drawn_hits = int((log_w > -math.inf).sum())
        seen: list[tuple[Tensor, ...]] = [*self.splitting.hits, *hits_of(drawn.strata)]
        statistics = {
            **alone.statistics,
            "splitting": alone.probability,
            "leafwise": math.exp(log_mean(log_w)),
            "leaves": float(len(drawn.strata)),
        }
        found: dict[str, Any] = {
            "samples": alone.samples + len(log_w),
            "hits": (alone.hits or 0) + drawn_hits,
            "near_ties": alone.near_ties + int(self.leafwise.evaluator.near_ties[0]),
            "witnesses": best_witnesses(Problem(self.job.model, self.job.inputs, self.event), seen),
            "statistics": statistics,
            "cost": cost,
        }
        claims = [measured] if isinstance(measured, Claim) else []
        if alone.is_two_sided:
            claims.append(Claim(alone.log_probability, alone.interval))
        if claims:
            mean = combined(claims)
            warnings = () if meet(claims) else (disagreement(claims),)
            found |= {
                "log_probability": mean.log_probability,
                "standard_error": mean.error * math.exp(mean.log_probability),
                "effective_sample_size": mean.error**-2,
                "interval": mean.interval,
                "no_interval": None,
                "warnings": warnings,
            }
        elif drawn_hits:
            found |= {"log_probability": min(log_mean(log_w), 0.0), "warnings": ()}
        answer = replace(alone, **found)
        self.trace.append(Round(cost.forwards, answer.log_probability, answer.interval))
        return replace(answer, trace=tuple(self.trace))


def disagreement(claims: Sequence[Claim]) -> str:
    """What to say where two claims do not meet."""
    ends = " and ".join(f"{c.interval[0]:.2g} … {c.interval[1]:.2g}" for c in claims)
    return f"leafwise and splitting disagree: {ends}. A larger budget would tell."
