"""One pass over inputs: does the event occur, with what score, and which way is up.

The only place that calls autograd; decisions are `argmax`'s. Rows run through the model in blocks
of one fixed shape, so that a row's numbers do not depend on its neighbours. (To the last bit where
widths are multiples of 16 and heads of 4; odd products round by a row's place in memory.)

Where the network can resume, the tokens with which every input begins are run once; gradients are
of what follows them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.evaluate.argmax import Decider, readout
from longshot.events import Score, TokenIn, member_table
from longshot.inputs import ProductInputs
from longshot.models import Model, SizedNetwork, in_blocks

BLOCK = 64  # rows of one model call: many enough for fast products, few enough for the cache
GRAIN = 8  # the last block is filled up to a multiple of this: a few chains alone waste nothing


@runtime_checkable
class ResumableNetwork(Protocol):
    """The optional capability: inputs go on from what is known of their first positions."""

    def memory(self, rows: int, positions: int) -> list[Tensor]:
        """Room for what is known: the second axis is the rows, the last but one the positions."""

    def resume(self, embedded: Tensor, memory: list[Tensor], start: int) -> Tensor:
        """The activation of inputs known up to `start`; `memory` takes up the rest."""

    def macs(self, positions: int, prefix: int = 0) -> int:
        """Multiply-accumulates of `positions` after a prefix, and so for the gradient."""

    def backward_macs(self, positions: int, prefix: int = 0) -> int: ...


class Evaluation(NamedTuple):
    """What one pass says of each input; the gradient only where asked for, NaN where not run."""

    score: Float[Tensor, " rows"]
    activation: Float[Tensor, "rows width"]
    gradient: Float[Tensor, "rows position embedding"] | None


class Spent(NamedTuple):
    """Forward calls, backward calls and multiply-accumulates."""

    forwards: int
    backwards: int
    macs: int


class Known(NamedTuple):
    """What a network that can resume remembers of some inputs; up to `start` it still holds."""

    memory: list[Tensor]
    start: int

    def rows(self, first: int, count: int) -> Known:
        return self._replace(memory=[layer[:, first : first + count] for layer in self.memory])


class Prefix:
    """Room for a block of inputs that all begin with the same tokens, which are run once."""

    def __init__(self, network: ResumableNetwork, embedded: Tensor, length: int) -> None:
        self.length, start = length, embedded.shape[1]
        self.room = network.memory(BLOCK, length)
        if start:
            network.resume(embedded, self.rows(1), 0)
            for layer in self.room:
                layer[:, 1:, :, :start] = layer[:, :1, :, :start]

    def rows(self, count: int) -> list[Tensor]:
        return [layer[:, :count] for layer in self.room]


def activations(model: Model, tokens: Int[Tensor, "rows position"]) -> Float[Tensor, "rows width"]:
    """The activation before the unembedding of each input, in blocks."""
    out = torch.empty(len(tokens), model.width, dtype=readout(model).dtype)

    def run(here: slice) -> None:
        block = tokens[_filled_up(here, model, tokens.shape[1])]
        out[here] = model.network.activation(model.embed(block))[: here.stop - here.start]

    with torch.no_grad():
        in_blocks(model.network, len(tokens), tokens.shape[1], run, BLOCK)
    _refuse_non_finite(out.sum(1), tokens, model)
    return out


class Evaluator:
    """Scores inputs for several events at once: row r belongs to event `owner[r]`.

    Where it is told from which distribution they come, it runs their fixed beginning only once.
    """

    def __init__(
        self,
        model: Model,
        events: Sequence[TokenIn],
        score: Score = "logit",
        inputs: ProductInputs | None = None,
    ) -> None:
        self.model, self.readout = model, readout(model)
        self.members = member_table(events)
        self.score_kind = score
        self.decider = Decider(model, events)
        self._resumable = model.network if isinstance(model.network, ResumableNetwork) else None
        self.prefix = fixed_beginning(inputs if self._resumable else None)
        self._begun: Prefix | None = None
        self._calls, self._backward, self._macs, self._decided = torch.zeros(
            4, len(events), dtype=torch.int64
        )

    def __call__(
        self,
        tokens: Int[Tensor, "rows position"],
        owner: Int[Tensor, " rows"],
        gradient: bool = False,
        known: Known | None = None,
    ) -> Evaluation:
        """Score and activation of each input and, if asked, the gradient of its score."""
        rows, width = len(tokens), self.model.width
        dtype = self.readout.dtype
        score, v = torch.empty(rows, dtype=dtype), torch.empty(rows, width, dtype=dtype)
        since = self.prefix.shape[1] if known is None else known.start
        slopes = None
        if gradient:
            slopes = torch.empty(*tokens.shape, self.model.embedding.shape[1], dtype=dtype)
            slopes[:, :since] = math.nan

        def run(here: slice) -> None:
            filled, count = _filled_up(here, self.model, tokens.shape[1]), here.stop - here.start
            block, owners = tokens[filled, since:], owner[filled]
            with torch.set_grad_enabled(gradient):
                embedded = self.model.embed(block).requires_grad_(gradient)
                own = None if known is None else known.rows(here.start, len(block))
                activation = self._activation(embedded, own)
            at = activation.detach().to(dtype)
            direction, offset = self._direction(at, owners)
            if slopes is not None:
                along = direction.to(activation.dtype)
                (slope,) = torch.autograd.grad(activation, embedded, along)
                slopes[here, since:] = slope[:count]
            score[here], v[here] = ((at * direction).sum(1) + offset)[:count], at[:count]
            if self.score_kind == "gap":
                self.decider.count(owner[here])

        in_blocks(self.model.network, rows, tokens.shape[1], run, BLOCK)
        self._count(owner, tokens.shape[1], since, gradient)
        _refuse_non_finite(score, tokens, self.model)
        return Evaluation(score, v, slopes)

    def decide(
        self,
        tokens: Int[Tensor, "rows position"],
        activation: Float[Tensor, "rows width"],
        owner: Int[Tensor, " rows"],
    ) -> Float64[Tensor, " rows"]:
        """The gap of each input by its activation: positive exactly when the event occurs."""
        self._decided += owner.bincount(minlength=len(self._decided))
        return self.decider(activation, owner)

    @property
    def near_ties(self) -> Int[Tensor, " event"]:
        return self.decider.near_ties

    def cost(self, i: int) -> Spent:
        """What was spent on event i so far."""
        decided = self.decider.macs(i, int(self._decided[i]))
        calls, backward, macs = (int(n[i]) for n in (self._calls, self._backward, self._macs))
        return Spent(calls, backward, macs + decided)

    def room(self, rows: int, length: int) -> list[Tensor] | None:
        """Where so many inputs can be remembered between calls, if the network can resume."""
        filled = math.ceil(rows / GRAIN) * GRAIN
        return None if self._resumable is None else self._resumable.memory(filled, length)

    def _count(self, owner: Int[Tensor, " rows"], length: int, start: int, gradient: bool) -> None:
        """Note calls on inputs of a length that were known up to `start`."""
        network, rows = self.model.network, owner.bincount(minlength=len(self._calls))
        if self._resumable is None:
            price = network.macs(length) + gradient * network.backward_macs(length)
        else:
            size = (length - start, start)
            price = self._resumable.macs(*size) + gradient * self._resumable.backward_macs(*size)
        self._calls += rows
        self._backward += gradient * rows
        self._macs += rows * price

    def _activation(
        self, embedded: Float[Tensor, "rows tail embedding"], known: Known | None
    ) -> Float[Tensor, "rows width"]:
        """The activation of inputs that go on with `embedded` after what is known of them."""
        if self._resumable is None:
            return self.model.network.activation(embedded)
        if known is not None:
            return self._resumable.resume(embedded, known.memory, known.start)
        start = self.prefix.shape[1]
        length = start + embedded.shape[1]
        if self._begun is None or self._begun.length != length:
            self._begun = Prefix(self._resumable, self.model.embed(self.prefix), length)
        return self._resumable.resume(embedded, self._begun.rows(len(embedded)), start)

    def _direction(
        self, v: Float[Tensor, "rows width"], owner: Int[Tensor, " rows"]
    ) -> tuple[Float[Tensor, "rows width"], Float[Tensor, " rows"]]:
        """The score as a linear function of the activation, v·direction + offset, at `v`."""
        columns, bias = self.readout.rows, self.readout.bias
        best = self._best_member(v, owner)
        direction, offset = columns[best], bias[best]
        if self.score_kind == "gap":
            rival = self.decider.best_rival(v, owner)
            direction, offset = direction - columns[rival], offset - bias[rival]
        return direction, offset

    def _best_member(
        self, v: Float[Tensor, "rows width"], owner: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        members = self.members[owner]
        if members.shape[1] == 1:
            return members[:, 0]
        winner = self.readout.of(v, members).argmax(1, keepdim=True)
        return members.gather(1, winner)[:, 0]


def fixed_beginning(inputs: ProductInputs | None) -> Int[Tensor, "1 prefix"]:
    """The tokens before the first free position, short of the last position."""
    if inputs is None:
        return torch.empty(1, 0, dtype=torch.int64)
    end = min((*inputs.free_positions, inputs.length - 1))
    return torch.tensor([[int(d.support[0]) for d in inputs.positions[:end]]], dtype=torch.int64)


def _filled_up(here: slice, model: Model, positions: int) -> slice | Int[Tensor, " filled"]:
    """The rows of a slice, then a few times its first, up to a multiple of the grain."""
    count, network = here.stop - here.start, model.network
    if count % GRAIN == 0:
        return here
    fit = network.rows(positions) if isinstance(network, SizedNetwork) else GRAIN
    missing = -count % min(GRAIN, fit)
    rows = torch.arange(here.start, here.stop)
    return torch.cat([rows, rows[:1].expand(missing)])


def _refuse_non_finite(values: Tensor, tokens: Tensor, model: Model) -> None:
    if not values.isfinite().all():
        worst = tokens[~values.isfinite()][0].tolist()
        raise LongshotError(f"{model.name} gives numbers that are not finite on {worst}.")
