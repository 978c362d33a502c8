"""Plain sampling: the share of n inputs that produce the target.

    p̂ = (1/n) Σ_i 1[M(x_i) = t],   x_i ~ D

Unbiased, with Clopper and Pearson's exact interval; without a hit the interval still bounds the
probability from above. One set of samples serves all targets. An event of s tokens has the first
b/s of a budget of b, since a sample takes up to s calls: those that may still match go on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from longshot.estimate import Cost, Estimate, Job, Problem, best_witnesses
from longshot.evaluate import Plainly, follow, smallest_gap, winners
from longshot.methods.base import NO_HIT, Activations, Clock, Method, register
from longshot.numerics import binomial_interval


@register
@dataclass(frozen=True)
class Naive(Method):
    """Plain sampling."""

    name: ClassVar[str] = "naive"
    shares: ClassVar[bool] = True
    needs: ClassVar[Literal["samples"]] = "samples"

    def estimate(self, job: Job) -> list[Estimate]:
        drawn = Activations(job, max(job.budget // event.steps for event in job.events))
        clock = Clock()
        won = winners(job.model, drawn.values)
        unembedding = Cost(macs=len(drawn.tokens) * job.model.unembedding.numel())
        shared = drawn.cost + unembedding + Cost(seconds=clock.seconds)
        estimates = []
        for event in job.events:
            clock, n = Clock(), job.budget // event.steps
            onwards = Plainly(job.model, drawn.tokens)
            hit = follow(job.model, event, drawn.values[:n], won.token[:n], onwards)
            hits, gaps = len(hit.rows), smallest_gap(job.model, event, hit)
            problem = Problem(job.model, job.inputs, event)
            estimates.append(
                self.answer(
                    job,
                    event,
                    log_probability=math.log(hits / n) if hits else -math.inf,
                    standard_error=math.sqrt(hits * (n - hits) / n) / n or None,
                    interval=binomial_interval(hits, n),
                    samples=n,
                    hits=hits,
                    near_ties=int(won.near[:n].sum()) + hit.near_ties,
                    witnesses=best_witnesses(problem, [(drawn.tokens[hit.rows], gaps)]),
                    warnings=() if hits else (NO_HIT,),
                    cost=Cost(onwards.forwards, 0, onwards.macs, clock.seconds),
                    shared_cost=shared.share(n, len(drawn.tokens)),
                )
            )
        job.progress(1.0)
        return estimates
