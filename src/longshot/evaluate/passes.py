"""One pass over inputs that go on with the same forced tokens: the only place with autograd.

Where the network has a cache, the tokens with which every input begins are run once; gradients are
of what follows them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longshot.evaluate.argmax import readout
from longshot.evaluate.blocks import BLOCK, GRAIN, filled_up, refuse_non_finite
from longshot.evaluate.readers import LogitReader, TokenReader
from longshot.inputs import Inputs, by_length, continued, fixed_beginning
from longshot.models import CachedNetwork, Memory, Model, SizedNetwork, in_blocks


class Evaluation(NamedTuple):
    """What one pass says of each input; the gradient only where asked for, NaN where not run."""

    score: Float[Tensor, " rows"]
    activation: Float[Tensor, "rows side_by_side"]
    """The activations after each forced beginning, side by side."""
    gradient: Float[Tensor, "rows position embedding"] | None


class Spent(NamedTuple):
    """Forward calls, backward calls and multiply-accumulates."""

    forwards: int
    backwards: int
    macs: int


class Known(NamedTuple):
    """What a cached network remembers of some inputs; up to `start` it still holds."""

    memory: Memory
    start: int

    @contextmanager
    def copied(self, rows: Int[Tensor, " some"], length: int) -> Iterator[Known]:
        """A copy of some rows of one length, filled up, that is put back in the end."""
        filled = torch.cat([rows, rows[:1].expand(-len(rows) % GRAIN)])
        mine = self.rows(filled)._replace(start=min(self.start, length - 1))
        yield mine
        for layer, new in zip(self.memory, mine.memory, strict=True):
            layer[:, rows] = new[:, : len(rows)]

    def rows(self, chosen: slice | Tensor) -> Known:
        """The same of some rows: a view of a slice, a copy of any others."""
        if isinstance(chosen, slice):
            return self._replace(memory=[layer[:, chosen] for layer in self.memory])
        return self._replace(
            memory=[layer.index_select(1, chosen.to(layer.device)) for layer in self.memory]
        )


class Beginning:
    """Room for a block of inputs that all begin with the same tokens, which are run once."""

    def __init__(self, network: CachedNetwork, embedded: Tensor, length: int) -> None:
        self.length, start = length, embedded.shape[1]
        fit = network.rows(length) if isinstance(network, SizedNetwork) else BLOCK
        self.room = network.memory(min(BLOCK, fit), length)
        if start:
            network.resume(embedded, self.rows(1), 0)
            for layer in self.room:
                layer[:, 1:, :, :start] = layer[:, :1, :, :start]

    def rows(self, count: int) -> Memory:
        return [layer[:, :count] for layer in self.room]


class Pass:
    """Inputs that go on with the same forced tokens, read for what should come next."""

    def __init__(
        self,
        model: Model,
        forced: tuple[int, ...],
        reader: TokenReader | LogitReader,
        events: int,
        inputs: Inputs | None,
    ) -> None:
        self.model, self.reader, self.readout = model, reader, readout(model)
        self.forced = torch.tensor(forced, dtype=torch.int64)
        self._cached = model.network if isinstance(model.network, CachedNetwork) else None
        self.prefix = fixed_beginning(inputs if self._cached else None)
        self._begun: Beginning | None = None
        self._calls, self._backward, self._macs = torch.zeros(3, events, dtype=torch.int64)

    def __call__(
        self,
        tokens: Int[Tensor, "rows position"],
        owner: Int[Tensor, " rows"],
        gradient: bool = False,
        known: Known | None = None,
    ) -> Evaluation:
        """Score and activation of each input and, if asked, the gradient of its score."""
        tokens = continued(tokens, self.forced.expand(len(tokens), -1))
        (first, *others) = by_length(tokens)
        if isinstance(first[0], slice):
            return self._of_one_length(tokens, owner, gradient, known)
        whole = Evaluation(
            torch.empty(len(tokens), dtype=self.readout.dtype),
            self.readout.rows.new_empty(len(tokens), self.model.width),
            None,
        )
        if gradient:
            shape = (len(tokens), tokens.shape[1] - len(self.forced), self.model.embedding.shape[1])
            whole = whole._replace(gradient=self.readout.rows.new_zeros(shape))
        for rows, some in (first, *others):
            assert isinstance(rows, Tensor)
            score, v, slopes = self._some(rows, some, owner, gradient, known)
            whole.score[rows], whole.activation[rows] = score, v
            if whole.gradient is not None and slopes is not None:
                whole.gradient[rows, : slopes.shape[1]] = slopes
        return whole

    def _some(
        self,
        rows: Int[Tensor, " some"],
        tokens: Int[Tensor, "some position"],
        owner: Int[Tensor, " rows"],
        gradient: bool,
        known: Known | None,
    ) -> Evaluation:
        """The rows of one length among others; a row that ends before `start` runs its last."""
        if known is None:
            return self._of_one_length(tokens, owner[rows], gradient, None)
        with known.copied(rows, tokens.shape[1]) as mine:
            return self._of_one_length(tokens, owner[rows], gradient, mine)

    def _of_one_length(
        self,
        tokens: Int[Tensor, "rows position"],
        owner: Int[Tensor, " rows"],
        gradient: bool,
        known: Known | None,
    ) -> Evaluation:
        rows, free, device = len(tokens), tokens.shape[1] - len(self.forced), self.model.device
        dtype = self.readout.dtype
        score = torch.empty(rows, dtype=dtype)
        v = torch.empty(rows, self.model.width, dtype=dtype, device=device)
        since = self.prefix.shape[1] if known is None else known.start
        slopes = None
        if gradient:
            shape = (rows, free, self.model.embedding.shape[1])
            slopes = torch.empty(shape, dtype=dtype, device=device)
            slopes[:, :since] = math.nan

        def run(here: slice) -> None:
            filled, count = filled_up(here, self.model, tokens.shape[1]), here.stop - here.start
            block, owners = tokens[filled, since:], owner[filled]
            with torch.set_grad_enabled(gradient):
                embedded = self.model.embed(block).requires_grad_(gradient)
                own = slice(here.start, here.start + len(block))
                activation = self._activation(embedded, None if known is None else known.rows(own))
            at = activation.detach().to(dtype)
            values, direction = self.reader.read(at, owners)
            if slopes is not None:
                along = direction.to(activation.dtype)
                (slope,) = torch.autograd.grad(activation, embedded, along)
                slopes[here, since:] = slope[:count, : free - since]
            score[here], v[here] = values[:count], at[:count]
            self.reader.note(owner[here])

        in_blocks(self.model.network, rows, tokens.shape[1], run, BLOCK)
        self._count(owner, tokens.shape[1], since, gradient)
        refuse_non_finite(score, tokens, self.model)
        return Evaluation(score, v, slopes)

    @torch.no_grad()
    def activations(
        self, tokens: Int[Tensor, "rows position"], known: Known | None = None
    ) -> Float[Tensor, "rows width"]:
        """The activation of each input alone, of which nothing is read; the first event pays."""
        tokens = continued(tokens, self.forced.expand(len(tokens), -1))
        v = self.readout.rows.new_empty(len(tokens), self.model.width)
        for rows, some in by_length(tokens):
            if known is None or isinstance(rows, slice):
                v[rows] = self._activations_of_one_length(some, known)
            else:
                with known.copied(rows, some.shape[1]) as mine:
                    v[rows] = self._activations_of_one_length(some, mine)
        return v

    def _activations_of_one_length(
        self, tokens: Int[Tensor, "rows position"], known: Known | None
    ) -> Float[Tensor, "rows width"]:
        since = self.prefix.shape[1] if known is None else known.start
        v = self.readout.rows.new_empty(len(tokens), self.model.width)

        def run(here: slice) -> None:
            block = tokens[filled_up(here, self.model, tokens.shape[1]), since:]
            own = slice(here.start, here.start + len(block))
            memory = None if known is None else known.rows(own)
            v[here] = self._activation(self.model.embed(block), memory)[: here.stop - here.start]

        in_blocks(self.model.network, len(tokens), tokens.shape[1], run, BLOCK)
        self._count(torch.zeros(len(tokens), dtype=torch.int64), tokens.shape[1], since, False)
        refuse_non_finite(v.sum(1), tokens, self.model)
        return v

    def cost(self, i: int) -> Spent:
        """What was spent on event i so far."""
        calls, backward, macs = (int(n[i]) for n in (self._calls, self._backward, self._macs))
        return Spent(calls, backward, macs + self.reader.macs(i))

    def room(self, rows: int, length: int) -> Memory | None:
        """Where so many inputs can be remembered between calls, if the network has a cache."""
        filled = math.ceil(rows / GRAIN) * GRAIN
        length += len(self.forced)
        return None if self._cached is None else self._cached.memory(filled, length)

    def _count(self, owner: Int[Tensor, " rows"], length: int, start: int, gradient: bool) -> None:
        """Note calls on inputs of a length that were known up to `start`."""
        network, rows = self.model.network, owner.bincount(minlength=len(self._calls))
        if self._cached is None:
            price = network.macs(length) + gradient * network.backward_macs(length)
        else:
            size = (length - start, start)
            price = self._cached.macs(*size) + gradient * self._cached.backward_macs(*size)
        self._calls += rows
        self._backward += gradient * rows
        self._macs += rows * price

    def _activation(
        self, embedded: Float[Tensor, "rows tail embedding"], known: Known | None
    ) -> Float[Tensor, "rows width"]:
        """The activation of inputs that go on with `embedded` after what is known of them."""
        if self._cached is None:
            return self.model.network.activation(embedded)
        if known is not None:
            return self._cached.resume(embedded, known.memory, known.start)
        start = self.prefix.shape[1]
        length = start + embedded.shape[1]
        if self._begun is None or self._begun.length != length:
            self._begun = Beginning(self._cached, self.model.embed(self.prefix), length)
        return self._cached.resume(embedded, self._begun.rows(len(embedded)), start)
