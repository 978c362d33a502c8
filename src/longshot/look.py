"""What does the model say? All outputs with their probabilities, before anybody asks about one.

Inputs that can be listed, and are few enough, are all run: the table is exact. Of others a sample
is, and the table says how much was never seen: the probability of all outputs that the n samples
did not show is about that of a sample that shows a new one,

    f_1/n    (Good and Turing),      with f_1 the number of outputs that were seen once,

and outputs that were seen once are the rarer ones worth asking about. In an exact table the
unlikeliest are. What comes close and is never said is asked for by its lead: the tokens that are
the runner-up on some input, with how far they are behind at best, in the first token alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cell
from longshot.evaluate import Enumeration, Leaves, Sayer, activations, follow
from longshot.evaluate.argmax import UNEMBED_BLOCK, readout
from longshot.events import output_text
from longshot.inputs import Inputs, as_finite, is_finite, load_inputs
from longshot.models import Model, load_model
from longshot.names import MOST, SAMPLES

BLOCK = 2**10  # samples between two reports of progress


@dataclass(frozen=True)
class Output:
    """One thing that the model says."""

    text: str
    tokens: tuple[int, ...]
    probability: float
    seen: int
    """The number of inputs that showed it."""
    example: str
    """The likeliest of them, or the first."""


@dataclass(frozen=True)
class RunnerUp:
    """A token that no input had as its first, with how near the nearest came."""

    token: int
    text: str
    gap: float
    example: str


@dataclass(frozen=True)
class Sayings:
    """What a model says after some inputs, the likeliest first."""

    outputs: tuple[Output, ...]
    runners_up: tuple[RunnerUp, ...]
    inputs: int
    """How many were run."""
    is_exact: bool
    never_seen: float
    """The probability of all outputs that were not seen; 0 where every input was run."""


class _Outputs:
    """Outputs by their tokens, and the runners-up."""

    def __init__(self, model: Model) -> None:
        self.model, self.count = model, 0
        self.seen: dict[tuple[int, ...], list[float]] = {}
        self.examples: dict[tuple[int, ...], tuple[float, Tensor]] = {}
        self.behind = torch.full((model.vocab_size,), -math.inf)
        self.nearest: dict[int, Tensor] = {}

    def add(
        self,
        tokens: Int64[Tensor, "rows width"],
        log_prob: Float64[Tensor, " rows"],
        path: Int64[Tensor, "rows step"],
    ) -> None:
        """Count some outputs."""
        self.count += len(tokens)
        special = self.model.tokenizer.special_ids
        for i, (said, log_p) in enumerate(zip(path.tolist(), log_prob.tolist(), strict=True)):
            ends = (j + 1 for j, token in enumerate(said) if token in special)
            key = tuple(said[: next(ends, len(said))])
            entry = self.seen.setdefault(key, [0.0, 0])
            entry[0], entry[1] = entry[0] + math.exp(log_p), entry[1] + 1
            if key not in self.examples or log_p > self.examples[key][0]:
                self.examples[key] = (log_p, tokens[i])

    def look_behind(self, tokens: Int64[Tensor, "rows width"], v: Tensor) -> None:
        """Note how near each token came to being first."""
        for start in range(0, len(v), UNEMBED_BLOCK):
            logits = readout(self.model).logits(v[start : start + UNEMBED_BLOCK])
            gaps, rows = (logits - logits.amax(1, keepdim=True)).cpu().max(0)
            for token in (gaps > self.behind).nonzero()[:, 0].tolist():
                self.nearest[token] = tokens[start + int(rows[token])]
            self.behind = torch.maximum(self.behind, gaps.float())

    def text(self, row: Tensor) -> str:
        return self.model.tokenizer.decode([token for token in row.tolist() if token >= 0])

    def result(self, is_exact: bool, runners_up: int) -> Sayings:
        tokenizer = self.model.tokenizer
        order = sorted(self.seen.items(), key=lambda item: (-item[1][0], item[0]))
        outputs = tuple(
            Output(
                output_text(tokenizer, list(key)), key, p, int(n), self.text(self.examples[key][1])
            )
            for key, (p, n) in order
        )
        first = {key[0] for key in self.seen}
        close = [t for t in self.behind.argsort(descending=True).tolist() if t not in first]
        near = tuple(
            RunnerUp(t, tokenizer.show(t), float(self.behind[t]), self.text(self.nearest[t]))
            for t in close[:runners_up]
        )
        once = sum(n == 1 for _, n in self.seen.values())
        unseen = 0.0 if is_exact else once / max(self.count, 1)
        return Sayings(outputs, near, self.count, is_exact, unseen)


def look(
    model: str | Path | Model,
    inputs: str | Path | Inputs,
    *,
    tokens: int = 1,
    most: int = MOST,
    samples: int = SAMPLES,
    runners_up: int = 10,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Sayings:
    """What the model says in its first `tokens` tokens, greedily, and how often.

    All inputs are run where there are at most `most` of them, else `samples` of them.
    """
    if tokens < 1 or samples < 1:
        raise LongshotError("A look is at one token or more of one input or more.")
    language_model = load_model(model)
    distribution = load_inputs(inputs, language_model)
    if distribution.length + tokens - 1 > language_model.context:
        raise LongshotError(
            f"{language_model.name} reads {language_model.context} tokens, not the "
            f"{distribution.length + tokens - 1} of {distribution.name!r} with {tokens} more."
        )
    table = _Outputs(language_model)
    exact = is_finite(distribution) and as_finite(distribution, "a look").count <= most
    if exact:
        total = as_finite(distribution, "a look").count
        for leaves in Enumeration(language_model, distribution, more=tokens - 1):
            _add_leaves(table, leaves, tokens)
            progress(table.count / total)
    else:
        generator = Cell(language_model, distribution).generator(seed, "look")
        drawn, say = distribution.sample(samples, generator), Sayer(language_model, distribution)
        share = torch.full((samples,), -math.log(samples), dtype=torch.float64)
        for block, log_prob in zip(drawn.split(BLOCK), share.split(BLOCK), strict=True):
            v = activations(language_model, block)
            said = follow(language_model, v, _not_asked, 1) if tokens == 1 else say(block, tokens)
            table.add(block, log_prob, said.path)
            table.look_behind(block, v)
            progress(table.count / samples)
    return table.result(exact, runners_up)


def _not_asked(rows: Tensor, path: Tensor) -> Tensor:
    raise AssertionError("one token needs no other")


def _add_leaves(table: _Outputs, leaves: Leaves, tokens: int) -> None:
    said = follow(table.model, leaves.activation, leaves.go_on, tokens)
    table.add(leaves.tokens, leaves.log_prob, said.path)
    table.look_behind(leaves.tokens, leaves.activation)
