"""Product inputs as prefixes and leaves: a prefix is run once, every last free token behind it.

With a causal model and independent tokens a prefix is a draw of all positions before the last free
one. Its leaves are the tokens of that position's support, each followed by the fixed rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.inputs.base import Inputs, as_product
from longshot.models import CachedNetwork, Memory, Model

LEAVES = 1024  # rows of one extension: large enough for fast products, small enough for the cache
FEWEST, MOST = 8, 64  # prefixes that run together


class Branches(NamedTuple):
    """Some of the leaves of a batch of prefixes."""

    prefixes: Int[Tensor, "prefix prefix_length"]
    leaves: slice
    """Which tokens of the support they end with."""
    activation: Float[Tensor, "prefix leaf width"]
    memory: Memory
    """What is known of the prefixes."""

    def first(self, count: int) -> Branches:
        """The same leaves of the first prefixes only."""
        few = self.activation[:count]
        return self._replace(prefixes=self.prefixes[:count], activation=few)


class Tree:
    """The inputs as prefixes and leaves, run in batches of one fixed shape.

    `batch` prefixes run together, and their leaves in chunks of `chunk` for each, the last filled
    up, so that a leaf's numbers do not depend on how many others are asked for.
    """

    def __init__(self, model: Model, inputs: Inputs) -> None:
        self.model, self.inputs = model, as_product(inputs, "conditional sampling")
        if not self.inputs.free_positions:
            raise LongshotError(
                f"Every position of the inputs {inputs.name!r} is fixed, so there is nothing to "
                "enumerate: one plain sample is the answer."
            )
        if not isinstance(model.network, CachedNetwork):
            raise LongshotError(
                f"{model.name} has no prefix cache, which conditional sampling needs; "
                "use plain sampling."
            )
        self.network = model.network
        self.prefix_length = self.inputs.free_positions[-1]
        self.leaf = self.inputs.positions[self.prefix_length]
        after = self.inputs.positions[self.prefix_length + 1 :]
        self.tail = torch.tensor([int(d.support[0]) for d in after], dtype=torch.int64)
        self.batch = max(FEWEST, min(MOST, LEAVES // self.leaf.size))
        chunks = math.ceil(self.batch * self.leaf.size / LEAVES)
        self.chunk = math.ceil(self.leaf.size / chunks)

    @property
    def is_certain(self) -> bool:
        """Only one prefix exists: its leaves are all the inputs there are."""
        return len(self.inputs.free_positions) == 1

    def price(self, steps: int = 1) -> int:
        """Multiply-accumulates of a prefix with all its leaves, each followed for so many tokens.

        Every leaf is unembedded after each of them.
        """
        stem = self.network.macs(self.prefix_length) if self.prefix_length else 0
        unembedding = steps * self.leaf.size * self.model.unembedding.numel()
        grown = sum(self.leaves_macs(self.leaf.size, more) for more in range(steps))
        return stem + grown + unembedding

    def leaves_macs(self, leaves: int, more: int) -> int:
        """The multiply-accumulates of leaves of one prefix that go on for some tokens."""
        return self.network.extend_macs(leaves, 1 + len(self.tail) + more, self.prefix_length)

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
        memory = self.network.memory(self.batch, self.prefix_length)
        if self.prefix_length:
            self.network.resume(self.model.embed(padded), memory, 0)
        for start in range(0, self.leaf.size, self.chunk):
            tokens = self.leaf.support[start : start + self.chunk]
            here = slice(start, start + len(tokens))
            tokens = torch.cat([tokens, tokens[:1].expand(self.chunk - len(tokens))])
            tails = torch.cat([tokens[:, None], self.tail.expand(self.chunk, -1)], 1)
            if not self.prefix_length:
                activation = self.model.network.activation(self.model.embed(tails))
                activation = activation.expand(self.batch, -1, -1)
            else:
                embedded = self.model.embed(tails).expand(self.batch, -1, -1, -1)
                activation = self.network.extend(embedded, memory, self.prefix_length)
            activation = activation[:n, : here.stop - here.start].contiguous()
            yield Branches(prefixes, here, activation, memory)

    @torch.no_grad()
    def leaves(
        self, prefixes: Int[Tensor, "n prefix_length"], chosen: Int[Tensor, " leaf"]
    ) -> Float[Tensor, "n leaf width"]:
        """The activations behind each prefix with each of some leaves, in one piece."""
        tails = torch.cat([self.leaf.support[chosen, None], self.tail.expand(len(chosen), -1)], 1)
        embedded = self.model.embed(tails).expand(len(prefixes), -1, -1, -1)
        memory = self.network.memory(len(prefixes), self.prefix_length)
        self.network.resume(self.model.embed(prefixes), memory, 0)
        return self.network.extend(embedded, memory, self.prefix_length)

    @torch.no_grad()
    def extend(
        self, branches: Branches, row: Tensor, leaf: Tensor, path: Int[Tensor, "some step"]
    ) -> Float[Tensor, "some width"]:
        """The activations of some leaves after tokens of their own, by growing all beside them."""
        inputs = self.whole(branches.prefixes[row], leaf + branches.leaves.start)
        own = torch.cat([inputs[:, self.prefix_length :], path], 1)
        tails = own[:1].expand(self.batch, self.chunk, -1).clone()
        tails[row, leaf] = own
        embedded = self.model.embed(tails.flatten(0, 1)).unflatten(0, tails.shape[:2])
        return self.network.extend(embedded, branches.memory, self.prefix_length)[row, leaf]
