"""What counts as the rare output.

An event on the last position's argmax is a set S of tokens, most often of one:

    it occurs when  max over S of M_i  >  max outside S of M_i      (strictly: a tie is no win)
    its logit is    max over S of M_i                                (the paper's score)
    its gap is      the left side minus the right: positive exactly when it occurs

Beyond one token it is about the greedy continuation of the input, the argmax fed back n times: a
`Continuation` is what that must be, token for token; `Matches` is a question to its text. A tie on
the way ends the continuation, and nothing that ended occurs.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.models import Model, Tokenizer

Score = Literal["logit", "gap"]


@dataclass(frozen=True)
class TokenIn:
    """The argmax at the last position is one of `tokens`."""

    tokens: frozenset[int]
    steps = 1
    calls = 1

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

    def allows(self, path: Int[Tensor, "rows step"], tokenizer: Tokenizer) -> Bool[Tensor, " rows"]:
        """Whether it occurs where the argmax is the path's one token."""
        return torch.isin(path[:, 0], torch.tensor(self.members))


def TokenIs(token: int) -> TokenIn:
    """The argmax at the last position is `token`."""
    return TokenIn(frozenset((token,)))


@dataclass(frozen=True)
class Continuation:
    """The greedy continuation is exactly these tokens, or those that this text is made of."""

    said: str | Iterable[int]

    def __post_init__(self) -> None:
        if not isinstance(self.said, str):
            try:
                ids = tuple(operator.index(token) for token in self.said)
            except TypeError:
                sentence = f"A continuation is a text or token ids, not {self.said!r}."
                raise LongshotError(sentence) from None
            object.__setattr__(self, "said", ids)
        if not self.said:
            raise LongshotError("A continuation needs at least one token.")

    @property
    def tokens(self) -> tuple[int, ...]:
        if isinstance(self.said, str):
            raise LongshotError(f"{self!r} has no tokens before as_event gives it to a model.")
        return tuple(self.said)

    @property
    def key(self) -> str:
        return "continuation:" + ",".join(str(token) for token in self.tokens)

    @property
    def texts(self) -> tuple[tuple[int, ...], ...]:
        """The token sequences that a gradient can climb towards."""
        return (self.tokens,)

    @property
    def steps(self) -> int:
        """How many tokens of the greedy continuation decide."""
        return len(self.tokens)

    @property
    def reach(self) -> int:
        """How many tokens are fed after the input, at most."""
        return len(self.tokens) - 1

    @property
    def calls(self) -> int:
        """Forward calls of one score with its gradient and its decision, at most."""
        return _climbing_calls(self.texts)

    def allows(self, path: Int[Tensor, "rows step"], tokenizer: Tokenizer) -> Bool[Tensor, " rows"]:
        """Whether a greedy continuation that begins like this may still be it."""
        return (path == torch.tensor(self.tokens[: path.shape[1]])).all(1)

    def on(self, model: Model) -> Continuation:
        """With the tokens that its text is for this model."""
        return (
            Continuation(model.tokenizer.encode(self.said)) if isinstance(self.said, str) else self
        )


@dataclass(frozen=True)
class Matches:
    """The text of the greedy continuation of `within` tokens satisfies a regular expression or a
    function.

    The expression is searched for anywhere in the text. Such an event has no gradient; `climb` are
    texts that satisfy it, for methods that need one.
    """

    pattern: str | re.Pattern[str] | Callable[[str], object]
    within: int
    climb: Iterable[str | Continuation] = ()
    name: str | None = None
    """What a function is called in seeds and stores, unless by its own name."""

    def __post_init__(self) -> None:
        if isinstance(self.within, bool) or self.within < 1:
            raise LongshotError(f"Matches looks at one token or more, not within={self.within}.")
        if isinstance(self.pattern, str):
            try:
                re.compile(self.pattern)
            except re.error as error:
                sentence = f"{self.pattern!r} is no regular expression: {error}."
                raise LongshotError(sentence) from error
        elif not isinstance(self.pattern, re.Pattern) and not self.called:
            raise LongshotError(
                "A function without a name of its own needs one: Matches(…, name=…)."
            )
        climb = (self.climb,) if isinstance(self.climb, str) else self.climb
        texts = (Continuation(text) if isinstance(text, str) else text for text in climb)
        object.__setattr__(self, "climb", tuple(texts))

    @property
    def called(self) -> str:
        """The expression, or the function's qualified name; empty for a lambda without a name."""
        if self.name is not None or isinstance(self.pattern, str):
            return self.name or str(self.pattern)
        if isinstance(self.pattern, re.Pattern):
            usual = re.compile(self.pattern.pattern).flags
            flags = (
                "" if self.pattern.flags == usual else f" with {re.RegexFlag(self.pattern.flags)}"
            )
            return self.pattern.pattern + flags
        own = getattr(self.pattern, "__qualname__", "<lambda>")
        return "" if own.endswith("<lambda>") else f"{self.pattern.__module__}.{own}"

    @property
    def key(self) -> str:
        towards = ";".join(",".join(map(str, text)) for text in self.texts)
        return f"matches:{self.within}:{self.called}" + (f" climbing {towards}" if towards else "")

    @property
    def texts(self) -> tuple[tuple[int, ...], ...]:
        return tuple(text.tokens for text in self.climb if isinstance(text, Continuation))

    @property
    def steps(self) -> int:
        return self.within

    @property
    def reach(self) -> int:
        return max(self.within, *map(len, self.texts), 1) - 1

    @property
    def calls(self) -> int:
        return _climbing_calls(self.texts) + self.within - 1

    def allows(self, path: Int[Tensor, "rows step"], tokenizer: Tokenizer) -> Bool[Tensor, " rows"]:
        """Anything may match until it is complete; the function sees each text once."""
        if path.shape[1] < self.within or not len(path):
            return torch.ones(len(path), dtype=torch.bool)
        distinct, place = path.unique(dim=0, return_inverse=True)
        texts = [tokenizer.decode(row) for row in distinct.tolist()]
        return torch.tensor([self.accepts(text) for text in texts], dtype=torch.bool)[place]

    def accepts(self, text: str) -> bool:
        if isinstance(self.pattern, str | re.Pattern):
            return re.search(self.pattern, text) is not None
        return bool(self.pattern(text))

    def on(self, model: Model) -> Matches:
        texts = (text.on(model) for text in self.climb if isinstance(text, Continuation))
        return replace(self, climb=tuple(texts))


PathEvent = Continuation | Matches
Event = TokenIn | Continuation | Matches
EventLike = Event | int | str | Iterable[int | str]


def forced_prefixes(texts: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """What is fed after the input to score every token of the texts, the shortest first."""
    found = {text[:j] for text in texts for j in range(len(text))}
    return sorted(found, key=lambda prefix: (len(prefix), prefix))


def _climbing_calls(texts: tuple[tuple[int, ...], ...]) -> int:
    """One for each forced step; if several tokens are scored, one more for the worst's gradient."""
    scored = {text[: j + 1] for text in texts for j in range(len(text))}
    return len(forced_prefixes(texts)) + (len(scored) > 1)


def as_event(value: EventLike, model: Model) -> Event:
    """An event from itself, a token id, the text of one token, or several of these as a set."""
    event: Event
    if isinstance(value, Continuation | Matches):
        event = value.on(model)
    elif isinstance(value, TokenIn):
        event = value
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | Tensor):
        event = TokenIn(frozenset(_as_token(item, model) for item in value))
    else:
        event = TokenIs(_as_token(value, model))
    texts = (event.tokens,) if isinstance(event, TokenIn) else event.texts
    for token in (token for text in texts for token in text):
        if not 0 <= token < model.vocab_size:
            raise LongshotError(
                f"Token {token} is outside {model.name}'s vocabulary of {model.vocab_size}."
            )
    if isinstance(event, TokenIn) and len(event.tokens) == model.vocab_size:
        raise LongshotError("An event that holds every token always occurs.")
    return event


def token_events(events: Sequence[Event]) -> tuple[TokenIn, ...]:
    """The same events, all about the next token alone."""
    found = tuple(event for event in events if isinstance(event, TokenIn))
    if len(found) < len(events):
        raise LongshotError("Only events about the next token alone can be asked for here.")
    return found


def _as_token(value: object, model: Model) -> int:
    if isinstance(value, str):
        several = len(model.tokenizer.encode(value)) > 1
        try:
            return model.tokenizer.single(value)
        except LongshotError as error:
            if not several:
                raise
            raise LongshotError(
                f"{error} All of them in a row: Continuation({value!r}), in a shell --continuation."
            ) from None
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise LongshotError(f"A token is a text or a whole number, not {value!r}.")


def show_event(event: Event, model: Model) -> str:
    """An event as a person would read it."""
    if isinstance(event, Matches):
        return f"{event.called!r} within {event.within} tokens"
    if isinstance(event, Continuation):
        tokens = event.on(model).tokens
        spelt = " + ".join(model.tokenizer.show(token) for token in tokens)
        return f"{model.tokenizer.decode(list(tokens))!r} ({spelt})"
    shown = [model.tokenizer.show(token) for token in event.members]
    return shown[0] if len(shown) == 1 else "any of " + ", ".join(shown)


def member_table(events: Iterable[TokenIn]) -> torch.Tensor:
    """The events' tokens as rows of one table, short rows filled with their first token."""
    members = [event.members for event in events]
    longest = max(len(row) for row in members)
    return torch.tensor([row + (row[0],) * (longest - len(row)) for row in members])
