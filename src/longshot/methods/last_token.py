"""What the last free token decides: the gap given each of its values, and laws that follow from it.

Given the last free token y the gap over the other tokens is close to a Gaussian of mean μ_y and
deviation σ_y, so that Φ(μ_y/σ_y) is about the probability of the event given y. A prefix is run
once and any number of last tokens behind it; the gap is to a few rivals that often win.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from longshot.estimate import Job
from longshot.evaluate import activations, readout
from longshot.events import Event
from longshot.inputs import (
    ChangedInputs,
    Law,
    TokenDistribution,
    Tree,
    UnchangedInputs,
    as_product,
    is_product,
)
from longshot.models import CachedNetwork, dense

RIVALS = 64
PLAIN = 32  # draws that choose the rivals, their last tokens each as likely as any other
PRIOR = 4.0  # prefixes that the mean variance is worth in a token's own
ROWS = 4096  # leaves of one extension

# Of the pilot of one target; chosen, as those of splitting, on hex, camel and english.
SHARES = (1, 8, 64)  # of the leaves: all, the best eighth, the best sixty-fourth
FEWEST = 16  # leaves
PILOT = 1 / 16  # of the budget
CALLS = (128, 1024)  # the fewest and the most that it takes
WIDER = 1.2  # the factor of σ where it decides what to try
POWER = 0.3  # of p(y)·Φ in r
KEPT = 0.3  # the share of p(y) in r


class Moments:
    """Count, mean and squared deviations of the gap behind each leaf, for some events at once."""

    def __init__(self, events: int, leaves: int) -> None:
        self.count = torch.zeros(leaves, dtype=torch.float64)
        self.mean, self.squares = torch.zeros(2, events, leaves, dtype=torch.float64)

    def add(self, leaf: Int[Tensor, " leaf"], gap: Float64[Tensor, "prefix event leaf"]) -> None:
        """Take up the gaps of more prefixes behind some leaves."""
        n, before = len(gap), self.count[leaf]
        mean = gap.mean(0)
        apart = mean - self.mean[:, leaf]
        self.squares[:, leaf] += (gap - mean).square().sum(0)
        self.squares[:, leaf] += apart.square() * before * n / (before + n)
        self.mean[:, leaf] += apart * n / (before + n)
        self.count[leaf] += n

    @property
    def sigma(self) -> Float64[Tensor, "event leaf"]:
        """The deviation of the gap, by variances that are shrunk towards their mean."""
        freedom = (self.count - 1).clamp(min=0)
        pooled = self.squares.sum(1, keepdim=True) / freedom.sum().clamp(min=1)
        variance = (self.squares + PRIOR * pooled) / (freedom + PRIOR)
        return torch.sqrt(variance.clamp(min=1e-12))

    def log_given(self, wider: float = 1.0) -> Float64[Tensor, "event leaf"]:
        """log Φ(μ_y/σ_y) of each event and last token."""
        given: Tensor = torch.special.log_ndtr(self.mean / (wider * self.sigma))
        return given


class Gaps:
    """The lead of an event's best token over the likeliest of the others."""

    def __init__(self, tree: Tree, members: tuple[int, ...], generator: torch.Generator) -> None:
        self.out = readout(tree.model)
        leaf = torch.randint(tree.leaf.size, (PLAIN,), generator=generator)
        drawn = tree.whole(tree.sample(PLAIN, generator), leaf)
        likely = self.out.logits(activations(tree.model, drawn)).softmax(1).amax(0)
        self.own = torch.tensor(members, device=likely.device)
        likely[self.own] = -1.0
        count = min(RIVALS, tree.model.vocab_size - len(members))
        self.rivals: Int64[Tensor, " rival"] = likely.topk(count).indices

    def __call__(self, v: Float[Tensor, "rows width"]) -> Float64[Tensor, " rows"]:
        own, rivals = (
            dense(v.to(self.out.rows), self.out.rows[those], self.out.bias[those]).amax(1)
            for those in (self.own, self.rivals)
        )
        return (own - rivals).double().cpu()


def add_prefixes(
    moments: Moments,
    tree: Tree,
    gaps: Gaps,
    prefixes: Int64[Tensor, "n prefix_length"],
    leaves: Int[Tensor, " leaf"],
) -> None:
    """Run prefixes with some leaves behind each and take up their gaps."""
    for some in prefixes.split(max(1, ROWS // len(leaves))):
        v = tree.leaves(some, leaves)
        moments.add(leaves, gaps(v.flatten(0, 1)).view(len(some), 1, len(leaves)))


def prefix_macs(tree: Tree, leaves: int, members: int) -> int:
    """Multiply-accumulates of a prefix with some leaves and their gaps for an event."""
    stem = tree.network.macs(tree.prefix_length) + tree.leaves_macs(leaves, 0)
    return stem + leaves * tree.model.width * (RIVALS + members)


class Pilot(NamedTuple):
    """The law that a pilot chose, and the multiply-accumulates that it took."""

    law: Law
    macs: int


def pilot(job: Job, event: Event, generator: torch.Generator) -> Pilot:
    """A law under which last tokens that are worth trying come up often.

    Few prefixes run with all leaves, more with the best eighth, more with the best of these. Where
    there is no product, no memory, no token to lead or no budget for it, the law stays unchanged.
    """
    if not is_product(job.inputs):
        every = getattr(job.inputs, "free_positions", tuple(range(job.inputs.length)))
        return Pilot(UnchangedInputs(job.inputs, every), 0)
    inputs = as_product(job.inputs, "a pilot")
    unchanged = Pilot(UnchangedInputs(inputs, inputs.free_positions), 0)
    if len(inputs.free_positions) < 2 or not isinstance(job.model.network, CachedNetwork):
        return unchanged
    if not event.paths or inputs.free_positions[-1] == 0:
        return unchanged
    tree, call = Tree(job.model, inputs), job.call_macs
    members = event.paths[0][0].members  # of a longer path the first step tells the most
    budget = int(min(max(PILOT * job.budget, CALLS[0]), CALLS[1]) * call)
    size = tree.leaf.size
    counts = [min(max(size // share, FEWEST), size) for share in SHARES]
    least = PLAIN * call + 2 * sum(prefix_macs(tree, count, len(members)) for count in counts)
    if max(budget, least) > job.budget * call / 4:
        return unchanged
    gaps, moments = Gaps(tree, members, generator), Moments(1, size)
    macs, leaves = PLAIN * call, torch.arange(size)
    for stage, count in enumerate(counts):
        if stage:
            mass = tree.leaf.log_probs + moments.log_given()[0]
            leaves = mass.topk(count).indices.sort().values
        price = prefix_macs(tree, count, len(members))
        n = max(2, (budget - macs) // (len(SHARES) - stage) // price)
        add_prefixes(moments, tree, gaps, tree.sample(n, generator), leaves)
        macs += n * price
    aim = (POWER * (tree.leaf.log_probs + moments.log_given(WIDER)[0])).log_softmax(0)
    r = torch.logaddexp(aim + math.log(1 - KEPT), tree.leaf.log_probs + math.log(KEPT))
    return Pilot(ChangedInputs(inputs, TokenDistribution(tree.leaf.support, r)), macs)
