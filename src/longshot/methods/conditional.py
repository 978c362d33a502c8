"""Conditional sampling: draw a prefix, try every token of the last free position behind it.

    p̂ = (1/n) Σ_i Σ_y p(y)·1[M(x_i, y, tail) = t],   x_i ~ D up to the last free position

y runs over that position's whole support and `tail` is the fixed text after it (Rao and Blackwell's
averaging over y). The estimate is unbiased. Leaves of one prefix are not independent, so the
standard error comes from the spread between the n prefixes. One set of leaves serves all targets.

**What it costs.** The network runs a prefix once and a leaf only over its own tokens; every leaf is
unembedded. A budget of b forward calls buys the n for which the multiply-accumulates of n prefixes
with all their leaves stay within those of b plain calls, the unembedding included in both;
`forwards` reports them in plain calls, rounded up. An event of several tokens has as many prefixes
as if every leaf were followed to its end, though only those that may still match are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Job, Problem, Witness, best_witnesses
from longshot.evaluate import Winners, activations, outcomes, winners
from longshot.events import Event
from longshot.inputs import Branches, Tree
from longshot.intervals import fields_of, of_weighted_draws
from longshot.methods.base import NO_HIT, Clock, Method, Need, register
from longshot.numerics import effective_sample_size, log_mean, pareto_k, relative_error

NEVER = "Every input was tried: none produces the target."
KEPT = 256  # hits of an event whose activations are kept


class LeafContinuations:
    """Leaves that go on with tokens of their own, and what that took.

    A few go on by plain passes, many by growing all their neighbours with them on the cache:
    whatever costs less, so that following every leaf is the most it can cost.
    """

    def __init__(self, tree: Tree, branches: Branches) -> None:
        self.tree, self.branches = tree, branches
        self.macs = self.unembedded = 0

    @property
    def tokens(self) -> Int[Tensor, "leaf length"]:
        """All inputs that the leaves make."""
        n, leaves = self.branches.activation.shape[:2]
        row, leaf = torch.arange(n).repeat_interleave(leaves), torch.arange(leaves).repeat(n)
        return self.tree.whole(self.branches.prefixes[row], leaf + self.branches.leaves.start)

    def __call__(
        self, rows: Int[Tensor, " some"], path: Int[Tensor, "some step"]
    ) -> Float[Tensor, "some width"]:
        tree, model = self.tree, self.tree.model
        n, leaves = self.branches.activation.shape[:2]
        row, leaf = rows // leaves, rows % leaves
        plain = len(rows) * model.network.macs(tree.inputs.length + path.shape[1])
        together = n * tree.leaves_macs(leaves, path.shape[1])
        self.macs += min(plain, together)
        self.unembedded += len(rows)
        if plain > together:
            return tree.extend(self.branches, row, leaf, path)
        inputs = tree.whole(self.branches.prefixes[row], leaf + self.branches.leaves.start)
        return activations(model, torch.cat([inputs, path], 1))


class LeafTally:
    """What the shared leaves say of one event: its probability given each prefix, and inputs."""

    def __init__(self, tree: Tree, event: Event, prefixes: int) -> None:
        self.tree, self.event = tree, event
        self.mass = torch.zeros(prefixes, dtype=torch.float64)
        self.tokens = torch.empty(0, tree.inputs.length, dtype=torch.int64)
        self.gaps = torch.empty(0, dtype=torch.float64)
        self.macs = self.unembedded = self.near_ties = 0

    def add(self, start: int, branches: Branches, won: Winners) -> None:
        """Count the leaves of prefixes `start`, `start` + 1, … on which the event occurs."""
        model, leaves = self.tree.model, branches.activation.shape[1]
        branches = branches.first(max(len(self.mass) - start, 0))
        n = len(branches.prefixes)
        here, go_on = slice(n * leaves), LeafContinuations(self.tree, branches)
        v, first = branches.activation.flatten(0, 1), Winners(won.token[here], won.near[here])
        room = max(KEPT - len(self.tokens), 0)
        hits = outcomes(model, self.event, v, go_on, first, room)
        self.near_ties += hits.near_ties
        self.macs, self.unembedded = self.macs + go_on.macs, self.unembedded + go_on.unembedded
        if not len(hits.rows):
            return
        grade = torch.zeros(n * leaves, dtype=torch.float64)
        grade[hits.rows] = hits.grade
        probabilities = self.tree.leaf.probabilities[branches.leaves]
        self.mass[start : start + n] += (grade.view(n, leaves) * probabilities).sum(1)
        kept = hits.rows[:room]
        row, leaf = kept // leaves, kept % leaves + branches.leaves.start
        self.tokens = torch.cat([self.tokens, self.tree.whole(branches.prefixes[row], leaf)])
        self.gaps = torch.cat([self.gaps, hits.gap[:room]])

    def witnesses(self) -> tuple[Witness, ...]:
        """The most probable of the first hits."""
        problem = Problem(self.tree.model, self.tree.inputs, self.event)
        return best_witnesses(problem, [(self.tokens, self.gaps)])


@register
@dataclass(frozen=True)
class Conditional(Method):
    """Prefixes from the inputs, the last free position enumerated."""

    name: ClassVar[str] = "conditional"
    shares: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"product"})

    def estimate(self, job: Job) -> list[Estimate]:
        clock = Clock()
        tree = Tree(job.model, job.inputs)
        prefixes = tree.sample(_affordable(tree, job), job.shared_generator("prefixes"))
        tallies = _enumerate(tree, prefixes, job)
        seconds = clock.seconds
        return [
            self.answer(
                job,
                tally.event,
                samples=len(tally.mass),
                hits=int((tally.mass > 0).sum()),
                near_ties=tally.near_ties,
                witnesses=tally.witnesses(),
                statistics={"leaves": float(len(tally.mass) * tree.leaf.size)},
                warnings=() if tally.mass.any() else (NEVER if tree.is_certain else NO_HIT,),
                **_costs(tally, seconds),
                **self._mean(tally),
            )
            for tally in tallies
        ]

    def check(self, job: Job) -> None:
        super().check(job)
        tree = Tree(job.model, job.inputs)
        for event in job.events:
            _affordable(tree, job, event.steps)

    def _mean(self, tally: LeafTally) -> dict[str, Any]:
        """The mean over prefixes, and what their spread says of its error."""
        mass = tally.mass.log()
        log_probability, effective = min(log_mean(mass), 0.0), effective_sample_size(mass)
        error, p = relative_error(mass), math.exp(log_probability)
        k = pareto_k(mass[mass > -math.inf])
        known: dict[str, Any] = {
            "log_probability": log_probability,
            "effective_sample_size": effective,
            "pareto_k": k,
            "standard_error": None if error is None else error * p,
        }
        if tally.tree.is_certain:
            return known | {"standard_error": 0.0, "interval": (p, p)}
        return known | fields_of(of_weighted_draws(log_probability, error, effective, k))


def _call(tree: Tree) -> int:
    """The multiply-accumulates of one plain call, its unembedding included."""
    model = tree.model
    return model.network.macs(tree.inputs.length) + model.unembedding.numel()


def _affordable(tree: Tree, job: Job, steps: int = 1) -> int:
    """How many prefixes the budget pays for, if all their leaves are followed for `steps`."""
    call, price = _call(tree), tree.price(steps)
    n = job.budget * call // price
    if n < 1:
        raise LongshotError(
            f"One prefix of {job.inputs.name!r} with its {tree.leaf.size} leaves costs as much as "
            f"{math.ceil(price / call)} plain calls; the budget is {job.budget}."
        )
    return 1 if tree.is_certain else n


def _enumerate(tree: Tree, prefixes: Int[Tensor, "n prefix_length"], job: Job) -> list[LeafTally]:
    """Every leaf of every prefix, seen by every event that can afford the prefix."""
    tallies = [LeafTally(tree, e, _affordable(tree, job, e.steps)) for e in job.events]
    prefixes = prefixes[: max(len(tally.mass) for tally in tallies)]
    for first in range(0, len(prefixes), tree.batch):
        batch = prefixes[first : first + tree.batch]
        for branches in tree.grow(batch):
            won = winners(job.model, branches.activation.flatten(0, 1))
            for tally in tallies:
                tally.add(first, branches, won)
        job.progress((first + len(batch)) / len(prefixes))
    return tallies


def _costs(tally: LeafTally, seconds: float) -> dict[str, Cost]:
    """What an event's leaves took, and following some of them; seconds are all shared."""
    tree, call = tally.tree, _call(tally.tree)
    grown = len(tally.mass) * tree.price()
    more = tally.macs + tally.unembedded * tree.model.unembedding.numel()
    forwards = math.ceil(grown / call)
    return {
        "shared_cost": Cost(forwards, 0, grown, seconds),
        "cost": Cost(math.ceil((grown + more) / call) - forwards, 0, more),
    }
