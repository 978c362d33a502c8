"""All inputs, one by one: the exact probability of every event at once.

    P = Σ_x p(x)·1[M(x) = t]

Inputs that can be listed are walked as a tree of prefixes, so that each beginning they share runs
once. It is for templates of up to some 10⁵ prompts: the price must lie within the budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import WITNESSES, Cost, Estimate, Job, Problem, best_witnesses
from longshot.evaluate import Enumeration, outcomes, tokens_to_run, winners
from longshot.inputs import as_finite, is_finite
from longshot.methods.base import Clock, Method, register

MOST = 2**22  # inputs that are worth listing to find out what they would cost
NEVER = "No input produces the target."


@register
@dataclass(frozen=True)
class Exact(Method):
    """Every input there is."""

    name: ClassVar[str] = "exact"
    shares: ClassVar[bool] = True

    def check(self, job: Job) -> None:
        super().check(job)
        count, calls = as_finite(job.inputs, self.name).count, exact_calls(job)
        if calls is None or calls > job.budget:
            price = "more" if calls is None else f"as much as {calls} plain calls"
            raise LongshotError(
                f"exact: the {count:.3g} inputs of {job.inputs.name!r} cost {price}; "
                f"the budget is {job.budget}."
            )

    def estimate(self, job: Job) -> list[Estimate]:
        clock, count = Clock(), as_finite(job.inputs, self.name).count
        walk = Enumeration(job.model, job.inputs, max(event.reach for event in job.events))
        mass, hits, ties = [0.0] * len(job.events), [0] * len(job.events), [0] * len(job.events)
        found: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in job.events]
        seen = 0
        for leaves in walk:
            won, probability = winners(job.model, leaves.activation), leaves.log_prob.exp()
            for i, event in enumerate(job.events):
                hit = outcomes(job.model, event, leaves.activation, leaves.go_on, won)
                mass[i] += float((probability[hit.rows] * hit.grade).sum())
                hits[i], ties[i] = hits[i] + len(hit.rows), ties[i] + hit.near_ties
                part = leaves.log_prob[hit.rows] + hit.grade.log()
                largest = part.argsort(descending=True)[:WITNESSES]
                rows = hit.rows[largest]
                found[i].append((leaves.tokens[rows], hit.gap[largest], hit.grade[largest]))
            seen += len(leaves.tokens)
            job.progress(seen / count)
        macs = walk.macs + count * job.model.unembedding.numel()
        cost = Cost(math.ceil(macs / job.call_macs), 0, macs, clock.seconds)
        logs = [math.log(min(p, 1.0)) if p else -math.inf for p in mass]
        return [
            self.answer(
                job,
                event,
                log_probability=log_p,
                standard_error=0.0,
                interval=(math.exp(log_p), math.exp(log_p)),
                samples=count,
                hits=hits[i],
                near_ties=ties[i],
                witnesses=best_witnesses(Problem(job.model, job.inputs, event), found[i]),
                warnings=() if hits[i] else (NEVER,),
                shared_cost=cost,
                explanation=f"All {count} inputs were run.",
            )
            for i, (event, log_p) in enumerate(zip(job.events, logs, strict=True))
        ]


def exact_calls(job: Job) -> int | None:
    """The price of an enumeration in plain calls; None where it is out of the question.

    A token of an input costs about its share of a plain call, and every input is unembedded.
    """
    inputs, budget = job.inputs, job.budget * job.call_macs
    if not is_finite(inputs):
        return None
    unembedded = as_finite(inputs, "exact").count * job.model.unembedding.numel()
    if as_finite(inputs, "exact").count > MOST or unembedded > budget:
        return None
    each = job.model.network.macs(inputs.length) / inputs.length
    return math.ceil((tokens_to_run(inputs) * each + unembedded) / job.call_macs)
