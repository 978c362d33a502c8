"""One pass over inputs: does the event occur, with what score, and which way is up.

The only place that calls autograd, and the only one that unembeds for a decision. Deciding whether
a token wins does not need all the logits: a few rivals that often win dismiss most inputs, and only
the survivors meet the whole vocabulary.

**Exact in spite of rounding.** A float32 dot product of length d is off by at most

    γ·‖v‖·‖u‖  with  γ = dε/(1 − dε),  ε = 2⁻²⁴,

in whatever order it is summed. A rival dismisses an input, or an input is declared a hit, only by a
lead of more than both products' bounds together; what lies between is decided in float64 and
counted as a near-tie. So the answer is the argmax of the exact products, whatever the rivals.

Rows run in blocks of one fixed shape, so that a row's numbers do not depend on its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.events import Event, Score, member_table
from longshot.models import Model

BLOCK = 32  # rows of one model call: small enough for few chains, large enough for fast products
UNEMBED_BLOCK = 64  # rows of one full unembedding: the logits stay in the cache
RIVALS = 64


class Evaluation(NamedTuple):
    """What one pass says of each input; the gradient only where asked for."""

    score: Float[Tensor, " rows"]
    activation: Float[Tensor, "rows width"]
    gradient: Float[Tensor, "rows position width"] | None


def activations(model: Model, tokens: Int[Tensor, "rows position"]) -> Float[Tensor, "rows width"]:
    """The activation before the unembedding of each input, in blocks of one shape."""
    out = tokens.new_empty((len(tokens), model.width), dtype=model.unembedding.dtype)
    with torch.no_grad():
        for start, block in _blocks(tokens, BLOCK):
            rows = model.network.activation(model.embed(block))
            out[start : start + BLOCK] = rows[: len(tokens) - start]
    return out


class Winners(NamedTuple):
    """The argmax of each activation (−1 where two logits tie exactly), and how many were close."""

    token: Int[Tensor, " rows"]
    near_ties: int


def winners(model: Model, v: Float[Tensor, "rows width"]) -> Winners:
    """The token whose logit is strictly the largest, of the exact products."""
    unembedding, bias = model.unembedding, model.unembedding_bias
    margins = rounding_margin(model, v)
    token, near_ties = torch.empty(len(v), dtype=torch.int64), 0
    for start, block in _blocks(v, UNEMBED_BLOCK):
        margin = margins[start : start + UNEMBED_BLOCK]
        logits = torch.addmm(bias, block, unembedding)[: len(margin)]
        best, index = logits.max(1)
        close = (logits >= (best - margin)[:, None]).sum(1) > 1
        if close.any():
            exact = block[: len(margin)][close].double() @ unembedding.double() + bias.double()
            two = exact.topk(2)
            index[close] = two.indices[:, 0].where(two.values[:, 0] > two.values[:, 1], -1)
            near_ties += int(close.sum())
        token[start : start + UNEMBED_BLOCK] = index
    return Winners(token, near_ties)


def rounding_margin(model: Model, v: Float[Tensor, "rows width"]) -> Float[Tensor, " rows"]:
    """What two logits of one activation may differ by through rounding alone: both bounds."""
    terms = model.width + 4  # the products, the bias, and the rounding of this bound itself
    unit = torch.finfo(v.dtype).eps / 2
    gamma = terms * unit / (1 - terms * unit)
    longest = torch.linalg.vector_norm(model.unembedding, dim=0).max()
    size: Tensor = torch.linalg.vector_norm(v, dim=1) * longest
    return 2 * gamma * (size + model.unembedding_bias.abs().max())


class Evaluator:
    """Scores inputs for several events at once: row r belongs to event `owner[r]`."""

    def __init__(self, model: Model, events: Sequence[Event], score: Score = "logit") -> None:
        self.model = model
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
        dtype = self.model.unembedding.dtype
        score, v = torch.empty(rows, dtype=dtype), torch.empty(rows, width, dtype=dtype)
        slopes = torch.empty(*tokens.shape, width, dtype=dtype) if gradient else None
        for (start, block), (_, owners) in zip(
            _blocks(tokens, BLOCK), _blocks(owner, BLOCK), strict=True
        ):
            here = slice(start, min(start + BLOCK, rows))
            count = here.stop - start
            with torch.set_grad_enabled(gradient):
                embedded = self.model.embed(block).requires_grad_(gradient)
                activation = self.model.network.activation(embedded)
                direction, offset = self._direction(activation.detach(), owners)
                objective = (activation * direction).sum(1) + offset
            if slopes is not None:
                (slope,) = torch.autograd.grad(objective.sum(), embedded)
                slopes[here] = slope[:count]
            score[here], v[here] = objective.detach()[:count], activation.detach()[:count]
        if not score.isfinite().all():
            worst = tokens[~score.isfinite()][0].tolist()
            raise LongshotError(f"{self.model.name} gives a score that is not finite on {worst}.")
        return Evaluation(score, v, slopes)

    def _direction(
        self, v: Float[Tensor, "rows width"], owner: Int[Tensor, " rows"]
    ) -> tuple[Float[Tensor, "rows width"], Float[Tensor, " rows"]]:
        """The score as a linear function of the activation, v·direction + offset, at `v`."""
        columns, bias = self.model.unembedding_rows, self.model.unembedding_bias
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
        logits = (self.model.unembedding_rows[members] @ v[:, :, None])[..., 0]
        winner = (logits + self.model.unembedding_bias[members]).argmax(1, keepdim=True)
        return members.gather(1, winner)[:, 0]


class Decider:
    """The exact lazy argmax: whether one of an event's tokens is strictly above all others.

    It learns its rivals as it goes, from the tokens that beat the events' own. For each event,
    `unembedded` counts the activations that met the whole vocabulary, `near_ties` those that
    float64 decided.
    """

    def __init__(self, model: Model, events: Sequence[Event], rivals: int = RIVALS) -> None:
        self.members = member_table(events)
        self.model = model
        self.unembedding, self.bias = model.unembedding, model.unembedding_bias
        self.near_ties = torch.zeros(len(events), dtype=torch.int64)
        self.unembedded = torch.zeros(len(events), dtype=torch.int64)
        self.wins = torch.zeros(model.vocab_size, dtype=torch.int64)
        self._rival_count = min(rivals, model.vocab_size)
        self._rivals = torch.empty(0, dtype=torch.int64)

    def __call__(
        self, v: Float[Tensor, "rows width"], owner: Int[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]:
        """The owner's gap at each activation: positive exactly when its event occurs.

        An activation that a rival dismisses at once is not worth the exact gap: it gets −inf.
        """
        own = self._own(v, owner)
        margin = rounding_margin(self.model, v)
        survivors = self._survivors(v, owner, own, margin)
        gap = torch.full((len(v),), -math.inf, dtype=torch.float64)
        for chosen in survivors.split(UNEMBED_BLOCK):
            gap[chosen] = self._exact_gap(v[chosen], owner[chosen], own[chosen], margin[chosen])
        if len(survivors):
            top = self.wins.topk(self._rival_count)
            self._rivals = top.indices[top.values > 0]
            self._rival_rows = self.model.unembedding_rows[self._rivals]
        return gap

    def macs(self, i: int, rows: int) -> int:
        """Multiply-accumulates of deciding `rows` activations of event i: rivals, then all."""
        shortlist = rows * min(self._rival_count, self.model.vocab_size)
        everything = int(self.unembedded[i]) * self.model.vocab_size
        return self.model.width * (shortlist + everything)

    def best_rival(
        self, v: Float[Tensor, "rows width"], owner: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        """The likeliest token outside each owner's event, from all the logits."""
        best = [
            self._rival_logits(v[chosen], owner[chosen]).argmax(1)
            for chosen in torch.arange(len(v)).split(UNEMBED_BLOCK)
        ]
        return torch.cat(best)

    def _own(self, v: Tensor, owner: Tensor) -> Tensor:
        members = self.members[owner]
        rows = self.model.unembedding_rows[members]
        return ((rows @ v[:, :, None])[..., 0] + self.bias[members]).amax(1)

    def _survivors(self, v: Tensor, owner: Tensor, own: Tensor, margin: Tensor) -> Tensor:
        """The rows that no rival dismisses."""
        if not len(self._rivals):
            return torch.arange(len(v))
        logits = torch.nn.functional.linear(v, self._rival_rows, self.bias[self._rivals])
        is_member = (self.members[:, :, None] == self._rivals).any(1)
        logits.masked_fill_(is_member[owner], -math.inf)
        return (logits.amax(1) - own <= margin).nonzero()[:, 0]

    def _rival_logits(self, v: Tensor, owner: Tensor) -> Tensor:
        """All logits, with those of the owner's own tokens at −inf, from a block of fixed shape."""
        rows = len(v)
        padded = torch.nn.functional.pad(v, (0, 0, 0, UNEMBED_BLOCK - rows))
        self.unembedded += torch.bincount(owner, minlength=len(self.members))
        logits = torch.addmm(self.bias, padded, self.unembedding)[:rows]
        return logits.scatter_(1, self.members[owner], -math.inf)

    def _exact_gap(self, v: Tensor, owner: Tensor, own: Tensor, margin: Tensor) -> Tensor:
        """The gap against the whole vocabulary, with a sign that rounding cannot have turned."""
        best, rival = self._rival_logits(v, owner).max(1)
        gap = (own - best).double()
        close = gap.abs() <= margin
        if close.any():
            logits = v[close].double() @ self.unembedding.double() + self.bias.double()
            members = self.members[owner[close]]
            winner = logits.gather(1, members).amax(1)
            gap[close] = winner - logits.scatter_(1, members, -math.inf).amax(1)
            self.near_ties += torch.bincount(owner[close], minlength=len(self.members))
        self.wins += torch.bincount(rival[gap <= 0], minlength=len(self.wins))
        return gap


def _blocks(rows: Tensor, size: int) -> list[tuple[int, Tensor]]:
    """`rows` in pieces of exactly `size`, the last filled up with copies of its first row."""
    pieces = []
    for start in range(0, len(rows), size):
        piece = rows[start : start + size]
        if len(piece) < size:
            filler = piece[:1].expand(size - len(piece), *piece.shape[1:])
            piece = torch.cat([piece, filler])
        pieces.append((start, piece))
    return pieces
