"""Plain sampling: the share of n inputs that produce the target.

    p̂ = (1/n) Σ_i 1[M(x_i) = t],   x_i ~ D

Unbiased, with Clopper and Pearson's exact interval; without a hit the interval still bounds the
probability from above. One set of samples serves all targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from longshot.estimate import Cost, Estimate, Job, Problem, best_witnesses
from longshot.evaluate import Decider, winners
from longshot.methods.base import NO_HIT, Activations, Clock, Method, register
from longshot.numerics import binomial_interval


@register
@dataclass(frozen=True)
class Naive(Method):
    """Plain sampling."""

    name: ClassVar[str] = "naive"
    shares: ClassVar[bool] = True

    def estimate(self, job: Job) -> list[Estimate]:
        n = job.budget
        clock = Clock()
        drawn = Activations(job, n)
        won = winners(job.model, drawn.values)
        unembedding = Cost(macs=n * job.model.unembedding.numel(), seconds=clock.seconds)
        shared = drawn.cost + unembedding
        estimates = []
        for event in job.events:
            hit = torch.isin(won.token, torch.tensor(event.members))
            hits = int(hit.sum())
            owner = torch.zeros(hits, dtype=torch.int64)
            gaps = Decider(job.model, [event])(drawn.values[hit], owner)
            problem = Problem(job.model, job.inputs, event)
            estimates.append(
                self.answer(
                    job,
                    event,
                    log_probability=math.log(hits / n) if hits else -math.inf,
                    standard_error=math.sqrt(hits * (n - hits) / n) / n if hits else None,
                    interval=binomial_interval(hits, n),
                    samples=n,
                    hits=hits,
                    near_ties=won.near_ties,
                    witnesses=best_witnesses(problem, [(drawn.tokens[hit], gaps)]),
                    warnings=() if hits else (NO_HIT,),
                    shared_cost=shared,
                )
            )
        job.progress(1.0)
        return estimates
