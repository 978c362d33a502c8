"""Sampled outputs: the probability that an input's output is bad, given the input.

At temperature τ a token y follows with q(y) ∝ exp(logit(y)/τ). The grade of an input is

    Σ_{y ∈ S} q(y)                          where one of a set of tokens should come next,
    Π_j q(c_j after x·c_1…c_{j−1})          where the output should begin with c_1…c_m,

both exact; an event that is read in the text has the row's own numbers to sample by, and occurs or
does not. Where tokens decide, the score is τ·log(g/(1 − g)) with g the grade of one step, the worst
of several: positive where the step is likelier than not, and the greedy gap as τ → 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.evaluate.greedy import Continue, Outcomes
from longshot.evaluate.readers import Decision, decide_by_logits
from longshot.evaluate.texts import Said, TextEvent
from longshot.events import (
    Continuation,
    Event,
    EventLike,
    Path,
    TokenIn,
    as_event,
    output_text,
)
from longshot.models import Model


@dataclass(frozen=True)
class Sampled(Event):
    """An event of which the output is sampled at a temperature rather than greedy."""

    event: EventLike
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise LongshotError(f"A temperature is 0 or positive, which {self.temperature} is not.")

    @property
    def key(self) -> str:
        return f"sampled at {self.temperature}: {self.event}"

    def on(self, model: Model) -> Event:
        """The greedy event at temperature 0, else the kind that its output asks for."""
        event = as_event(self.event, model)
        if self.temperature == 0:
            return event
        if event.follows_paths and len(event.paths) == 1:
            members = [step.members for step in event.paths[0]]
            if len(members) == 1:
                return SampledToken(TokenIn(frozenset(members[0])), self.temperature)
            return SampledPath(Continuation([token for (token,) in members]), self.temperature)
        if hasattr(event, "accepts"):
            return SampledMatch(event, self.temperature)
        if hasattr(event, "at"):
            warmer: Event = event.at(self.temperature)
            return warmer
        raise LongshotError(f"The output of {event.key} cannot be sampled.")


@dataclass(frozen=True)
class SampledToken(Event):
    """The next token, sampled, is one of a set."""

    event: TokenIn
    temperature: float

    @property
    def key(self) -> str:
        return f"sampled at {self.temperature}: {self.event.key}"

    def score(self, logits: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
        log_q = (logits / self.temperature).log_softmax(-1)
        inside = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        inside[list(self.event.members)] = True
        ours, others = (log_q.masked_fill(mask, -math.inf) for mask in (~inside, inside))
        return self.temperature * (ours.logsumexp(-1) - others.logsumexp(-1))

    def grade(self, logits: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
        q = (logits.double() / self.temperature).softmax(-1)
        return q[..., list(self.event.members)].sum(-1)

    def show(self, model: Model) -> str:
        return f"{self.event.show(model)} sampled at {self.temperature}"


@dataclass(frozen=True)
class SampledPath(Event):
    """The output, sampled, begins with these tokens."""

    event: Continuation
    temperature: float
    decided_by = "itself"
    follows_paths = True

    @property
    def key(self) -> str:
        return f"sampled at {self.temperature}: {self.event.key}"

    @property
    def steps(self) -> int:
        return self.event.steps

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.event.paths

    def outcomes(self, model: Model, v: Float[Tensor, "rows width"], go_on: Continue) -> Outcomes:
        """The grade of every input, by the path that it is asked for."""
        rows = torch.arange(len(v))
        path = torch.tensor(self.event.tokens).expand(len(v), -1)
        grade = torch.ones(len(v), dtype=torch.float64)
        gap = torch.full_like(grade, math.inf)
        for step in range(self.steps):
            before = v if step == 0 else go_on(rows, path[:, :step])
            found = decide_by_logits(model, self.at(step), before)
            grade, gap = grade * found.grade, torch.minimum(gap, found.gap)
        rows = (grade > 0).nonzero()[:, 0]
        return Outcomes(rows, grade[rows], gap[rows], 0)

    def at(self, step: int) -> SampledToken:
        """What is asked of one step."""
        return SampledToken(TokenIn(frozenset((self.event.tokens[step],))), self.temperature)

    def show(self, model: Model) -> str:
        return f"{self.event.show(model)} sampled at {self.temperature}"


@dataclass(frozen=True)
class SampledMatch(TextEvent):
    """The text of the output, sampled, satisfies an expression or a function."""

    event: Any
    """One of those that `accepts` texts, such as `Matches`."""
    temperature: float = 0.0
    can_be_ranked = False

    @property
    def key(self) -> str:
        return f"sampled at {self.temperature}: {self.event.key}"

    @property
    def steps(self) -> int:
        steps: int = self.event.steps
        return steps

    def read(self, model: Model, tokens: Int[Tensor, "rows position"], said: Said) -> Decision:
        texts = [output_text(model.tokenizer, path) for path in said.path.tolist()]
        found = torch.tensor([self.event.accepts(text) for text in texts], dtype=torch.float64)
        return Decision(found, 2 * found - 1)

    def show(self, model: Model) -> str:
        return f"{self.event.show(model)} sampled at {self.temperature}"


@dataclass(frozen=True)
class RankedMatch(TextEvent):
    """A match in the greedy output, with a score for inputs that do not match.

    They are as far from it as the nearest token that, said in place of one of the output's tokens,
    would have made it match: the score is how far that token's logit is behind the winner's. Only
    the likeliest tokens of each step are tried, so that the score has a lower end.
    """

    event: Any
    temperature: float = 0.0
    looks_close: bool = True

    @property
    def key(self) -> str:
        return str(self.event.key)

    @property
    def steps(self) -> int:
        steps: int = self.event.steps
        return steps

    def read(self, model: Model, tokens: Int[Tensor, "rows position"], said: Said) -> Decision:
        gaps = []
        for path, close, behind in zip(*(part.tolist() for part in said), strict=True):
            if self.event.accepts(output_text(model.tokenizer, path)):
                gaps.append(-max(step[1] for step in behind))
            else:
                gaps.append(self._nearest(model, path, close, behind))
        return Decision.by_gap(torch.tensor(gaps, dtype=torch.float64))

    def _nearest(
        self, model: Model, path: list[int], close: list[list[int]], behind: list[list[float]]
    ) -> float:
        floor = min(x for step in behind for x in step if x > -math.inf)
        best = floor
        for j, (tokens, how_far) in enumerate(zip(close, behind, strict=True)):
            for token, far in zip(tokens, how_far, strict=True):
                if far <= best:
                    break
                text = output_text(model.tokenizer, [*path[:j], token])
                if token != path[j] and self.event.accepts(text):
                    best = far
                    break
        return min(best, -1e-9)  # a tie is no win


def ranked(event: Event) -> TextEvent:
    """An event that is read in the output, with a score for inputs on which it does not occur."""
    if hasattr(event, "accepts"):
        return RankedMatch(event)
    if not isinstance(event, TextEvent):
        raise LongshotError(f"{event.key} has no score.")
    return event
