"""What an event reads off an activation: its score, the way up, and whether it occurs.

Row r of a batch is read for event `owner[r]`. A score is given with its direction, the gradient
with respect to the activation, so that one backward pass through the network gives its slope in
every input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from longshot.evaluate.argmax import UNEMBED_BLOCK, Decider, readout
from longshot.events import Event, Score
from longshot.models import Model, dense


class Reading(NamedTuple):
    """A score with its gradient with respect to the activation."""

    score: Float[Tensor, " rows"]
    direction: Float[Tensor, "rows width"]


class Decision(NamedTuple):
    """Whether an event occurs: `grade` is the probability that it does given the input."""

    grade: Float64[Tensor, " rows"]
    gap: Float64[Tensor, " rows"]
    """The event's lead, positive where it occurs; −inf where it is not worth its number."""

    @classmethod
    def by_gap(cls, gap: Float64[Tensor, " rows"]) -> Decision:
        """An event that occurs exactly where its gap is positive."""
        return cls((gap > 0).double(), gap)


class TokenReader:
    """Reads for sets of tokens that should win: their best logit, or its gap to all others."""

    def __init__(self, model: Model, events: Sequence[Event], kind: Score) -> None:
        self.model, self.readout, self.kind = model, readout(model), kind
        self.decider = Decider(model, events)
        self.members = self.decider.members
        self.decided = torch.zeros(len(events), dtype=torch.int64)

    @property
    def near_ties(self) -> Int[Tensor, " event"]:
        return self.decider.near_ties

    def read(self, v: Float[Tensor, "rows width"], owner: Int[Tensor, " rows"]) -> Reading:
        columns, bias = self.readout.rows, self.readout.bias
        own = self.members[owner]
        best = own[:, 0]
        if own.shape[1] > 1:
            winner = self.readout.of(v, own).argmax(1, keepdim=True)
            best = own.gather(1, winner)[:, 0]
        direction, offset = columns[best], bias[best]
        if self.kind == "gap":
            rival = self.decider.best_rival(v, owner)
            direction, offset = direction - columns[rival], offset - bias[rival]
        return Reading((v * direction).sum(1) + offset, direction)

    def note(self, owner: Int[Tensor, " rows"]) -> None:
        """Count what `read` took for these rows."""
        if self.kind == "gap":
            self.decider.count(owner)

    def decide(
        self,
        v: Float[Tensor, "rows width"],
        owner: Int[Tensor, " rows"],
        least: Float64[Tensor, " rows"] | None = None,
    ) -> Decision:
        self.decided += owner.bincount(minlength=len(self.decided))
        return Decision.by_gap(self.decider(v, owner, least))

    def gaps(self, v: Float[Tensor, "rows width"]) -> Float[Tensor, "rows event"]:
        """The gaps of all events, each of one token, from one set of logits."""
        found, tokens = [], self.members[:, 0]
        for block in v.split(UNEMBED_BLOCK):
            logits = self.readout.logits(block)
            best, second = logits.topk(2).values[:, :, None].unbind(1)
            own = logits[:, tokens]
            found.append(own - torch.where(own == best, second, best))
        return torch.cat(found)

    def macs(self, i: int) -> int:
        return self.decider.macs(i, int(self.decided[i]))


class LogitReader:
    """Reads for an event that is a function of all the logits."""

    def __init__(self, model: Model, event: Event) -> None:
        self.model, self.readout, self.event = model, readout(model), event
        self.near_ties = torch.zeros(1, dtype=torch.int64)
        self.unembedded = 0

    def read(self, v: Float[Tensor, "rows width"], owner: Int[Tensor, " rows"]) -> Reading:
        with torch.enable_grad():
            logits = self.readout.logits(v).detach().requires_grad_()
            score = self.event.score(logits)
            (slope,) = torch.autograd.grad(score.sum(), logits)
        return Reading(score.detach(), dense(slope, self.readout.rows.mT))

    def note(self, owner: Int[Tensor, " rows"]) -> None:
        """Count what `read` took for these rows: the logits and the way back from them."""
        self.unembedded += 2 * len(owner)

    def decide(
        self,
        v: Float[Tensor, "rows width"],
        owner: Int[Tensor, " rows"],
        least: Float64[Tensor, " rows"] | None = None,
    ) -> Decision:
        self.unembedded += len(v)
        return decide_by_logits(self.model, self.event, v)

    def macs(self, i: int) -> int:
        return self.unembedded * self.model.unembedding.numel()


def decide_by_logits(model: Model, event: Event, v: Float[Tensor, "rows width"]) -> Decision:
    """The grade of an event that logits decide, and its score as the gap."""
    found = []
    for block in v.split(UNEMBED_BLOCK):
        logits = readout(model).logits(block)
        found.append((event.grade(logits).double().cpu(), event.score(logits).double().cpu()))
    if not found:
        return Decision.by_gap(torch.empty(0, dtype=torch.float64))
    return Decision(*(torch.cat(pieces) for pieces in zip(*found, strict=True)))
