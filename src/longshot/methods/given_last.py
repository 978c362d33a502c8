"""Extrapolation given the last token: the tail of the gap behind each of its values.

    p̂ = Σ_y p(y)·Q(−μ_y/σ_y),      gap(x, y) = m + a_x + b_y + r,   μ_y = m + b_y,

over all values y of the last free token, with σ_y the deviation of a_x + r and Q the upper tail of
its standardised law, which all y share: a prefix x has a few of the values behind it, each in turn,
and one set of prefixes serves all events. No hit is needed. The effects a and b are shrunk towards
0 by as much as they are noise (random effects, in turn until they settle), because of many tokens
the luckiest count the most; σ_y towards the mean.

Q is a saddlepoint approximation (Lugannani and Rice's kind, Daniels 1987, in the form that is right
for a normal law). With K the cumulant function of what is left, θ the root of K′(θ) = z, and
λ = θ·√K″(θ),

    Q(z) = exp( K(θ) − θ·z + λ²/2 )·Φ(−λ).

Its tail is that of a few draws, which have seldom met what makes the rarest events: a share
ε = 0.003 of them is taken to be twice as wide, (1 − ε)·Q(z) + ε·Q(z/2). The estimate is biased: the
left over law is not the same behind each y.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
from longshot.methods.last_token import PRIOR
from longshot.models import Model

ROWS = 512  # leaves that are unembedded at once
# Chosen on hex, camel and english.
LEAVES = 32  # behind each prefix
PASSES, TOGETHER = 8, 16  # over all leaves, if there are prefixes enough; prefixes at once, at most
ROUNDS = 8  # between prefixes and leaves, of the effects
THETA = torch.linspace(0, 6, 241, dtype=torch.float64)
NEAR = 0.5  # below it the law is taken for normal
WIDE, SHARE = 2.0, 0.003  # of draws that are wider than the others
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
        n, generator = _affordable(tree, job), job.shared_generator("prefixes")
        members = [torch.tensor(members_of(e), device=job.model.device) for e in job.events]
        together = min(max(n * LEAVES // (PASSES * tree.leaf.size), 1), TOGETHER)
        every, found, macs = torch.arange(n), [], 0
        prefixes, turns = tree.sample(n, generator), _in_turn(tree.leaf.size, generator)
        for x in every.split(together):
            leaves = next(turns)
            v = tree.leaves(prefixes[x], leaves).flatten(0, 1)
            pairs = torch.cartesian_prod(x, leaves).unbind(1)
            found.append((*pairs, gaps(job.model, v, members)))
            macs += len(x) * _price(tree, len(leaves))
            job.progress((int(x[-1]) + 1) / n)
        x, y, gap = (torch.cat(column, -1) for column in zip(*found, strict=True))
        mean, sigma, rest = two_way(gap, x, y, tree.leaf.size)
        log_q = torch.stack(
            [log_tail(-m / s, r) for m, s, r in zip(mean, sigma, rest, strict=True)]
        )
        log_p = (tree.leaf.log_probs + log_q).logsumexp(1).tolist()
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


def two_way(
    gap: Float64[Tensor, "event draw"],
    x: Int64[Tensor, " draw"],
    y: Int64[Tensor, " draw"],
    size: int,
) -> tuple[
    Float64[Tensor, "event leaf"], Float64[Tensor, "event leaf"], Float64[Tensor, "event draw"]
]:
    """μ_y and σ_y of each event and leaf, and (a_x + r)/σ_y of each draw."""
    per_x, per_y = torch.bincount(x).double(), torch.bincount(y, minlength=size).double()
    m = gap.mean(1, keepdim=True)
    b, shrink_x, shrink_y = gap.new_zeros(len(gap), size), m.new_ones(m.shape), m.new_ones(m.shape)
    for _ in range(ROUNDS):
        a = _sums(gap - m - b[:, y], x, per_x) / (per_x + shrink_x)
        b = _sums(gap - m - a[:, x], y, per_y) / (per_y + shrink_y)
        noise = (gap - m - a[:, x] - b[:, y]).square().mean(1, keepdim=True).clamp(min=1e-12)
        shrink_x = noise / _variance(a, noise / (per_x.mean() + shrink_x))
        shrink_y = noise / _variance(b, noise / (per_y.mean() + shrink_y))
    left = gap - m - b[:, y]
    pooled = left.square().mean(1, keepdim=True)
    freedom = per_y - per_y / (per_y + shrink_y)  # what b_y did not take
    variance = (_sums(left.square(), y, per_y) + PRIOR * pooled) / (freedom + PRIOR)
    sigma = variance.clamp(min=1e-12).sqrt()
    return m + b, sigma, left / sigma[:, y]


def _sums(
    values: Float64[Tensor, "event draw"],
    index: Int64[Tensor, " draw"],
    like: Float64[Tensor, " n"],
) -> Float64[Tensor, "event n"]:
    return values.new_zeros(len(values), len(like)).index_add(1, index, values)


def _variance(
    effects: Float64[Tensor, "event n"], lost: Float64[Tensor, "event one"]
) -> Float64[Tensor, "event one"]:
    """The variance of shrunk effects with what shrinking took from it."""
    return effects.square().mean(1, keepdim=True) + lost


def log_tail(
    z: Float64[Tensor, " leaf"], rest: Float64[Tensor, " draw"]
) -> Float64[Tensor, " leaf"]:
    """log Q(z) of the law of which some draws are given, some of them taken as wider."""
    narrow, wide = saddlepoint(z, rest), saddlepoint(z / WIDE, rest)
    return torch.logaddexp(math.log1p(-SHARE) + narrow, math.log(SHARE) + wide)


def saddlepoint(
    z: Float64[Tensor, " leaf"], rest: Float64[Tensor, " draw"]
) -> Float64[Tensor, " leaf"]:
    """log Q(z) of the law of which some draws are given, after standardising them."""
    rest = (rest - rest.mean()) / rest.std(correction=0).clamp(min=1e-12)
    exponent = THETA[:, None] * rest
    k = exponent.logsumexp(1) - math.log(len(rest))
    tilted = exponent.softmax(1)
    k1 = tilted @ rest
    k2 = (tilted @ rest.square() - k1.square()).clamp(min=1e-9)
    i = torch.searchsorted(k1.contiguous(), z.clamp(min=0)).clamp(max=len(THETA) - 1)
    root = THETA[i] * k2[i].sqrt()
    # K − θ·z is flat at the root, so the grid's nearest θ will do; beyond the grid it is a line
    log_q = k[i] - THETA[i] * z + root.square() / 2 + torch.special.log_ndtr(-root)
    return torch.where(z < NEAR, torch.special.log_ndtr(-z), log_q)


def _in_turn(size: int, generator: torch.Generator) -> Iterator[Int64[Tensor, " leaf"]]:
    """A few leaves at a time, all of them before any comes again."""
    while True:
        yield from torch.randperm(size, generator=generator).split(LEAVES)


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


def _price(tree: Tree, leaves: int) -> int:
    """Multiply-accumulates of a prefix with some leaves, each unembedded."""
    stem = tree.network.macs(tree.prefix_length)
    return stem + tree.leaves_macs(leaves, 0) + leaves * tree.model.unembedding.numel()


def _affordable(tree: Tree, job: Job) -> int:
    """How many prefixes with a few leaves each the budget pays for."""
    size, price = tree.leaf.size, _price(tree, min(LEAVES, tree.leaf.size))
    n, least = job.budget * job.call_macs // price, max(2, math.ceil(size / LEAVES))
    if n < least:
        raise LongshotError(
            f"given_last: the {size} last tokens of {job.inputs.name!r}, {LEAVES} behind a prefix, "
            f"cost as much as {math.ceil(least * price / job.call_macs)} plain calls; "
            f"the budget is {job.budget}."
        )
    return n
