"""On which inputs an event occurs: by their logits, or by their greedy continuations.

A continuation is followed for as long as it may still be what the event asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from longshot.evaluate.argmax import Decider, Winners, winners
from longshot.evaluate.blocks import activations, macs
from longshot.evaluate.readers import decide_by_logits
from longshot.events import Event, TokenIs
from longshot.inputs import continued
from longshot.models import Model

ROWS = 4096  # inputs that are followed at once, with an activation for every step

Continue = Callable[[Tensor, Tensor], Tensor]
"""Gives the activations of some rows when each goes on with its own row of tokens."""


class Outcomes(NamedTuple):
    """The inputs on which an event may occur, with the probability that it does."""

    rows: Int[Tensor, " hit"]
    grade: Float64[Tensor, " hit"]
    gap: Float64[Tensor, " hit"]
    """The event's lead, the smallest where it takes several tokens."""
    near_ties: int

    @classmethod
    def joined(cls, pieces: list[Outcomes]) -> Outcomes:
        *columns, near_ties = zip(*pieces, strict=True)
        rows, grade, gap = (torch.cat(column) for column in columns)
        return cls(rows, grade, gap, sum(near_ties))


def outcomes(
    model: Model,
    event: Event,
    v: Float[Tensor, "rows width"],
    go_on: Continue,
    won: Winners | None = None,
    most: int | None = None,
) -> Outcomes:
    """Where the event occurs, from the activations and, where they are known, the winners.

    With `most`, only the first so many gaps are computed; the others are NaN.
    """
    if event.decided_by == "logits":
        decision = decide_by_logits(model, event, v)
        rows = (decision.grade > 0).nonzero()[:, 0]
        return Outcomes(rows, decision.grade[rows], decision.gap[rows], 0)
    if event.decided_by == "itself":
        own: Outcomes = event.outcomes(model, v, go_on)  # type: ignore[attr-defined]
        return own
    won = winners(model, v) if won is None else won
    size = max(len(v), 1) if event.steps == 1 else ROWS
    followed = [
        _follow(model, event, v, won.token, rows, go_on, most)
        for rows in torch.arange(len(v)).split(size)
    ]
    found = Outcomes.joined(followed)
    return found._replace(near_ties=found.near_ties + won.near_ties)


def _follow(
    model: Model,
    event: Event,
    v: Tensor,
    token: Tensor,
    rows: Tensor,
    go_on: Continue,
    most: int | None,
) -> Outcomes:
    """Rows that can no longer match are left behind, and so are those that meet an exact tie."""
    path, near_ties = token[rows, None], 0
    before: list[Tensor] = []
    while True:
        allowed = path[:, -1] >= 0
        allowed[allowed.clone()] = event.allows(path[allowed], model.tokenizer)
        rows, path = rows[allowed], path[allowed]
        before = [v[rows.to(v.device)], *(step[allowed.to(v.device)] for step in before[1:])]
        if path.shape[1] == event.steps or not len(rows):
            break
        before.append(go_on(rows, path))
        won = winners(model, before[-1])
        near_ties += won.near_ties
        path = torch.cat([path, won.token[:, None]], 1)
    gap = torch.full((len(rows),), math.nan, dtype=torch.float64)
    few = slice(None if most is None else most)
    gap[few] = _smallest_gap(model, event, path[few], [step[few] for step in before])
    return Outcomes(rows, torch.ones_like(gap), gap, near_ties)


def _smallest_gap(
    model: Model, event: Event, path: Int[Tensor, "hit step"], before: list[Tensor]
) -> Float64[Tensor, " hit"]:
    """The smallest gap along each path, from the activations before each of its tokens."""
    gap = torch.full((len(path),), math.inf, dtype=torch.float64)
    targets: list[Event]
    for step, v in enumerate(before if len(gap) else ()):
        if event.is_single_step:
            targets, owner = [event], torch.zeros_like(path[:, 0])
        else:
            tokens, owner = path[:, step].unique(return_inverse=True)
            targets = [TokenIs(token) for token in tokens.tolist()]
        gap = torch.minimum(gap, Decider(model, targets)(v, owner))
    return gap


class PlainContinuations:
    """Inputs that go on by plain passes, and what that took."""

    def __init__(self, model: Model, tokens: Int[Tensor, "rows position"]) -> None:
        self.model, self.tokens = model, tokens
        self.forwards = self.macs = 0

    def __call__(
        self, rows: Int[Tensor, " some"], path: Int[Tensor, "some step"]
    ) -> Float[Tensor, "some width"]:
        longer = continued(self.tokens[rows], path)
        self.forwards += len(rows)
        self.macs += macs(self.model, longer) + len(rows) * self.model.unembedding.numel()
        return activations(self.model, longer)
