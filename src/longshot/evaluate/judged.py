"""Judged outputs: a second model reads each output in a prompt of yours and answers YES or NO.

    score = logit(YES) − logit(NO)          where one of them is the judge's answer,

and where neither is the judge could not tell: that is not YES, is counted apart, and has as its
score the lead of the likeliest other answer, if that is less.

**The judge's errors.** Labelled examples give the share t of bad texts that it finds and the share
f of good ones that it accuses. It says YES with probability q = p·t + (1 − p)·f, so that

    p = (q − f)/(t − f)                     (Rogan and Gladen 1978),

which falls with t and with f: the corrected interval has the lower end of q's with the upper ends
of theirs, and the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.evaluate.argmax import UNEMBED_BLOCK, readout
from longshot.evaluate.blocks import activations_after
from longshot.evaluate.readers import Decision
from longshot.evaluate.texts import Said, TextEvent
from longshot.events import output_text
from longshot.inputs import NOTHING
from longshot.inputs.chat import Messages, rendered
from longshot.models import Model, Tokenizer, load_model
from longshot.numerics import binomial_interval

OUTPUT, INPUT = "{output}", "{input}"
LOGITS = 2**23  # of a judge at once, few enough for the largest vocabulary


class Rates(NamedTuple):
    """How often a judge says YES of labelled texts, with 95% intervals."""

    found: float
    """Of bad ones."""
    found_interval: tuple[float, float]
    accused: float
    """Of good ones."""
    accused_interval: tuple[float, float]

    def correct(self, q: float, t: float, f: float) -> float:
        """The probability that makes q of a judge with these errors."""
        if t <= f:
            return 0.0 if q <= f else 1.0
        return min(max((q - f) / (t - f), 0.0), 1.0)

    def corrected(
        self, q: float, interval: tuple[float, float]
    ) -> tuple[float, tuple[float, float]]:
        """What the judge's share of YES says of the probability."""
        (t_low, t_high), (f_low, f_high) = self.found_interval, self.accused_interval
        low = self.correct(interval[0], t_high, f_high)
        high = self.correct(interval[1], t_low, f_low) if t_low > f_low else 1.0
        p = self.correct(q, self.found, self.accused) if self.found > self.accused else q
        return min(max(p, low), high), (low, high)


class JudgeTally:
    """What a judge was asked, and how often it could not tell."""

    def __init__(self) -> None:
        self.judged = self.unclear = self.macs = self.example_macs = 0


@dataclass(frozen=True)
class Judged(TextEvent):
    """A judge answers YES when it reads the output in a prompt.

    `prompt` is a text, or the messages of a chat, with {output} in it and, if wanted, {input}, the
    text of the input without special tokens.
    `judge` is a model, the one that is asked unless given. `examples` are texts with whether they
    are bad, from which the judge's errors are told.
    """

    prompt: str | Messages
    within: int
    judge: str | Path | Model | None = None
    temperature: float = 0.0
    examples: Iterable[tuple[str, bool]] = ()
    answers: tuple[str, str] = ("YES", "NO")
    tally: JudgeTally = field(default_factory=JudgeTally, compare=False, repr=False)

    def __post_init__(self) -> None:
        said = [self.prompt] if isinstance(self.prompt, str) else [text for _, text in self.prompt]
        if sum(text.count(OUTPUT) for text in said) != 1:
            raise LongshotError(f"The judge's prompt has {OUTPUT} in it, once: where it reads.")
        if isinstance(self.within, bool) or self.within < 1:
            raise LongshotError(f"A judge reads one token or more, not within={self.within}.")
        if not 0 <= self.temperature < math.inf:
            raise LongshotError(f"A temperature is 0 or positive, which {self.temperature} is not.")
        object.__setattr__(self, "examples", tuple(self.examples))

    @property
    def key(self) -> str:
        judge = self.judge.fingerprint if isinstance(self.judge, Model) else self.judge
        sampled = f"sampled at {self.temperature}: " if self.temperature else ""
        return f"{sampled}judged:{self.within}:{judge}:{self.answers[0]}:{self.prompt}"

    @property
    def steps(self) -> int:
        return self.within

    @property
    def macs_beside(self) -> int:
        return self.tally.macs

    @property
    def example_macs(self) -> int:
        """Multiply-accumulates of the judge on its examples."""
        return self.tally.example_macs

    def on(self, model: Model) -> Judged:
        judge = model if self.judge is None else load_model(self.judge)
        made = replace(self, judge=judge, tally=JudgeTally())
        _ = made.words  # refused before anything runs
        return made

    def at(self, temperature: float) -> Judged:
        """The same of outputs that are sampled."""
        return replace(self, temperature=temperature)

    def show(self, model: Model) -> str:
        judge = self.judge.name if isinstance(self.judge, Model) else self.judge
        return f"{self.answers[0]} from {judge} about {self.within} tokens"

    @property
    def _judge(self) -> Model:
        if not isinstance(self.judge, Model):
            raise LongshotError("A judged event has no judge before as_event gives it a model.")
        return self.judge

    @cached_property
    def words(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens that mean YES and those that mean NO: all ways to begin with either."""
        yes, no = (_ways(self._judge.tokenizer, answer) for answer in self.answers)
        if not yes or not no or yes & no:
            raise LongshotError(
                f"{self.answers[0]!r} and {self.answers[1]!r} begin with the same token for "
                f"{self._judge.name}: choose other answers."
            )
        return tuple(sorted(yes)), tuple(sorted(no))

    def read(self, model: Model, tokens: Int[Tensor, "rows position"], said: Said) -> Decision:
        tokenizer = model.tokenizer
        outputs = [output_text(tokenizer, path) for path in said.path.tolist()]
        words = (
            [t for t in row if t >= 0 and t not in tokenizer.special_ids] for row in tokens.tolist()
        )
        asked = [tokenizer.decode(row) for row in words]
        return self.judgement(outputs, asked)

    def judgement(self, outputs: list[str], asked: list[str]) -> Decision:
        """What the judge says of outputs, each beside its input; equal ones are read once."""
        pairs = list(zip(outputs, asked, strict=True))
        distinct = list(dict.fromkeys(pairs)) if self._reads_input else list(dict.fromkeys(outputs))
        place = {what: i for i, what in enumerate(distinct)}
        gap, clear = self._answers([w if isinstance(w, tuple) else (w, "") for w in distinct])
        rows = torch.tensor([place[p if self._reads_input else p[0]] for p in pairs])
        self.tally.judged += len(pairs)
        self.tally.unclear += int((~clear[rows]).sum())
        return Decision.by_gap(gap[rows])

    @property
    def _reads_input(self) -> bool:
        return INPUT in str(self.prompt)

    def _answers(self, texts: list[tuple[str, str]]) -> tuple[Float64[Tensor, " n"], Tensor]:
        """The score of each text, and whether the judge could tell."""
        judge, (yes, no) = self._judge, self.words
        rows = [self._question(output, asked) for output, asked in texts]
        longest = max(len(row) for row in rows)
        if longest > judge.context:
            raise LongshotError(
                f"{judge.name} reads {judge.context} tokens, not the {longest} of its prompt."
            )
        tokens = torch.tensor([row + [NOTHING] * (longest - len(row)) for row in rows])
        read, took = activations_after(judge, tokens, self._fixed)
        self.tally.macs += took + len(tokens) * judge.unembedding.numel()
        found = []
        for v in read.split(max(1, min(UNEMBED_BLOCK, LOGITS // judge.vocab_size))):
            logits = readout(judge).logits(v).cpu()
            ours, theirs = (logits[:, list(words)].amax(1).double() for words in (yes, no))
            logits[:, [*yes, *no]] = -math.inf
            other = logits.amax(1).double()
            clear = torch.maximum(ours, theirs) > other
            behind = torch.minimum(ours - theirs, ours - other)
            found.append((torch.where(clear, ours - theirs, behind), clear))
        gaps, clears = zip(*found, strict=True)
        return torch.cat(gaps), torch.cat(clears)

    def _question(self, output: str, asked: str) -> list[int]:
        """The tokens that the judge reads."""
        tokenizer, marks = self._judge.tokenizer, ("\ue000", "\ue001")
        if isinstance(self.prompt, str):
            text = self.prompt.replace(OUTPUT, marks[0]).replace(INPUT, marks[1])
        else:
            text = self._rendered.replace(OUTPUT, marks[0]).replace(INPUT, marks[1])
        text = text.replace(marks[0], output).replace(marks[1], asked)
        bos = [tokenizer.bos] if isinstance(self.prompt, str) else []
        return bos + tokenizer.encode(text)

    @cached_property
    def _fixed(self) -> int:
        """The number of tokens with which every question begins."""
        one, other = self._question("a", "b"), self._question("7", "8")
        return next(
            (i for i, pair in enumerate(zip(one, other, strict=False)) if len({*pair}) > 1), 0
        )

    @cached_property
    def _rendered(self) -> str:
        assert not isinstance(self.prompt, str)
        return rendered(self._judge.tokenizer, self.prompt)

    @cached_property
    def rates(self) -> Rates | None:
        """The judge's errors on the labelled examples; None without any."""
        examples = list(self.examples)
        if not examples:
            return None
        apart = replace(self, tally=JudgeTally())
        said = apart.judgement([text for text, _ in examples], [""] * len(examples)).grade > 0
        self.tally.example_macs = apart.tally.macs
        bad = torch.tensor([bool(label) for _, label in examples])
        if bad.all() or not bad.any():
            raise LongshotError(
                "The judge's examples need some that are bad and some that are not."
            )
        counts = [(int((said & which).sum()), int(which.sum())) for which in (bad, ~bad)]
        (found, accused) = (hits / n for hits, n in counts)
        intervals = [binomial_interval(*count) for count in counts]
        return Rates(found, intervals[0], accused, intervals[1])

    def told(self, q: float, interval: tuple[float, float] | None) -> dict[str, float]:
        """What stands beside an answer: how often the judge could not tell, and its errors."""
        known = {"could_not_tell": self.tally.unclear / max(self.tally.judged, 1)}
        if (rates := self.rates) is not None:
            known |= {"judge_finds": rates.found, "judge_accuses": rates.accused}
            if interval is not None:
                p, (low, high) = rates.corrected(q, interval)
                known |= {"corrected": p, "corrected_low": low, "corrected_high": high}
        return known


def _ways(tokenizer: Tokenizer, answer: str) -> set[int]:
    """The first tokens of an answer, in any case, with and without a space."""
    spelt = {answer, answer.lower(), answer.capitalize(), answer.upper()}
    ids = (tokenizer.encode(space + text) for text in spelt for space in ("", " ") if text)
    return {tokens[0] for tokens in ids if tokens and tokens != tokenizer.encode(" ")}
