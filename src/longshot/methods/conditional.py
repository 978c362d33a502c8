"""Conditional sampling: draw a prefix, try every token of the last free position behind it.

    p̂ = (1/n) Σ_i Σ_y p(y)·1[M(x_i, y, tail) = t],   x_i ~ D up to the last free position

y runs over that position's whole support and `tail` is the fixed text after it (Rao and Blackwell's
averaging over y, as in `design.md`, "Conditional truth"). Unbiased. Leaves of one prefix are not
independent, so the standard error comes from the spread between the n prefixes; the interval is
Student's on the log scale. One set of leaves serves all targets.

**What it costs.** The network runs a prefix once and a leaf only over its own tokens. A budget of b
forward calls buys the n for which the multiply-accumulates of n prefixes with all their leaves stay
within those of b plain calls; `forwards` reports them in plain calls, rounded up. Unembedding is
part of no method's price of a call, and here every leaf has one: `macs` counts them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Job, Problem, Witness, best_witnesses
from longshot.evaluate import Decider, winners
from longshot.events import Event
from longshot.inputs import ProductInputs
from longshot.methods.base import NO_HIT, Clock, Method, register, require_positive
from longshot.models import Model, PrefixNetwork
from longshot.numerics import effective_sample_size, log_interval, log_mean, relative_error

LEAVES = 1024  # rows of one extension: large enough for fast products, small enough for the cache
FEWEST, MOST = 8, 64  # prefixes that run together
KEPT = 256  # hits of an event whose activations are kept


class Branches(NamedTuple):
    """Some of the leaves of a batch of prefixes."""

    leaves: slice
    """Which tokens of the support they end with."""
    activation: Float[Tensor, "prefix leaf width"]


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
        macs, tail = self.network.macs, 1 + len(self.tail)
        stem = macs(self.prefix_length) if self.prefix_length else 0
        return int(stem + self.leaf.size * macs(tail, prefix=self.prefix_length))

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
            embedded = self.model.embed(tails)
            if cache is None:
                activation = self.network.activation(embedded).expand(self.batch, -1, -1)
            else:
                activation = self.network.extend(cache, embedded.expand(self.batch, -1, -1, -1))
            yield Branches(here, activation[:n, : here.stop - here.start])


class Tally:
    """What the shared leaves say of one event: its probability given each prefix, and inputs."""

    def __init__(self, tree: Tree, event: Event, prefixes: int) -> None:
        self.tree, self.event = tree, event
        self.members = torch.tensor(event.members)
        self.mass = torch.zeros(prefixes, dtype=torch.float64)
        self.tokens = torch.empty(0, tree.inputs.length, dtype=torch.int64)
        self.activations = tree.model.unembedding.new_empty(0, tree.model.width)

    def add(
        self,
        first: int,
        prefixes: Int[Tensor, "n prefix_length"],
        branches: Branches,
        token: Int[Tensor, "n leaf"],
    ) -> None:
        """Count the leaves of prefixes `first`, `first` + 1, … whose argmax is `token`."""
        hit = torch.isin(token, self.members)
        if not hit.any():
            return
        probabilities = self.tree.leaf.probabilities[branches.leaves]
        self.mass[first : first + len(prefixes)] += hit.double() @ probabilities
        row, leaf = hit.nonzero()[: max(KEPT - len(self.tokens), 0)].unbind(1)
        inputs = self.tree.whole(prefixes[row], leaf + branches.leaves.start)
        self.tokens = torch.cat([self.tokens, inputs])
        self.activations = torch.cat([self.activations, branches.activation[row, leaf]])

    def witnesses(self) -> tuple[Witness, ...]:
        """The most probable of the first hits."""
        owner = torch.zeros(len(self.tokens), dtype=torch.int64)
        gaps = Decider(self.tree.model, [self.event])(self.activations, owner)
        problem = Problem(self.tree.model, self.tree.inputs, self.event)
        return best_witnesses(problem, [(self.tokens, gaps)])


@register
@dataclass(frozen=True)
class Conditional(Method):
    """Prefixes from the inputs, the last free position enumerated."""

    name: ClassVar[str] = "conditional"
    shares: ClassVar[bool] = True
    least_effective: float = 10.0
    """How many equal hits the prefixes must be worth before an interval is given."""

    def __post_init__(self) -> None:
        require_positive(self, least_effective=self.least_effective)

    def estimate(self, job: Job) -> list[Estimate]:
        clock = Clock()
        tree = Tree(job.model, job.inputs)
        prefixes = tree.sample(_affordable(tree, job), job.shared_generator("prefixes"))
        tallies, near_ties = _enumerate(tree, prefixes, job)
        leaves, spent = len(prefixes) * tree.leaf.size, len(prefixes) * tree.prefix_macs
        cost = Cost(
            forwards=math.ceil(spent / job.model.network.macs(job.inputs.length)),
            macs=spent + leaves * job.model.unembedding.numel(),
            seconds=clock.seconds,
        )
        return [
            self.answer(
                job,
                tally.event,
                samples=len(prefixes),
                hits=int((tally.mass > 0).sum()),
                near_ties=near_ties,
                witnesses=tally.witnesses(),
                statistics={"leaves": float(leaves)},
                warnings=() if tally.mass.any() else (NO_HIT,),
                shared_cost=cost,
                **self._mean(tally),
            )
            for tally in tallies
        ]

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
            return known | {"interval": log_interval(log_probability, error, effective - 1)}
        return known | {"no_interval": reason}


def _affordable(tree: Tree, job: Job) -> int:
    """How many prefixes with all their leaves the budget pays for."""
    call = job.model.network.macs(job.inputs.length)
    n = job.budget * call // tree.prefix_macs
    if n < 1:
        raise LongshotError(
            f"One prefix of {job.inputs.name!r} with its {tree.leaf.size} leaves costs as much as "
            f"{math.ceil(tree.prefix_macs / call)} plain calls; the budget is {job.budget}."
        )
    return 1 if tree.is_certain else n


def _enumerate(
    tree: Tree, prefixes: Int[Tensor, "n prefix_length"], job: Job
) -> tuple[list[Tally], int]:
    """Every leaf of every prefix, seen by every event; and how many were close."""
    tallies = [Tally(tree, event, len(prefixes)) for event in job.events]
    near_ties = 0
    for first in range(0, len(prefixes), tree.batch):
        batch = prefixes[first : first + tree.batch]
        for branches in tree.grow(batch):
            v = branches.activation
            won = winners(job.model, v.flatten(0, 1))
            near_ties += won.near_ties
            for tally in tallies:
                tally.add(first, batch, branches, won.token.view(v.shape[:2]))
        job.progress((first + len(batch)) / len(prefixes))
    return tallies, near_ties
