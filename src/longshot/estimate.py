"""The question, what an answer cost, and the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from longshot.errors import LongshotError, visible
from longshot.events import Event
from longshot.inputs import NOTHING, Inputs, log_prob
from longshot.models import Model
from longshot.numerics import derived_generator
from longshot.shown import Shown

LARGEST_BUDGET = 2**36
"""In model calls: a slip of the keyboard should not run for years."""

Progress = Callable[[float], None]
"""Called with the share of the work that is done, from 0 to 1."""


class CellKey(NamedTuple):
    """What a cell is called where neither model nor inputs are at hand: in stores and tables."""

    model: str
    model_fingerprint: str
    inputs: str
    inputs_fingerprint: str
    vocab_size: int

    def __str__(self) -> str:
        return f"{self.model} on {self.inputs}"


@dataclass(frozen=True)
class Cell:
    """A model and its inputs: what truth, stores and seeds are named by."""

    model: Model
    inputs: Inputs

    @property
    def fingerprints(self) -> tuple[str, str]:
        return self.model.fingerprint, self.inputs.fingerprint

    @property
    def key(self) -> CellKey:
        """The names and fingerprints of both."""
        model, inputs = self.model, self.inputs
        names = (model.name, model.fingerprint, visible(inputs.name), inputs.fingerprint)
        return CellKey(*names, model.vocab_size)

    def generator(self, seed: int, *parts: str | int) -> torch.Generator:
        """Randomness that depends on the cell, the seed and the parts, and on nothing else."""
        return derived_generator(seed, *self.fingerprints, *parts)


@dataclass(frozen=True)
class Problem:
    """What is asked: how likely is `event` when `model` reads `inputs`?"""

    model: Model
    inputs: Inputs
    event: Event


@dataclass(frozen=True)
class Job:
    """The same question of several events, with what may be spent on each.

    `budget` is a number of forward calls for each event, burn-in included; a stage that all events
    share spends it once.
    """

    model: Model
    inputs: Inputs
    events: tuple[Event, ...]
    budget: int
    seed: int = 0
    progress: Progress = lambda share: None
    _before: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_before", self._beside())

    def _beside(self) -> tuple[int, ...]:
        written = int(getattr(self.inputs, "macs_beside", 0))
        return (written, *(event.macs_beside for event in self.events))

    def beside(self, event: Event) -> tuple[Cost, Cost]:
        """What writing the inputs has taken since the job was made, and judging an event."""
        i = 1 + self.events.index(event)
        now, before = self._beside(), self._before
        return Cost(macs=now[0] - before[0]), Cost(macs=now[i] - before[i])

    def parts(self, most: int) -> Iterator[Job]:
        """The job in pieces of at most `most` events, each with its share of the progress.

        An event that is not decided by one step alone is a piece of its own.
        """
        total, start = len(self.events), 0
        while start < total:
            alone = [not e.is_single_step for e in self.events[start : start + most]]
            count = max(1, alone.index(True)) if any(alone) else len(alone)

            def report(done: float, start: int = start, count: int = count) -> None:
                self.progress((start + count * done) / total)

            yield replace(self, events=self.events[start : start + count], progress=report)
            start += count

    @property
    def is_path(self) -> bool:
        """Whether some event is not decided by one step alone."""
        return not all(event.is_single_step for event in self.events)

    @property
    def call_macs(self) -> int:
        """The multiply-accumulates of one plain call, its unembedding included."""
        return self.model.network.macs(self.inputs.length) + self.model.unembedding.numel()

    @property
    def evaluations(self) -> int:
        """How many scores with gradient and decision the budget pays for, for its dearest event."""
        return self.budget // max(event.calls for event in self.events)

    def generator(self, method: str, event: Event) -> torch.Generator:
        """The randomness of one event under one method, whatever runs beside it."""
        return self._derived(method, event.key)

    def shared_generator(self, stage: str) -> torch.Generator:
        """The randomness of what all events share."""
        return self._derived("shared", stage)

    def _derived(self, *parts: str) -> torch.Generator:
        return Cell(self.model, self.inputs).generator(self.seed, *parts)


@dataclass(frozen=True)
class Cost:
    """Model calls, multiply-accumulates of model and unembedding, and wall time."""

    forwards: int = 0
    backwards: int = 0
    macs: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Cost)))

    def share(self, some: int, of: int) -> Cost:
        """What `some` of the `of` equal samples cost, all of which cost this."""
        forwards, backwards = self.forwards * some // of, self.backwards * some // of
        return Cost(forwards, backwards, self.macs * some // of, self.seconds * some / of)


@dataclass(frozen=True)
class Witness:
    """An input that produces the target."""

    tokens: tuple[int, ...]
    text: str
    log_prob: float | None
    """Of the input under the input distribution; None where the inputs cannot tell."""
    gap: float
    """The target's logit minus its best rival's, the smallest where it takes several tokens."""


class Round(NamedTuple):
    """What was known after one round of a method that works in rounds."""

    forwards: int
    """The calls of this round and all before it, pilots included."""
    log_probability: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Estimate(Shown):
    """One method's answer to one problem.

    `log_probability` −inf means that no sample hit, not that the event is impossible. An
    `interval` has two sides where that is earned. One that begins at 0 is an upper bound, of 1
    where nothing is known, and `no_interval` says why there is no more.
    """

    method: str
    settings: Mapping[str, Any]
    event: str
    seed: int
    budget: int
    log_probability: float
    standard_error: float | None = None
    interval: tuple[float, float] = (0.0, 1.0)
    no_interval: str | None = None
    samples: int = 0
    hits: int | None = None
    effective_sample_size: float | None = None
    pareto_k: float | None = None
    acceptance_rate: float | None = None
    near_ties: int = 0
    witnesses: tuple[Witness, ...] = ()
    statistics: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    cost: Cost = Cost()
    shared_cost: Cost = Cost()
    """Of the stage that all targets of the run share; spent once, whatever their number."""
    explanation: str = ""
    """What was done and why, where the method chose."""
    trace: tuple[Round, ...] = ()
    """The running answer after each round, the last one included."""

    def __post_init__(self) -> None:
        if math.isnan(self.log_probability):
            raise FloatingPointError(f"{self.method} gave NaN for {self.event}")
        low, high = self.interval
        if not 0 <= low <= high <= 1:
            raise ValueError(f"{self.method} gave the interval {self.interval} for {self.event}")
        if self.interval == (0, 1) and self.no_interval is None:
            raise ValueError("an estimate has either an interval or the reason why not")

    def __repr__(self) -> str:
        low, high = self.interval
        ends = f"{low:.2g} … {high:.2g}" if self.is_two_sided else f"at most {high:.2g}"
        known = f"{self.probability:.3g}" if self.probability > 0 else "no hit"
        return f"Estimate({self.event} by {self.method}: {known}, 95%: {ends})"

    @cached_property
    def probability(self) -> float:
        return math.exp(self.log_probability)

    @property
    def is_two_sided(self) -> bool:
        """Whether the interval says how small the probability may be, and not only how large."""
        return self.interval[0] > 0

    @property
    def interval_kind(self) -> str:
        return "two-sided" if self.is_two_sided else "upper bound"

    def at_least_once(self, n: int) -> tuple[float, tuple[float, float]]:
        """The probability that the event occurs at least once in `n` inputs, with its interval."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise LongshotError(f"Inputs are counted by a whole number, not {n!r}.")
        low, high = (_at_least_once(end, n) for end in self.interval)
        return _at_least_once(self.probability, n), (low, high)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that any JSON can hold and `from_dict` reads back without loss.

        JSON has no word for a number that is not finite: it stands as `{"number": "-inf"}`.
        """
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Estimate:
        values = {name: _from_plain(value) for name, value in plain.items()}
        for name in ("settings", "statistics"):  # whose own keys may be anything
            values[name] = {key: _from_plain(value) for key, value in plain[name].items()}
        values["witnesses"] = tuple(Witness(**witness) for witness in values["witnesses"])
        values["trace"] = tuple(Round(*one) for one in values.get("trace", ()))
        values["interval"] = values["interval"] or (0.0, 1.0)  # older rows may have none
        values["cost"] = Cost(**values["cost"])
        values["shared_cost"] = Cost(**values["shared_cost"])
        return cls(**values)


def _at_least_once(p: float, n: int) -> float:
    """1 − (1 − p)^n, without cancellation."""
    return 1.0 if p >= 1 and n else -math.expm1(n * math.log1p(-min(p, 1 - 2**-53)))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _from_plain(value: Any) -> Any:
    """The inverse of `_plain`; a frozen estimate holds no lists, so every list was a tuple."""
    if isinstance(value, Mapping):
        if value.keys() == {"number"} and value["number"] in ("inf", "-inf", "nan"):
            return float(value["number"])
        return {name: _from_plain(item) for name, item in value.items()}
    return tuple(_from_plain(item) for item in value) if isinstance(value, list) else value


WITNESSES = 5


def best_witnesses(
    problem: Problem,
    found: Sequence[tuple[Tensor, ...]],
) -> tuple[Witness, ...]:
    """A few distinct inputs that produce the target, those that do so most often first.

    Where the inputs cannot tell their probability, those with the largest gaps come first.

    `found` holds inputs that hit, with their gaps and, where they hit with some probability only,
    their grades, in any number of pieces.
    """
    if not found:
        return ()
    wide = max(problem.inputs.length, *(rows.shape[1] for rows, *_ in found))
    filled = [functional.pad(rows, (0, wide - rows.shape[1]), value=NOTHING) for rows, *_ in found]
    tokens, gaps = torch.cat(filled), torch.cat([gaps for _, gaps, *_ in found])
    known = log_prob(problem.inputs, tokens)
    best: dict[tuple[int, ...], Witness] = {}
    grades = torch.cat([grade[0] if grade else torch.ones_like(gaps) for _, gaps, *grade in found])
    order = gaps if known is None else known + grades.log()
    for i in order.argsort(descending=True, stable=True).tolist():
        row = [token for token in tokens[i].tolist() if token >= 0]
        if tuple(row) not in best:
            text = problem.model.tokenizer.decode(row)
            probable = None if known is None else float(known[i])
            best[tuple(row)] = Witness(tuple(row), text, probable, float(gaps[i]))
        if len(best) == WITNESSES:
            break
    return tuple(best.values())
