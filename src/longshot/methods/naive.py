"""Plain sampling: the share of n inputs that produce the target.

    p̂ = (1/n) Σ_i 1[M(x_i) = t],   x_i ~ D

Unbiased, with Clopper and Pearson's exact interval; without a hit the interval still bounds the
probability from above. One set of samples serves all targets. An event of s tokens has the first
b/s of a budget of b, since a sample takes up to s calls: those that may still match go on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float64
from torch import Tensor

from longshot.estimate import Cost, Estimate, Job, Problem, best_witnesses
from longshot.evaluate import PlainContinuations, Winners, outcomes, winners
from longshot.methods.base import NO_HIT, Activations, Clock, Method, register
from longshot.numerics import binomial_interval


@register
@dataclass(frozen=True)
class Naive(Method):
    """Plain sampling."""

    name: ClassVar[str] = "naive"
    shares: ClassVar[bool] = True

    def estimate(self, job: Job) -> list[Estimate]:
        drawn = Activations(job, max(job.budget // event.steps for event in job.events))
        clock = Clock()
        won = winners(job.model, drawn.values)
        unembedding = Cost(macs=len(drawn.tokens) * job.model.unembedding.numel())
        shared = drawn.cost + unembedding + Cost(seconds=clock.seconds)
        estimates = []
        for event in job.events:
            clock, n = Clock(), job.budget // event.steps
            go_on = PlainContinuations(job.model, drawn.tokens)
            first = Winners(won.token[:n], won.near[:n])
            found = outcomes(job.model, event, drawn.values[:n], go_on, first)
            problem, hits = Problem(job.model, job.inputs, event), len(found.rows)
            estimates.append(
                self.answer(
                    job,
                    event,
                    samples=n,
                    hits=hits,
                    near_ties=found.near_ties,
                    witnesses=best_witnesses(
                        problem, [(drawn.tokens[found.rows], found.gap, found.grade)]
                    ),
                    warnings=() if hits else (NO_HIT,),
                    cost=Cost(go_on.forwards, 0, go_on.macs, clock.seconds),
                    shared_cost=shared.share(n, len(drawn.tokens)),
                    **mean_grade(found.grade, n),
                )
            )
        job.progress(1.0)
        return estimates


def mean_grade(grade: Float64[Tensor, " hit"], n: int) -> dict[str, Any]:
    """The mean of n grades of which those above zero are given, its error and its interval.

    Grades of 0 and 1 alone are counts. Others lie between, and their mean varies no more than that
    of counts: the interval of counts, rounded outwards, is kept. Their own spread would give a
    shorter one, which a few inputs of high grade that no draw met make wrong.
    """
    total = float(grade.sum())
    p = total / n
    error = math.sqrt(max(float(grade.square().sum()) / n - p * p, 0.0) / n)
    low, _ = binomial_interval(math.floor(total), n)
    _, high = binomial_interval(math.ceil(total), n)
    return {
        "log_probability": math.log(p) if total else -math.inf,
        "standard_error": error or None,
        "interval": (low, high),
    }
