"""One pass over inputs: does the event occur, with what score, and which way is up.

The only place that calls autograd; decisions are `argmax`'s. Rows run through the model in blocks
of one fixed shape, so that a row's numbers do not depend on its neighbours. (To the last bit where
widths are multiples of 16 and heads of 4; odd products round by a row's place in memory.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.evaluate.argmax import Decider, readout
from longshot.events import Event, Score, member_table
from longshot.models import Model

BLOCK = 64  # rows of one model call: many enough for fast products, few enough for the cache
GRAIN = 8  # the last block is filled up to a multiple of this: a few chains alone waste nothing


class Evaluation(NamedTuple):
    """What one pass says of each input; the gradient only where asked for."""

    score: Float[Tensor, " rows"]
    activation: Float[Tensor, "rows width"]
    gradient: Float[Tensor, "rows position embedding"] | None


def activations(model: Model, tokens: Int[Tensor, "rows position"]) -> Float[Tensor, "rows width"]:
    """The activation before the unembedding of each input, in blocks."""
    out = torch.empty(len(tokens), model.width, dtype=readout(model).dtype)
    with torch.no_grad():
        for start, block in _blocks(tokens, BLOCK):
            rows = model.network.activation(model.embed(block))
            out[start : start + BLOCK] = rows[: len(tokens) - start]
    _refuse_non_finite(out.sum(1), tokens, model)
    return out


class Evaluator:
    """Scores inputs for several events at once: row r belongs to event `owner[r]`."""

    def __init__(self, model: Model, events: Sequence[Event], score: Score = "logit") -> None:
        self.model, self.readout = model, readout(model)
        self.members = member_table(events)
        self.score_kind = score
        self.decider = Decider(model, events)

    def __call__(
        self,
        tokens: Int[Tensor, "rows position"],
        owner: Int[Tensor, " rows"],
        gradient: bool = False,
    ) -> Evaluation:
        """Score and activation of each input and, if asked, the gradient of its score."""
        rows, width = len(tokens), self.model.width
        dtype = self.readout.dtype
        score, v = torch.empty(rows, dtype=dtype), torch.empty(rows, width, dtype=dtype)
        embedded_shape = (*tokens.shape, self.model.embedding.shape[1])
        slopes = torch.empty(embedded_shape, dtype=dtype) if gradient else None
        for (start, block), (_, owners) in zip(
            _blocks(tokens, BLOCK), _blocks(owner, BLOCK), strict=True
        ):
            here = slice(start, min(start + BLOCK, rows))
            count = here.stop - start
            if self.score_kind == "gap":
                self.decider.count(owners[:count])
            with torch.set_grad_enabled(gradient):
                embedded = self.model.embed(block).requires_grad_(gradient)
                activation = self.model.network.activation(embedded).to(dtype)
                direction, offset = self._direction(activation.detach(), owners)
                objective = (activation * direction).sum(1) + offset
            if slopes is not None:
                (slope,) = torch.autograd.grad(objective.sum(), embedded)
                slopes[here] = slope[:count]
            score[here], v[here] = objective.detach()[:count], activation.detach()[:count]
        _refuse_non_finite(score, tokens, self.model)
        return Evaluation(score, v, slopes)

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


def _blocks(rows: Tensor, size: int) -> list[tuple[int, Tensor]]:
    """`rows` in pieces of `size`, the last filled up by a few copies of its first row."""
    pieces = []
    for start in range(0, len(rows), size):
        piece = rows[start : start + size]
        if missing := -len(piece) % GRAIN:
            piece = torch.cat([piece, piece[:1].expand(missing, *piece.shape[1:])])
        pieces.append((start, piece))
    return pieces


def _refuse_non_finite(values: Tensor, tokens: Tensor, model: Model) -> None:
    if not values.isfinite().all():
        worst = tokens[~values.isfinite()][0].tolist()
        raise LongshotError(f"{model.name} gives numbers that are not finite on {worst}.")
