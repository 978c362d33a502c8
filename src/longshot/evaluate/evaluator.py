"""One evaluator for all events: does the event occur, with what score, and which way is up.

An event is scored along its paths: a path c_1…c_m after x by its worst step,

    min over j of the gap of c_j after x·c_1…c_{j−1},

positive exactly when the greedy continuation of x is the path; of several paths the best counts.
Its gradient is that of the one step that decides, with respect to the embeddings of x alone, and
takes a second pass over that step. Steps that paths share are run once, and a token is a path of
one step: many of those are evaluated side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.evaluate.blocks import GRAIN
from longshot.evaluate.greedy import PlainContinuations, outcomes
from longshot.evaluate.passes import Evaluation, Known, Pass, Spent
from longshot.evaluate.readers import Decision, LogitReader, TokenReader
from longshot.evaluate.sampled import SampledPath, ranked
from longshot.evaluate.texts import Sayer, TextEvent
from longshot.events import Event, Score, Step, TokenIn
from longshot.inputs import Inputs
from longshot.models import Model


class Evaluator:
    """Scores inputs for events of one step side by side, or for one event with all its paths.

    Row r belongs to event `owner[r]`. Where it is told from which distribution the rows come, it
    runs their fixed beginning only once.
    """

    def __init__(
        self,
        model: Model,
        events: Sequence[Event],
        score: Score = "logit",
        inputs: Inputs | None = None,
    ) -> None:
        self.model, self.events = model, events
        self._paths: list[Int[Tensor, " step"]] = []
        self._text: TextEvent | None = None
        self._say = Sayer(model, inputs)
        self._seen: tuple[Tensor, Decision] | None = None
        if all(event.is_single_step for event in events):
            reader = TokenReader(model, events, score)
            self.passes = [Pass(model, (), reader, len(events), inputs)]
        elif len(events) > 1:
            raise LongshotError("An event beyond one token is evaluated alone.")
        elif events[0].decided_by == "logits":
            self.passes = [Pass(model, (), LogitReader(model, events[0]), 1, inputs)]
        elif events[0].paths:
            self._lay_out_paths(events[0], inputs)
        else:
            self.passes, self._text = [], ranked(events[0])
        self._decoded = Spent(0, 0, 0)
        self._decoded_ties = 0

    def _lay_out_paths(self, event: Event, inputs: Inputs | None) -> None:
        """A pass for each forced beginning, the shortest first, with all that may follow it."""
        scored = sorted({s for path in event.paths for s in path}, key=_by_length)
        beginnings = list(dict.fromkeys(step.forced for step in scored))
        following = [
            [TokenIn(frozenset(s.members)) for s in scored if s.forced == f] for f in beginnings
        ]
        self.passes = [
            Pass(self.model, f, self._reader(event, len(f), after), len(after), inputs)
            for f, after in zip(beginnings, following, strict=True)
        ]
        self._paths = [torch.tensor([scored.index(s) for s in path]) for path in event.paths]
        self._pass = torch.tensor([beginnings.index(step.forced) for step in scored])
        self._place = torch.tensor([i for after in following for i in range(len(after))])

    def _reader(self, event: Event, step: int, after: list[TokenIn]) -> TokenReader | LogitReader:
        if isinstance(event, SampledPath):
            return LogitReader(self.model, event.at(step))
        return TokenReader(self.model, after, "gap")

    def __call__(
        self,
        tokens: Int[Tensor, "rows position"],
        owner: Int[Tensor, " rows"],
        gradient: bool = False,
        known: Sequence[Known] | None = None,
    ) -> Evaluation:
        """Score and activations of each input and, if asked, the gradient of its score."""
        if self._text is not None:
            return self._read(tokens, gradient)
        remembered = [None] * len(self.passes) if known is None else known
        if not self._paths:
            return self.passes[0](tokens, owner, gradient, remembered[0])
        alone = len(self._pass) == 1  # its pass can give the gradient at once
        first = torch.zeros_like(owner)
        both = list(zip(self.passes, remembered, strict=True))
        seen = [one(tokens, first, gradient and alone, memory) for one, memory in both]
        gaps = torch.cat([_gaps(*pair) for pair in zip(self.passes, seen, strict=True)], 1)
        lows = [gaps[:, path].min(1) for path in self._paths]
        score, best = torch.stack([low.values for low in lows]).max(0)
        worst = [path[low.indices] for path, low in zip(self._paths, lows, strict=True)]
        slopes = seen[0].gradient
        if gradient and not alone:
            decisive = torch.stack(worst).gather(0, best[None])[0]
            slopes = self._gradient(tokens, decisive, remembered)
        return Evaluation(score, torch.cat([e.activation for e in seen], 1), slopes)

    def _gradient(
        self,
        tokens: Int[Tensor, "rows position"],
        worst: Int[Tensor, " rows"],
        remembered: Sequence[Known | None],
    ) -> Float[Tensor, "rows position embedding"]:
        """The gradient of the gap of each row's own worst step."""
        slopes: Tensor | None = None
        for i, (one, known) in enumerate(zip(self.passes, remembered, strict=True)):
            rows = (self._pass[worst] == i).nonzero()[:, 0]
            if not len(rows):
                continue
            if known is not None:  # a copy, filled up: the states themselves stay as they are
                spare = rows[:1].expand(-len(rows) % GRAIN)
                known = known.rows(torch.cat([rows, spare]))
            found = one(tokens[rows], self._place[worst[rows]], True, known).gradient
            assert found is not None
            if slopes is None:
                slopes = found.new_empty(len(tokens), *found.shape[1:])
            slopes[rows.to(found.device)] = found
        assert slopes is not None
        return slopes

    def decide(
        self,
        tokens: Int[Tensor, "rows position"],
        activation: Float[Tensor, "rows side_by_side"],
        owner: Int[Tensor, " rows"],
    ) -> Decision:
        """Whether the owner's event occurs, from the activations of an evaluation."""
        if self._text is not None:
            if self._seen is None or self._seen[0] is not tokens:
                self._read(tokens, False)
            assert self._seen is not None
            return self._seen[1]
        before = activation.split(self.model.width, 1)
        if not self._paths:
            return self.passes[0].reader.decide(before[0], owner)
        if not self.events[0].follows_paths:
            return self._decode(tokens, before[0])
        gap = torch.full((len(tokens),), math.inf, dtype=torch.float64)
        grade, left = torch.ones_like(gap), torch.arange(len(tokens))
        for one, v in zip(self.passes, before, strict=True):  # what is lost is not gone on with
            found = one.reader.decide(v[left.to(v.device)], torch.zeros_like(left))
            gap[left] = gap[left].minimum(found.gap)
            grade[left] *= found.grade
            left = left[grade[left] > 0]
        return Decision(grade, gap)

    def _read(self, tokens: Int[Tensor, "rows position"], gradient: bool) -> Evaluation:
        """What the event reads in the outputs; their score has no gradient."""
        event = self._text
        assert event is not None
        if gradient:
            raise LongshotError(f"{event.key} has no gradient to climb.")
        said = self._say(tokens, event.steps, event.temperature, event.looks_close)
        self._seen = (tokens, event.read(self.model, tokens, said))
        v = self.model.unembedding.new_zeros(len(tokens), self.model.width)
        return Evaluation(self._seen[1].gap, v, None)

    def reach(
        self,
        tokens: Int[Tensor, "rows position"],
        least: Float64[Tensor, " rows"],
        known: Sequence[Known] | None = None,
    ) -> Decision:
        """Score and grade of inputs for the only event; −inf and 0 where they do not reach `least`.

        Most of those that do not, for an event of one step, never meet the whole vocabulary.
        """
        owner = torch.zeros(len(tokens), dtype=torch.int64)
        if self._text is not None:
            grade, gap = self.decide(tokens, torch.empty(len(tokens), 0), owner)
            return Decision(
                grade.masked_fill(gap < least, 0), gap.masked_fill(gap < least, -math.inf)
            )
        if not self._paths:
            one = self.passes[0]
            found = one.reader.decide(
                one.activations(tokens, None if known is None else known[0]), owner, least
            )
            below = found.gap < least
            return Decision(
                found.grade.masked_fill(below, 0), found.gap.masked_fill(below, -math.inf)
            )
        score, activation, _ = self(tokens, owner, known=known)
        score, grade = score.double(), torch.zeros(len(tokens), dtype=torch.float64)
        rows = (score >= least).nonzero()[:, 0]
        at = activation[rows.to(activation.device)]
        grade[rows] = self.decide(tokens[rows], at, owner[rows]).grade
        return Decision(grade, score.masked_fill(score < least, -math.inf))

    def _decode(
        self, tokens: Int[Tensor, "rows position"], v: Float[Tensor, "rows width"]
    ) -> Decision:
        """By the greedy continuation itself."""
        go_on = PlainContinuations(self.model, tokens)
        found = outcomes(self.model, self.events[0], v, go_on)
        self._decoded_ties += found.near_ties
        forwards, _, macs = self._decoded
        macs += go_on.macs + len(tokens) * self.model.unembedding.numel()
        self._decoded = Spent(forwards + go_on.forwards, 0, macs)
        grade = torch.zeros(len(tokens), dtype=torch.float64)
        gap = torch.full_like(grade, -math.inf)
        grade[found.rows], gap[found.rows] = found.grade, found.gap
        return Decision(grade, gap)

    @property
    def near_ties(self) -> Int[Tensor, " event"]:
        if self._text is not None:
            return torch.zeros(1, dtype=torch.int64)
        if not self._paths:
            return self.passes[0].reader.near_ties
        return torch.tensor(
            [self._decoded_ties + sum(int(one.reader.near_ties.sum()) for one in self.passes)]
        )

    def cost(self, i: int) -> Spent:
        """What was spent on event i so far."""
        if self._text is not None:
            return Spent(self._say.forwards, 0, self._say.macs)
        if not self._paths:
            return self.passes[0].cost(i)
        each = [one.cost(j) for one in self.passes for j in range(len(one.reader.near_ties))]
        return Spent(*(sum(parts) for parts in zip(self._decoded, *each, strict=True)))


def _by_length(step: Step) -> tuple[int, Step]:
    return len(step.forced), step


def _gaps(one: Pass, evaluation: Evaluation) -> Float[Tensor, "rows following"]:
    """The gap of each token that may follow, from an evaluation of the first of them."""
    reader = one.reader
    if isinstance(reader, LogitReader) or len(reader.members) == 1:
        return evaluation.score[:, None]
    reader.decider.count(torch.zeros(len(evaluation.score), dtype=torch.int64))  # the logits again
    return reader.gaps(evaluation.activation).cpu()
