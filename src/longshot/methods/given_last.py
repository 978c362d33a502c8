"""Extrapolation given the last token: the Gaussian tail of the gap behind each of its values.

    p̂ = Σ_y p(y)·Φ(μ_y/σ_y)

over all values y of the last free token, with μ_y and σ_y the mean and the deviation of the event's
gap over a few prefixes with y behind them. A prefix runs once with every y, one set of prefixes
serves all events, and no hit is needed. It is biased: given y the gap is no Gaussian, and of many
tokens with a noisy μ the luckiest count the most, so that it is more often too high than too low.
Variances are shrunk towards their mean, which tames the latter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Job
from longshot.evaluate import readout
from longshot.events import members_of
from longshot.inputs import Tree
from longshot.methods.base import Clock, Method, Need, register
from longshot.methods.last_token import Moments
from longshot.models import Model

ROWS = 512  # leaves that are unembedded at once
NO_INTERVAL = "The extrapolation is biased, and nothing tells by how much."


@register
@dataclass(frozen=True)
class GivenLast(Method):
    """Gaussian tails of the gap given the last token."""

    name: ClassVar[str] = "given_last"
    shares: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"token", "product"})

    def check(self, job: Job) -> None:
        super().check(job)
        tree = Tree(job.model, job.inputs)
        if tree.is_certain:
            raise LongshotError("given_last: with one free position there is nothing to vary.")
        _affordable(tree, job)

    def estimate(self, job: Job) -> list[Estimate]:
        clock, tree = Clock(), Tree(job.model, job.inputs)
        n, leaves = _affordable(tree, job), torch.arange(tree.leaf.size)
        members = [torch.tensor(members_of(e), device=job.model.device) for e in job.events]
        moments = Moments(len(members), len(leaves))
        for i, prefix in enumerate(tree.sample(n, job.shared_generator("prefixes")).split(1)):
            v = tree.leaves(prefix, leaves)[0]
            moments.add(leaves, gaps(job.model, v, members)[None])
            job.progress((i + 1) / n)
        log_p = (tree.leaf.log_probs + moments.log_given()).logsumexp(1).tolist()
        macs = n * tree.price()
        cost = Cost(math.ceil(macs / job.call_macs), 0, macs, clock.seconds)
        return [
            self.answer(
                job,
                event,
                log_probability=min(log_p[i], 0.0),
                no_interval=NO_INTERVAL,
                samples=n,
                shared_cost=cost,
            )
            for i, event in enumerate(job.events)
        ]


def gaps(
    model: Model, v: Float[Tensor, "rows width"], members: list[Int64[Tensor, " member"]]
) -> Float64[Tensor, "event rows"]:
    """The lead of each event's best token over all others, from one set of logits."""
    found = []
    for block in v.split(ROWS):
        logits = readout(model).logits(block)
        top = logits.topk(max(map(len, members)) + 1)
        for own in members:
            others = top.values.masked_fill(torch.isin(top.indices, own), -math.inf)
            found.append(logits[:, own].amax(1) - others.amax(1))
    by_block = [
        torch.stack(found[i : i + len(members)]) for i in range(0, len(found), len(members))
    ]
    return torch.cat(by_block, 1).double().cpu()


def _affordable(tree: Tree, job: Job) -> int:
    """How many prefixes with all their leaves the budget pays for."""
    n = job.budget * job.call_macs // tree.price()
    if n < 2:
        raise LongshotError(
            f"given_last: two prefixes of {job.inputs.name!r} with their {tree.leaf.size} leaves "
            f"cost as much as {math.ceil(2 * tree.price() / job.call_macs)} plain calls; "
            f"the budget is {job.budget}."
        )
    return n
