"""Every input there is, walked as a tree of prefixes: each beginning that inputs share runs once.

A node is a prefix of length p that some inputs share, with what the network's memory knows of it.
Nodes walk side by side up to the next position q at which one of them parts: there inputs of length
q have their activation, and the others go on as children of their node, a batch at a time, the
deepest first. Of Σ length tokens only those are run that the input before, in alphabetical order,
does not have in common, and no more than one batch a level is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from longshot.evaluate.blocks import activations
from longshot.evaluate.greedy import Continue, PlainContinuations
from longshot.inputs import Finite, Inputs, as_finite
from longshot.models import CachedNetwork, Memory, Model, SizedNetwork

CHUNK = 2**14  # inputs that are listed at once
ROWS = 256  # nodes that walk together, where the network does not say how many fit


class Leaves(NamedTuple):
    """Some inputs of one length with what the model makes of them."""

    tokens: Int64[Tensor, "leaf position"]
    log_prob: Float64[Tensor, " leaf"]
    activation: Float[Tensor, "leaf width"]
    go_on: Continue
    """Gives the activations of some of them after tokens of their own."""


class Enumeration:
    """All inputs, and the multiply-accumulates of the network that walking them took so far.

    `more` is how many tokens the leaves may go on for.
    """

    def __init__(self, model: Model, inputs: Inputs, more: int = 0) -> None:
        self.model, self.inputs = model, as_finite(inputs, "an enumeration")
        self.more, self.macs = more, 0

    def __iter__(self) -> Iterator[Leaves]:
        with torch.no_grad():
            for start in range(0, self.inputs.count, CHUNK):
                sheet = _Sheet.of(self.inputs, start)
                if isinstance(self.model.network, CachedNetwork):
                    _, nodes = sheet.children(torch.tensor([[0, len(sheet.tokens)]]), 0)
                    for some in nodes.split(_most(self.model.network, 1)):
                        yield from self._grow(self.model.network, sheet, some)
                else:
                    yield from self._plain(sheet)

    def _plain(self, sheet: _Sheet) -> Iterator[Leaves]:
        """Without a memory every input is run by itself."""
        for length in sheet.length.unique().tolist():
            rows = (sheet.length == length).nonzero()[:, 0]
            tokens = sheet.tokens[rows, :length]
            go_on = PlainContinuations(self.model, tokens)
            self.macs += len(rows) * self.model.network.macs(length)
            yield Leaves(tokens, sheet.log_prob[rows], activations(self.model, tokens), go_on)
            self.macs += go_on.macs - go_on.forwards * self.model.unembedding.numel()

    def _grow(
        self,
        network: CachedNetwork,
        sheet: _Sheet,
        nodes: Int64[Tensor, "node 2"],
        start: int = 0,
        past: Memory | None = None,
    ) -> Iterator[Leaves]:
        """All leaves of nodes, each its first and last row, that are known up to `start`.

        The rows of a node have one more token in common than is known.
        """
        stop = min(sheet.parting(first, last) for first, last in nodes.tolist())
        memory = network.memory(len(nodes), stop + self.more)
        for layer, known in zip(memory, past or (), strict=past is not None):
            layer[:, :, :, :start] = known[:, :, :, :start]
        embedded = self.model.embed(sheet.tokens[nodes[:, 0], start:stop])
        activation = network.resume(embedded, memory, start)
        self.macs += len(nodes) * network.macs(stop - start, start)

        parent, children = sheet.children(nodes, stop)
        ended = sheet.length[children[:, 0]] == stop
        if ended.any():
            leaf, node = _rows(children[ended], parent[ended])
            tokens = sheet.tokens[leaf, :stop]
            go_on = CachedContinuations(self.model, network, tokens, memory, node)
            yield Leaves(tokens, sheet.log_prob[leaf], activation[node], go_on)
            self.macs += go_on.macs
        children, parent = children[~ended], parent[~ended]
        most = _most(network, stop)
        for here in range(0, len(children), most):
            some, whose = children[here : here + most], parent[here : here + most]
            whole = len(some) == len(nodes) and bool((whose == torch.arange(len(nodes))).all())
            past = memory if whole else [layer[:, whose, :, :stop] for layer in memory]
            yield from self._grow(network, sheet, some, stop, past)


class _Sheet(NamedTuple):
    """Inputs in alphabetical order, each with what it has in common with the one before."""

    tokens: Int64[Tensor, "row position"]
    log_prob: Float64[Tensor, " row"]
    length: Int64[Tensor, " row"]
    common: Int64[Tensor, " row"]

    @classmethod
    def of(cls, inputs: Finite, start: int) -> _Sheet:
        tokens, log_prob = inputs.listed(start, min(start + CHUNK, inputs.count))
        order = torch.from_numpy(np.lexsort(tokens.numpy().T[::-1]))
        tokens = tokens[order]
        same = (tokens[1:] == tokens[:-1]).cumprod(1).sum(1)
        common = torch.cat([torch.zeros(1, dtype=torch.int64), same])
        return cls(tokens, log_prob[order], (tokens >= 0).sum(1), common)

    def parting(self, first: int, last: int) -> int:
        """Up to where rows are alike, or the end of all of them."""
        inner = self.common[first + 1 : last]
        end = int(self.length[first])
        return min(end, int(inner.min())) if len(inner) else end

    def children(
        self, nodes: Int64[Tensor, "node 2"], at: int
    ) -> tuple[Int64[Tensor, " child"], Int64[Tensor, "child 2"]]:
        """Nodes divided by their token at a position, each with the place of its node."""
        parent, found = [], []
        for i, (first, last) in enumerate(nodes.tolist()):
            inner = (self.common[first + 1 : last] == at).nonzero()[:, 0] + first + 1
            edges = [first, *inner.tolist(), last]
            found += list(pairwise(edges))
            parent += [i] * (len(edges) - 1)
        return torch.tensor(parent), torch.tensor(found)


def _most(network: CachedNetwork, positions: int) -> int:
    """How many nodes of some length walk together."""
    return network.rows(positions) if isinstance(network, SizedNetwork) else ROWS


def _rows(
    nodes: Int64[Tensor, "node 2"], parent: Int64[Tensor, " node"]
) -> tuple[Int64[Tensor, " row"], Int64[Tensor, " row"]]:
    """All rows of some nodes, and for each its node's parent."""
    sizes = nodes[:, 1] - nodes[:, 0]
    rows = [torch.arange(first, last) for first, last in nodes.tolist()]
    return torch.cat(rows), parent.repeat_interleave(sizes)


class CachedContinuations:
    """Inputs of one length that go on by tokens of their own on the memory of their nodes.

    A row's path grows by one token from call to call, of which only the last is run.
    """

    def __init__(
        self,
        model: Model,
        network: CachedNetwork,
        tokens: Int64[Tensor, "row length"],
        memory: Memory,
        node: Int64[Tensor, " row"],
    ) -> None:
        self.model, self.network, self.tokens = model, network, tokens
        self.memory, self.node, self.macs = memory, node, 0

    def __call__(
        self, rows: Int[Tensor, " some"], path: Int[Tensor, "some step"]
    ) -> Float[Tensor, "some width"]:
        if path.shape[1] == 1:
            self.own = [layer[:, self.node] for layer in self.memory]
        at = self.tokens.shape[1] + path.shape[1] - 1
        some = [layer[:, rows] for layer in self.own]
        with torch.no_grad():
            activation = self.network.resume(self.model.embed(path[:, -1:]), some, at)
        for layer, new in zip(self.own, some, strict=True):
            layer[:, rows, :, at] = new[:, :, :, at]
        self.macs += len(rows) * self.network.macs(1, at)
        return activation


def tokens_to_run(inputs: Inputs) -> int:
    """How many tokens an enumeration runs on a network with a memory."""
    listed, total = as_finite(inputs, "an enumeration"), 0
    for start in range(0, listed.count, CHUNK):
        sheet = _Sheet.of(listed, start)
        total += int((sheet.length - sheet.common).clamp(min=0).sum())
    return total
