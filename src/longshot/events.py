"""What counts as the rare output.

An event on the last position's argmax is a set S of tokens, most often of one:

    it occurs when  max over S of M_i  >  max outside S of M_i      (strictly: a tie is no win)
    its logit is    max over S of M_i                                (the paper's score)
    its gap is      the left side minus the right: positive exactly when it occurs
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from longshot.errors import LongshotError
from longshot.models import Model

Score = Literal["logit", "gap"]


@dataclass(frozen=True)
class TokenIn:
    """The argmax at the last position is one of `tokens`."""

    tokens: frozenset[int]

    def __post_init__(self) -> None:
        if not self.tokens:
            raise LongshotError("An event needs at least one token.")

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted(self.tokens))

    @property
    def key(self) -> str:
        """The event's name in seeds and stores, the same for equal events."""
        return "token:" + ",".join(str(token) for token in self.members)

    def logit(self, logits: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
        return logits[..., list(self.members)].amax(-1)

    def gap(self, logits: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
        rivals = logits.clone()
        rivals[..., list(self.members)] = -math.inf
        return self.logit(logits) - rivals.amax(-1)

    def score(
        self, logits: Float[Tensor, "*batch vocab"], kind: Score = "logit"
    ) -> Float[Tensor, "*batch"]:
        return self.logit(logits) if kind == "logit" else self.gap(logits)

    def occurs(self, logits: Float[Tensor, "*batch vocab"]) -> Bool[Tensor, "*batch"]:
        return self.gap(logits) > 0


def TokenIs(token: int) -> TokenIn:
    """The argmax at the last position is `token`."""
    return TokenIn(frozenset((token,)))


Event = TokenIn
EventLike = Event | int | str | Iterable[int | str]


def as_event(value: EventLike, model: Model) -> Event:
    """An event from itself, a token id, the text of one token, or several of these as a set."""
    if isinstance(value, TokenIn):
        event = value
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | Tensor):
        event = TokenIn(frozenset(_as_token(item, model) for item in value))
    else:
        event = TokenIs(_as_token(value, model))
    for token in event.tokens:
        if not 0 <= token < model.vocab_size:
            raise LongshotError(
                f"Token {token} is outside {model.name}'s vocabulary of {model.vocab_size}."
            )
    if len(event.tokens) == model.vocab_size:
        raise LongshotError("An event that holds every token always occurs.")
    return event


def _as_token(value: object, model: Model) -> int:
    if isinstance(value, str):
        return model.tokenizer.single(value)
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise LongshotError(f"A token is a text or a whole number, not {value!r}.")


def show_event(event: Event, model: Model) -> str:
    """An event as a person would read it."""
    shown = [model.tokenizer.show(token) for token in event.members]
    return shown[0] if len(shown) == 1 else "any of " + ", ".join(shown)


def member_table(events: Iterable[Event]) -> torch.Tensor:
    """The events' tokens as rows of one table, short rows filled with their first token."""
    members = [event.members for event in events]
    longest = max(len(row) for row in members)
    return torch.tensor([row + (row[0],) * (longest - len(row)) for row in members])
