"""The evaluator's sibling for events beyond one token, which are scored along forced paths.

A text c_1…c_m is scored after x by its worst step,

    min over j of the gap of c_j after x·c_1…c_{j−1},

positive exactly when the greedy continuation of x is the text; of several texts the best counts.
Its gradient is that of the one step that decides, with respect to the embeddings of x alone, and
takes a second pass over that step. Steps that texts share are run once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from longshot.evaluate.argmax import UNEMBED_BLOCK, winners
from longshot.evaluate.evaluator import Evaluation, Evaluator, Spent
from longshot.evaluate.greedy import Plainly, follow, smallest_gap
from longshot.events import (
    Event,
    Matches,
    PathEvent,
    Score,
    TokenIn,
    TokenIs,
    forced_prefixes,
    token_events,
)
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.models import Model


class Step:
    """Inputs that go on with the same forced tokens, scored for what may come next."""

    def __init__(
        self,
        model: Model,
        forced: tuple[int, ...],
        following: list[int],
        inputs: ProductInputs | None,
    ) -> None:
        self.forced, self.following = torch.tensor(forced, dtype=torch.int64), following
        if inputs is not None:
            more = [TokenDistribution.fixed(token) for token in forced]
            inputs = ProductInputs(inputs.name, [*inputs.positions, *more])
        self.evaluator = Evaluator(model, [TokenIs(t) for t in following], "gap", inputs)
        self.others = 0  # multiply-accumulates of the logits again, for the others' gaps

    def __call__(
        self,
        tokens: Int[Tensor, "rows position"],
        owner: Int[Tensor, " rows"],
        gradient: bool = False,
    ) -> Evaluation:
        """The gap of the token `owner` of those that may follow."""
        longer = torch.cat([tokens, self.forced.expand(len(tokens), -1)], 1)
        found = self.evaluator(longer, owner, gradient)
        own = None if found.gradient is None else found.gradient[:, : tokens.shape[1]]
        return found._replace(gradient=own)

    def gaps(self, evaluation: Evaluation) -> Float[Tensor, "rows following"]:
        """Of all that may follow, from an evaluation of the first of them."""
        if len(self.following) == 1:
            return evaluation.score[:, None]
        readout, found = self.evaluator.readout, []
        self.others += len(evaluation.activation) * readout.rows.numel()
        for v in evaluation.activation.split(UNEMBED_BLOCK):
            logits = readout.logits(v)
            best, second = logits.topk(2).values[:, :, None].unbind(1)
            own = logits[:, self.following]
            found.append(own - torch.where(own == best, second, best))
        return torch.cat(found)

    def decide(
        self,
        tokens: Int[Tensor, "rows position"],
        v: Float[Tensor, "rows width"],
        owner: Int[Tensor, " rows"],
    ) -> Float64[Tensor, " rows"]:
        return self.evaluator.decide(tokens, v, owner)

    def cost(self) -> Spent:
        """What was spent on all that may follow."""
        each = [self.evaluator.cost(i) for i in range(len(self.following))]
        forwards, backwards, macs = (sum(parts) for parts in zip(*each, strict=True))
        return Spent(forwards, backwards, macs + self.others)


class PathEvaluator:
    """Scores inputs for one event; the activations of all its steps stand side by side."""

    def __init__(self, model: Model, event: PathEvent, inputs: ProductInputs | None) -> None:
        self.model, self.event = model, event
        prefixes, texts = forced_prefixes(event.texts), event.texts
        following = [
            sorted({text[len(p)] for text in texts if text[: len(p)] == p != text})
            for p in prefixes
        ]
        pairs = list(zip(prefixes, following, strict=True))
        self.steps = [Step(model, *pair, inputs) for pair in pairs]
        scored = [(*prefix, token) for prefix, tokens in pairs for token in tokens]
        self._paths = [
            torch.tensor([scored.index(text[: j + 1]) for j in range(len(text))]) for text in texts
        ]
        self._step = torch.tensor([prefixes.index(s[:-1]) for s in scored])
        self._place = torch.tensor([i for tokens in following for i in range(len(tokens))])
        self._forwards = self._macs = self._ties = 0  # of decoding

    def __call__(
        self,
        tokens: Int[Tensor, "rows position"],
        owner: Int[Tensor, " rows"],
        gradient: bool = False,
    ) -> Evaluation:
        """Score and activations of each input and, if asked, the gradient of its score."""
        alone = len(self._step) == 1  # its pass can give the gradient at once
        first = torch.zeros_like(owner)
        seen = [step(tokens, first, gradient and alone) for step in self.steps]
        both = zip(self.steps, seen, strict=True)
        gaps = torch.cat([step.gaps(evaluation) for step, evaluation in both], 1)
        lows = [gaps[:, path].min(1) for path in self._paths]
        score, text = torch.stack([low.values for low in lows]).max(0)
        worst = [path[low.indices] for path, low in zip(self._paths, lows, strict=True)]
        slopes = seen[0].gradient
        if gradient and not alone:
            slopes = self._gradient(tokens, torch.stack(worst).gather(0, text[None])[0])
        return Evaluation(score, torch.cat([e.activation for e in seen], 1), slopes)

    def _gradient(
        self, tokens: Int[Tensor, "rows position"], worst: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows position embedding"]:
        """Of the gap of each row's own worst token."""
        width, dtype = self.model.embedding.shape[1], self.steps[0].evaluator.readout.dtype
        slopes = torch.empty(*tokens.shape, width, dtype=dtype)
        for i, step in enumerate(self.steps):
            rows = (self._step[worst] == i).nonzero()[:, 0]
            if len(rows):
                found = step(tokens[rows], self._place[worst[rows]], gradient=True)
                assert found.gradient is not None
                slopes[rows] = found.gradient
        return slopes

    def decide(
        self,
        tokens: Int[Tensor, "rows position"],
        activation: Float[Tensor, "rows side_by_side"],
        owner: Int[Tensor, " rows"],
    ) -> Float64[Tensor, " rows"]:
        """The smallest gap along the path: positive exactly when the event occurs."""
        before = activation.split(self.model.width, 1)
        if isinstance(self.event, Matches):
            return self._decode(tokens, before[0])
        gap = torch.full((len(tokens),), math.inf, dtype=torch.float64)
        left = torch.arange(len(tokens))
        for step, v in zip(self.steps, before, strict=True):  # what is lost is not gone on with
            found = step.decide(tokens[left], v[left], torch.zeros_like(left))
            gap[left] = gap[left].minimum(found)
            left = left[gap[left] > 0]
        return gap

    def _decode(
        self, tokens: Int[Tensor, "rows position"], v: Float[Tensor, "rows width"]
    ) -> Float64[Tensor, " rows"]:
        """By the greedy continuation itself."""
        gap = torch.full((len(tokens),), -math.inf, dtype=torch.float64)
        won, onwards = winners(self.model, v), Plainly(self.model, tokens)
        hits = follow(self.model, self.event, v, won.token, onwards)
        gap[hits.rows] = smallest_gap(self.model, self.event, hits)
        self._ties += won.near_ties + hits.near_ties
        self._forwards += onwards.forwards
        self._macs += onwards.macs + len(tokens) * self.model.unembedding.numel()
        return gap

    @property
    def near_ties(self) -> Int[Tensor, " event"]:
        decided = sum(int(step.evaluator.decider.near_ties.sum()) for step in self.steps)
        return torch.tensor([self._ties + decided])

    def cost(self, i: int) -> Spent:
        """All that was spent so far; it was on one event."""
        each = [Spent(self._forwards, 0, self._macs), *(step.cost() for step in self.steps)]
        return Spent(*(sum(parts) for parts in zip(*each, strict=True)))


def evaluator_for(
    model: Model, events: Sequence[Event], score: Score, inputs: ProductInputs | None = None
) -> Evaluator | PathEvaluator:
    """Tokens are evaluated side by side; an event beyond one token alone, by its gap."""
    if len(events) == 1 and not isinstance(events[0], TokenIn):
        return PathEvaluator(model, events[0], inputs)
    return Evaluator(model, token_events(events), score, inputs)
