"""Greedy continuations, followed for as long as they may still be what an event asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from longshot.evaluate.argmax import Decider, winners
from longshot.evaluate.evaluator import activations
from longshot.events import Event, TokenIn, TokenIs
from longshot.models import Model

ROWS = 4096  # inputs that are followed at once, with an activation for every step

Onwards = Callable[[Tensor, Tensor], Tensor]
"""The activations of some rows when each goes on with its own row of tokens."""


class Followed(NamedTuple):
    """The inputs on which an event occurs, with the path that shows it."""

    rows: Int[Tensor, " hit"]
    path: Int[Tensor, "hit step"]
    activations: list[Float[Tensor, "hit width"]]
    """Before each of the path's tokens."""
    near_ties: int
    """After the first token."""

    def first(self, count: int) -> Followed:
        """The first `count` of them."""
        before = [v[:count] for v in self.activations]
        return self._replace(rows=self.rows[:count], path=self.path[:count], activations=before)


def follow(
    model: Model,
    event: Event,
    v: Float[Tensor, "rows width"],
    token: Int[Tensor, " rows"],
    onwards: Onwards,
) -> Followed:
    """The rows on which the event occurs, from their activations and what wins there.

    Rows that can no longer match are left behind, and so are those that meet an exact tie.
    """
    size = max(len(token), 1) if event.steps == 1 else ROWS
    places = torch.arange(len(token)).split(size)
    pieces = [_follow(model, event, v, token, rows, onwards) for rows in places]
    near_ties = sum(piece.near_ties for piece in pieces)
    found = [piece for piece in pieces if len(piece.rows)]
    if not found:
        return Followed(token[:0], token.new_empty(0, event.steps), [], near_ties)
    before = [torch.cat(step) for step in zip(*(p.activations for p in found), strict=True)]
    rows, path = torch.cat([p.rows for p in found]), torch.cat([p.path for p in found])
    return Followed(rows, path, before, near_ties)


def _follow(
    model: Model, event: Event, v: Tensor, token: Tensor, rows: Tensor, onwards: Onwards
) -> Followed:
    path, near_ties = token[rows, None], 0
    before: list[Tensor] = []
    while True:
        allowed = path[:, -1] >= 0
        allowed[allowed.clone()] = event.allows(path[allowed], model.tokenizer)
        rows, path = rows[allowed], path[allowed]
        before = [v[rows], *(step[allowed] for step in before[1:])]
        if path.shape[1] == event.steps or not len(rows):
            return Followed(rows, path, before, near_ties)
        before.append(onwards(rows, path))
        won = winners(model, before[-1])
        near_ties += won.near_ties
        path = torch.cat([path, won.token[:, None]], 1)


def smallest_gap(model: Model, event: Event, followed: Followed) -> Float64[Tensor, " hit"]:
    """The smallest gap along each path."""
    gap = torch.full((len(followed.rows),), math.inf, dtype=torch.float64)
    for step, v in enumerate(followed.activations if len(gap) else ()):
        if isinstance(event, TokenIn):
            targets, owner = [event], torch.zeros_like(followed.rows)
        else:
            tokens, owner = followed.path[:, step].unique(return_inverse=True)
            targets = [TokenIs(token) for token in tokens.tolist()]
        gap = torch.minimum(gap, Decider(model, targets)(v, owner))
    return gap


class Plainly:
    """Inputs that go on by plain passes, and what that took."""

    def __init__(self, model: Model, tokens: Int[Tensor, "rows position"]) -> None:
        self.model, self.tokens = model, tokens
        self.forwards = self.macs = 0

    def __call__(
        self, rows: Int[Tensor, " some"], path: Int[Tensor, "some step"]
    ) -> Float[Tensor, "some width"]:
        longer = torch.cat([self.tokens[rows], path], 1)
        call = self.model.network.macs(longer.shape[1]) + self.model.unembedding.numel()
        self.forwards += len(rows)
        self.macs += len(rows) * call
        return activations(self.model, longer)
