"""Conditional sampling: draw a prefix, try every token of the last free position behind it.

    p̂ = (1/n) Σ_i Σ_y p(y)·1[M(x_i, y, tail) = t],   x_i ~ D up to the last free position

y runs over that position's whole support and `tail` is the fixed text after it (Rao and Blackwell's
averaging over y, as in `design.md`, "Conditional truth"). Unbiased. Leaves of one prefix are not
independent, so the standard error comes from the spread between the n prefixes. One set of leaves
serves all targets.

**The interval** is Student's on the log scale, its halves stretched by 1 + 3/√m and 1 + 1/√m where
m is how many equal prefixes those that hit are worth. Up, because a few prefixes often hold much of
an event's probability, and while they are missing both the mean and its spread look too small;
down, because only an m of ten or more bears an interval, and luck reaches it too.

**What it costs.** The network runs a prefix once and a leaf only over its own tokens. A budget of b
forward calls buys the n for which the multiply-accumulates of n prefixes with all their leaves stay
within those of b plain calls; `forwards` reports them in plain calls, rounded up. Unembedding is
part of no method's price of a call, and here every leaf has one: `macs` counts them all. An event
of several tokens has as many prefixes as if every leaf were followed to its end, though only those
that may still match are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Job, Problem, Witness, best_witnesses
from longshot.evaluate import Winners, activations, follow, smallest_gap, winners
from longshot.events import Event
from longshot.inputs import ProductInputs
from longshot.methods.base import NO_HIT, Clock, Method, register, require_positive
from longshot.models import Model, PrefixNetwork
from longshot.numerics import effective_sample_size, log_interval, log_mean, relative_error

LEAVES = 1024  # rows of one extension: large enough for fast products, small enough for the cache
FEWEST, MOST = 8, 64  # prefixes that run together
UPWARD, DOWNWARD = 3, 1  # chosen on two shipped models, judged on a third: docs/methods.md
NEVER = "Every input was tried: none produces the target."
KEPT = 256  # hits of an event whose activations are kept


class Branches(NamedTuple):
    """Some of the leaves of a batch of prefixes."""

    prefixes: Int[Tensor, "prefix prefix_length"]
    leaves: slice
    """Which tokens of the support they end with."""
    activation: Float[Tensor, "prefix leaf width"]
    cache: Any

    def first(self, count: int) -> Branches:
        """The same leaves of the first prefixes only."""
        few = self.activation[:count]
        return self._replace(prefixes=self.prefixes[:count], activation=few)


class Tree:
    """The inputs as prefixes and leaves, run in batches of one fixed shape.

    `batch` prefixes run together, and their leaves in chunks of `chunk` for each, the last filled
    up, so that a leaf's numbers do not depend on how many others are asked for.
    """

    def __init__(self, model: Model, inputs: ProductInputs) -> None:
        if not inputs.free_positions:
            raise LongshotError(
                f"Every position of the inputs {inputs.name!r} is fixed, so there is nothing to "
                "enumerate: one plain sample is the answer."
            )
        if not isinstance(model.network, PrefixNetwork):
            raise LongshotError(
                f"{model.name} has no prefix cache, which conditional sampling needs; "
                "use plain sampling."
            )
        self.model, self.inputs = model, inputs
        self.network: Any = model.network
        self.prefix_length = inputs.free_positions[-1]
        self.leaf = inputs.positions[self.prefix_length]
        after = inputs.positions[self.prefix_length + 1 :]
        self.tail = torch.tensor([int(d.support[0]) for d in after], dtype=torch.int64)
        self.batch = max(FEWEST, min(MOST, LEAVES // self.leaf.size))
        chunks = math.ceil(self.batch * self.leaf.size / LEAVES)
        self.chunk = math.ceil(self.leaf.size / chunks)

    @property
    def is_certain(self) -> bool:
        """Only one prefix exists: its leaves are all the inputs there are."""
        return len(self.inputs.free_positions) == 1

    @property
    def prefix_macs(self) -> int:
        """Multiply-accumulates of a prefix with all its leaves, unembedding left out."""
        return self.price(1)

    def price(self, steps: int) -> int:
        """The same with every leaf followed for so many tokens."""
        stem = self.network.prefix_macs(self.prefix_length) if self.prefix_length else 0
        return int(stem + self.leaf.size * sum(self.leaf_macs(more) for more in range(steps)))

    def leaf_macs(self, more: int) -> int:
        """Of a leaf that goes on for some tokens, on its prefix's cache."""
        return int(self.network.leaf_macs(1 + len(self.tail) + more, self.prefix_length))

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n prefix_length"]:
        """`n` independent prefixes."""
        return self.inputs.sample(n, generator)[:, : self.prefix_length]

    def whole(
        self, prefixes: Int[Tensor, "n prefix_length"], leaves: Int[Tensor, " n"]
    ) -> Int[Tensor, "n length"]:
        """The inputs that these prefixes make with these places in the support."""
        tail = self.tail.expand(len(prefixes), -1)
        return torch.cat([prefixes, self.leaf.support[leaves, None], tail], 1)

    @torch.no_grad()
    def grow(self, prefixes: Int[Tensor, "n prefix_length"]) -> Iterator[Branches]:
        """All leaves of at most `batch` prefixes, a chunk of the support at a time."""
        n = len(prefixes)
        padded = torch.cat([prefixes, prefixes[:1].expand(self.batch - n, -1)])
        cache = self.network.prefix(self.model.embed(padded)) if self.prefix_length else None
        for start in range(0, self.leaf.size, self.chunk):
            tokens = self.leaf.support[start : start + self.chunk]
            here = slice(start, start + len(tokens))
            tokens = torch.cat([tokens, tokens[:1].expand(self.chunk - len(tokens))])
            tails = torch.cat([tokens[:, None], self.tail.expand(self.chunk, -1)], 1)
            if cache is None:
                activation = self.network.activation(self.model.embed(tails))
                activation = activation.expand(self.batch, -1, -1)
            else:
                embedded = self.model.embed(tails).expand(self.batch, -1, -1, -1)
                activation = self.network.extend(cache, embedded)
            activation = activation[:n, : here.stop - here.start].contiguous()
            yield Branches(prefixes, here, activation, cache)


class Onwards:
    """Leaves that go on with tokens of their own, and what that took.

    A few go on by plain passes, many by growing all their neighbours with them on the cache:
    whatever costs less, so that following every leaf is the most it can cost.
    """

    def __init__(self, tree: Tree, branches: Branches) -> None:
        self.tree, self.branches = tree, branches
        self.macs = self.unembedded = 0

    @torch.no_grad()
    def __call__(
        self, rows: Int[Tensor, " some"], path: Int[Tensor, "some step"]
    ) -> Float[Tensor, "some width"]:
        tree, model = self.tree, self.tree.model
        n, leaves = self.branches.activation.shape[:2]
        row, leaf = rows // leaves, rows % leaves
        inputs = tree.whole(self.branches.prefixes[row], leaf + self.branches.leaves.start)
        longer = torch.cat([inputs, path], 1)
        plainly = len(rows) * model.network.macs(longer.shape[1])
        together = n * leaves * tree.leaf_macs(path.shape[1])
        self.macs += min(plainly, together)
        self.unembedded += len(rows)
        if plainly <= together:
            return activations(model, longer)
        own = longer[:, tree.prefix_length :]
        tails = own[:1].expand(tree.batch, tree.chunk, -1).clone()
        tails[row, leaf] = own
        embedded = model.embed(tails.flatten(0, 1)).unflatten(0, tails.shape[:2])
        v: Tensor = tree.network.extend(self.branches.cache, embedded)[row, leaf]
        return v


class Tally:
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
        here, onwards = slice(n * leaves), Onwards(self.tree, branches)
        v = branches.activation.flatten(0, 1)
        hits = follow(model, self.event, v, won.token[here], onwards)
        self.near_ties += int(won.near[here].sum()) + hits.near_ties
        self.macs, self.unembedded = self.macs + onwards.macs, self.unembedded + onwards.unembedded
        if not len(hits.rows):
            return
        hit = torch.zeros(n * leaves, dtype=torch.float64)
        hit[hits.rows] = 1
        probabilities = self.tree.leaf.probabilities[branches.leaves]
        self.mass[start : start + n] += hit.view(n, leaves) @ probabilities
        kept = hits.first(max(KEPT - len(self.tokens), 0))
        row, leaf = kept.rows // leaves, kept.rows % leaves + branches.leaves.start
        self.tokens = torch.cat([self.tokens, self.tree.whole(branches.prefixes[row], leaf)])
        self.gaps = torch.cat([self.gaps, smallest_gap(model, self.event, kept)])

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
    needs: ClassVar[Literal["samples"]] = "samples"
    least_effective: float = 10.0
    """How many equal hits the prefixes must be worth before an interval is given."""

    def __post_init__(self) -> None:
        require_positive(self, least_effective=self.least_effective)

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

    def _mean(self, tally: Tally) -> dict[str, Any]:
        """The mean over prefixes, and what their spread says of its error."""
        mass = tally.mass.log()
        log_probability, effective = min(log_mean(mass), 0.0), effective_sample_size(mass)
        error, p = relative_error(mass), math.exp(log_probability)
        known: dict[str, Any] = {
            "log_probability": log_probability,
            "effective_sample_size": effective,
            "standard_error": None if error is None else error * p,
        }
        if tally.tree.is_certain:
            return known | {"standard_error": 0.0, "interval": (p, p)}
        if not effective:
            reason = "no input produced the target"
        elif effective < self.least_effective:
            reason = (
                f"the prefixes that hit are worth {effective:.1f} equal ones, "
                f"and an interval needs {self.least_effective:g}"
            )
        elif error is None:
            reason = "all prefixes agree, so their spread says nothing of the error"
        else:
            up, down = (1 + stretch / math.sqrt(effective) for stretch in (UPWARD, DOWNWARD))
            interval = log_interval(log_probability, error, effective - 1, upward=up, downward=down)
            return known | {"interval": interval}
        return known | {"no_interval": reason}


def _affordable(tree: Tree, job: Job, steps: int = 1) -> int:
    """How many prefixes the budget pays for, if all their leaves are followed for `steps`."""
    call, price = job.model.network.macs(job.inputs.length), tree.price(steps)
    n = job.budget * call // price
    if n < 1:
        raise LongshotError(
            f"One prefix of {job.inputs.name!r} with its {tree.leaf.size} leaves costs as much as "
            f"{math.ceil(price / call)} plain calls; the budget is {job.budget}."
        )
    return 1 if tree.is_certain else n


def _enumerate(tree: Tree, prefixes: Int[Tensor, "n prefix_length"], job: Job) -> list[Tally]:
    """Every leaf of every prefix, seen by every event that can afford the prefix."""
    tallies = [Tally(tree, e, _affordable(tree, job, e.steps)) for e in job.events]
    prefixes = prefixes[: max(len(tally.mass) for tally in tallies)]
    for first in range(0, len(prefixes), tree.batch):
        batch = prefixes[first : first + tree.batch]
        for branches in tree.grow(batch):
            won = winners(job.model, branches.activation.flatten(0, 1))
            for tally in tallies:
                tally.add(first, branches, won)
        job.progress((first + len(batch)) / len(prefixes))
    return tallies


def _costs(tally: Tally, seconds: float) -> dict[str, Cost]:
    """What an event's leaves took, and following some of them; seconds are all shared."""
    tree, n = tally.tree, len(tally.mass)
    call, unembedding = tree.network.macs(tree.inputs.length), tree.model.unembedding.numel()
    grown = n * tree.prefix_macs
    forwards = math.ceil(grown / call)
    more = math.ceil((grown + tally.macs) / call) - forwards
    return {
        "shared_cost": Cost(forwards, 0, grown + n * tree.leaf.size * unembedding, seconds),
        "cost": Cost(more, 0, tally.macs + tally.unembedded * unembedding),
    }
