"""What counts as the rare output.

An event on the last position's argmax is a set S of tokens, most often of one:

    it occurs when  max over S of M_i  >  max outside S of M_i      (strictly: a tie is no win)
    its logit is    max over S of M_i                                (the paper's score)
    its gap is      the left side minus the right: positive exactly when it occurs

Beyond one token it is about the greedy continuation of the input, the argmax fed back n times: a
`Continuation` is what that must be, token for token; `Matches` is a question to its text. A tie on
the way ends the continuation, and nothing that ended occurs. A token is a path of length one.

An event of one's own is a subclass of `Event` with a `key` and a `score` of the next token's
logits; with a `grade` too where it occurs with some probability given the input.
"""

from __future__ import annotations

import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.models import Model, Tokenizer

Score = Literal["logit", "gap"]


class Step(NamedTuple):
    """A step of a path: after the input and the `forced` tokens, one of `members` must win."""

    forced: tuple[int, ...]
    members: tuple[int, ...]


Path = tuple[Step, ...]


class Event(ABC):
    """What every event can tell. Only `key` has no default, and `score` where logits decide."""

    decided_by: ClassVar[Literal["logits", "tokens", "itself"]] = "logits"
    """Whether `score` and `grade` of the next token's logits decide, or `allows` of the path of
    greedy tokens, or an `outcomes` of its own."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The event's name in seeds and stores, the same for equal events."""

    @property
    def steps(self) -> int:
        """How many tokens of the greedy continuation decide."""
        return 1

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths that a gradient can climb; a path's score is its smallest gap."""
        return ()

    @property
    def follows_paths(self) -> bool:
        """Whether the event occurs exactly when all steps of one of its paths are won."""
        return False

    def score(self, logits: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
        """A differentiable number that is positive exactly where the event occurs."""
        raise NotImplementedError(f"{type(self).__name__} has no score of logits")

    def grade(self, logits: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
        """The probability that the event occurs given the input."""
        return (self.score(logits) > 0).to(logits.dtype)

    def allows(self, path: Int[Tensor, "rows step"], tokenizer: Tokenizer) -> Bool[Tensor, " rows"]:
        """Whether a greedy continuation that begins with each path may still be the event."""
        raise NotImplementedError(f"{type(self).__name__} is not decided by tokens")

    def on(self, model: Model) -> Event:
        """The event in the tokens of a model, of which it is sure that the model has them."""
        return self

    def show(self, model: Model) -> str:
        """The event as a person would read it."""
        return self.key

    @property
    def noise(self) -> int:
        """How many uniform numbers decide beside the input: one for each token that is sampled."""
        return 0

    @property
    def macs_beside(self) -> int:
        """Multiply-accumulates so far of models that decide it, beside the one that is asked."""
        return 0

    @property
    def can_be_climbed(self) -> bool:
        return self.decided_by == "logits" or bool(self.paths)

    @property
    def can_be_ranked(self) -> bool:
        """Whether inputs on which it does not occur have a score that tells how near they are."""
        return self.can_be_climbed

    @property
    def is_single_step(self) -> bool:
        """Whether one pass over the input scores and decides it, beside other such events."""
        return len(self.paths) == 1 and len(self.paths[0]) == 1 and self.follows_paths

    @property
    def reach(self) -> int:
        """How many tokens are fed after the input, at most."""
        return max([self.steps, *(len(path) for path in self.paths)]) - 1

    @property
    def calls(self) -> int:
        """The forward calls of one score with its gradient and its decision, at most.

        There is one for each forced beginning, one more for the gradient of the worst of several
        steps, and one for each later token of a continuation that must be decoded.
        """
        scored = {step for path in self.paths for step in path}
        passes = len({step.forced for step in scored}) + (len(scored) > 1)
        return max(passes, 1) + (0 if self.follows_paths else self.steps - 1)


@dataclass(frozen=True)
class TokenIn(Event):
    """The argmax at the last position is one of `tokens`."""

    tokens: frozenset[int]
    decided_by = "tokens"
    follows_paths = True

    def __post_init__(self) -> None:
        if not self.tokens:
            raise LongshotError("An event needs at least one token.")

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted(self.tokens))

    @property
    def key(self) -> str:
        return "token:" + ",".join(str(token) for token in self.members)

    @property
    def paths(self) -> tuple[Path, ...]:
        return ((Step((), self.members),),)

    def logit(self, logits: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
        """The largest logit of the set, the paper's score."""
        return logits[..., list(self.members)].amax(-1)

    def score(self, logits: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
        """The gap: how far the set is ahead of all other tokens."""
        rivals = logits.clone()
        rivals[..., list(self.members)] = -math.inf
        return self.logit(logits) - rivals.amax(-1)

    def allows(self, path: Int[Tensor, "rows step"], tokenizer: Tokenizer) -> Bool[Tensor, " rows"]:
        return torch.isin(path[:, 0], torch.tensor(self.members))

    def on(self, model: Model) -> TokenIn:
        _refuse_foreign(self, model)
        if len(self.tokens) == model.vocab_size:
            raise LongshotError("An event that holds every token always occurs.")
        return self

    def show(self, model: Model) -> str:
        shown = [model.tokenizer.show(token) for token in self.members]
        return shown[0] if len(shown) == 1 else "any of " + ", ".join(shown)


def TokenIs(token: int) -> TokenIn:
    """The argmax at the last position is `token`."""
    return TokenIn(frozenset((token,)))


@dataclass(frozen=True)
class Continuation(Event):
    """The greedy continuation is exactly these tokens, or those that this text is made of."""

    said: str | Iterable[int]
    decided_by = "tokens"
    follows_paths = True

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
    def steps(self) -> int:
        return len(self.tokens)

    @property
    def paths(self) -> tuple[Path, ...]:
        return (path_of(self.tokens),)

    def allows(self, path: Int[Tensor, "rows step"], tokenizer: Tokenizer) -> Bool[Tensor, " rows"]:
        return (path == torch.tensor(self.tokens[: path.shape[1]])).all(1)

    def on(self, model: Model) -> Continuation:
        said = self.said
        if isinstance(said, str):
            return Continuation(model.tokenizer.encode(said)).on(model)
        _refuse_foreign(self, model)
        return self

    def show(self, model: Model) -> str:
        tokens = self.on(model).tokens
        spelt = " + ".join(model.tokenizer.show(token) for token in tokens)
        return f"{model.tokenizer.decode(list(tokens))!r} ({spelt})"


def output_text(tokenizer: Tokenizer, path: list[int]) -> str:
    """The text of an output, which ends with its first special token."""
    ends = (i + 1 for i, token in enumerate(path) if token in tokenizer.special_ids)
    return tokenizer.decode(path[: next(ends, len(path))])


def path_of(tokens: tuple[int, ...]) -> Path:
    """The path on which each of the tokens wins after those before it."""
    return tuple(Step(tokens[:j], (token,)) for j, token in enumerate(tokens))


@dataclass(frozen=True)
class Matches(Event):
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
    decided_by = "tokens"
    can_be_ranked = True

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
        """The token sequences that a gradient can climb towards."""
        return tuple(text.tokens for text in self.climb if isinstance(text, Continuation))

    @property
    def steps(self) -> int:
        return self.within

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(path_of(text) for text in self.texts)

    def allows(self, path: Int[Tensor, "rows step"], tokenizer: Tokenizer) -> Bool[Tensor, " rows"]:
        """Anything may match until it is complete; the function sees each text once."""
        if path.shape[1] < self.within or not len(path):
            return torch.ones(len(path), dtype=torch.bool)
        distinct, place = path.unique(dim=0, return_inverse=True)
        texts = [output_text(tokenizer, row) for row in distinct.tolist()]
        return torch.tensor([self.accepts(text) for text in texts], dtype=torch.bool)[place]

    def accepts(self, text: str) -> bool:
        if isinstance(self.pattern, str | re.Pattern):
            return re.search(self.pattern, text) is not None
        return bool(self.pattern(text))

    def on(self, model: Model) -> Matches:
        texts = (text.on(model) for text in self.climb if isinstance(text, Continuation))
        return replace(self, climb=tuple(texts))

    def show(self, model: Model) -> str:
        return f"{self.called!r} within {self.within} tokens"


EventLike = Event | int | str | Iterable[int | str]


def _refuse_foreign(event: Event, model: Model) -> None:
    for step in (step for path in event.paths for step in path):
        for token in step.members:
            if not 0 <= token < model.vocab_size:
                raise LongshotError(
                    f"Token {token} is outside {model.name}'s vocabulary of {model.vocab_size}."
                )


def as_event(value: EventLike, model: Model) -> Event:
    """An event from itself, a token id, the text of one token, or several of these as a set."""
    if isinstance(value, Event):
        return value.on(model)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Tensor):
        return TokenIn(frozenset(_as_token(item, model) for item in value)).on(model)
    return TokenIs(_as_token(value, model)).on(model)


def members_of(event: Event) -> tuple[int, ...]:
    """The tokens of an event about the next token's argmax alone; refuses any other."""
    if not event.is_single_step:
        raise LongshotError("Only events about the next token alone can be asked for here.")
    return event.paths[0][0].members


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


def member_table(events: Iterable[Event]) -> Int[Tensor, "event member"]:
    """The tokens of single-step events as rows of one table, short rows filled with their first."""
    members = [members_of(event) for event in events]
    longest = max(len(row) for row in members)
    return torch.tensor([row + (row[0],) * (longest - len(row)) for row in members])
