"""The method that chooses: exact or direct where it can be, else splitting and leafwise in turn.

1. Inputs that can all be run within the budget are: the answer is exact.
2. A few plain draws, which all events share, are looked at. If they show the event often enough
   that plain sampling reaches the relative error asked for within half the budget, it goes on so.
3. Otherwise splitting and leafwise together (`together.py`), in rounds, until the relative error is
   reached or the budget is spent; splitting alone where leafwise refuses. An event without a score
   cannot be climbed, and is sampled plainly with all that there is.
4. What is left pays for the extrapolation given the last token and, where leafwise did not run, for
   ITGIS. Two unbiased estimates whose intervals do not meet are a warning.

All of it is charged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch

from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Job, Problem, Round, best_witnesses
from longshot.evaluate import Outcomes, PlainContinuations, activations, outcomes, winners
from longshot.events import Event
from longshot.intervals import Interval
from longshot.methods.base import NO_HIT, Clock, Method, register, require_positive, settings_of
from longshot.methods.exact import Exact, exact_calls
from longshot.methods.given_last import GivenLast
from longshot.methods.itgis import ITGIS
from longshot.methods.leafwise import Leafwise
from longshot.methods.naive import mean_grade
from longshot.methods.splitting import Splitting
from longshot.methods.together import TogetherRun

LOOK = (64, 1024)  # the fewest and the most plain draws that are looked at first
LOOK_SHARE = 1 / 64  # of the budget
SEEN = 2  # hits among them that make plain sampling worth a thought
OPINION = 1 / 16  # of what is spent, for each second opinion
OPINION_CALLS = (256, 1024)


@register
@dataclass(frozen=True)
class Auto(Method):
    """Whatever answers: exact, plain sampling, or splitting and leafwise together."""

    name: ClassVar[str] = "auto"
    relative_error: float = 0.3
    """Work goes on until the estimate's relative error is below this, or the budget is spent."""

    def __post_init__(self) -> None:
        require_positive(self, relative_error=self.relative_error)

    def estimate(self, job: Job) -> list[Estimate]:
        if _is_enumerable(job):
            return [self._named(job, answer) for answer in Exact().estimate(job)]
        look = PlainDraws(job, _look(job), job.shared_generator("look"))
        return [list(self._rounds(part, look))[-1] for part in job.parts(1)]

    def rounds(self, job: Job) -> Iterator[Estimate]:
        if _is_enumerable(job):
            yield self._named(job, Exact().estimate(job)[0])
        else:
            yield from self._rounds(job, PlainDraws(job, _look(job), job.shared_generator("look")))

    def _rounds(self, job: Job, look: PlainDraws) -> Iterator[Estimate]:
        """Rounds for the only event of a job, after a look that others may share."""
        (event,) = job.events
        seen = look.outcomes(event)
        needed = 1 / self.relative_error**2  # hits
        splitting = Splitting(relative_error=self.relative_error)
        rest = replace(job, budget=job.budget - math.ceil(seen.macs / job.call_macs))
        most, hits = job.budget // event.steps, float(seen.found.grade.sum())
        why = f"{look.n} plain draws hit {'once' if hits == 1 else f'{hits:.4g} times'}"
        plainly = len(seen.found.rows) >= SEEN and needed * look.n / hits <= most / 2
        if not plainly:
            try:
                splitting.check(rest)
            except LongshotError as refusal:
                plainly, why = True, f"Splitting cannot answer ({str(refusal).rstrip('.')})"
        if plainly:
            anew = replace(job)  # what was written and judged for the look is charged to the look
            yield from self._direct(anew, look, f"{why}, so plain sampling went on.")
            return
        both, rounds = _can_tilt(rest), splitting.rounds(rest)
        if both:
            rounds = TogetherRun(rest, self.relative_error).rounds()
        went = "splitting and leafwise" if both else "splitting"
        answer: Estimate | None = None
        for found in rounds:
            answer = self._named(job, found, look, f"{why}, so {went} went on.")
            yield answer
        assert answer is not None
        others = (GivenLast(),) if both else (GivenLast(), ITGIS())
        yield self._with_opinions(job, answer, look.interval(event), others)

    def _direct(self, job: Job, look: PlainDraws, explanation: str) -> Iterator[Estimate]:
        """Plain sampling until there are hits enough, each round as large as all before it."""
        (event,), clock, drawn = job.events, Clock(), [look]
        most, generator = job.budget // event.steps, job.generator(self.name, event)
        problem, trace = Problem(job.model, job.inputs, event), list[Round]()
        while True:
            seen = [draws.outcomes(event) for draws in drawn]
            n, macs = sum(draws.n for draws in drawn), sum(each.macs for each in seen)
            grade = torch.cat([each.found.grade for each in seen])
            known = mean_grade(grade, n)
            forwards = math.ceil(macs / job.call_macs)
            trace.append(Round(forwards, known["log_probability"], known["interval"]))
            hits = [
                (draws.tokens[each.found.rows], each.found.gap, each.found.grade)
                for draws, each in zip(drawn, seen, strict=True)
            ]
            yield self.answer(
                job,
                event,
                samples=n,
                hits=len(grade),
                near_ties=sum(each.found.near_ties for each in seen),
                witnesses=best_witnesses(problem, hits),
                warnings=() if len(grade) else (NO_HIT,),
                cost=Cost(forwards, 0, macs, clock.seconds) + look.outcomes(event).beside,
                explanation=explanation,
                trace=tuple(trace),
                **known,
            )
            if float(grade.sum()) >= 1 / self.relative_error**2 or n >= most:
                break
            drawn.append(PlainDraws(job, min(n, most - n), generator))
            job.progress(n / most)
        job.progress(1.0)

    def _with_opinions(
        self, job: Job, answer: Estimate, plain: Interval, asked_too: tuple[Method, ...]
    ) -> Estimate:
        """The answer after others were asked, with a warning where one of them disagrees."""
        spent, statistics, others = answer.cost, dict(answer.statistics), {"naive": plain}
        calls = int(min(max(OPINION * spent.forwards, OPINION_CALLS[0]), OPINION_CALLS[1]))
        for other in asked_too:
            asked = replace(job, budget=calls, progress=lambda share: None)
            if spent.forwards + 4 * calls > job.budget:  # a gradient costs more than a call
                break
            try:
                other.check(asked)
            except LongshotError:
                continue
            (opinion,) = other.estimate(asked)
            took = opinion.cost + opinion.shared_cost
            forwards = math.ceil(took.macs / job.call_macs)
            spent += replace(took, forwards=forwards, backwards=0)
            statistics[other.name] = opinion.probability
            others[other.name] = opinion.interval
        warnings = [
            f"{name} disagrees: its interval is {low:.2g} … {high:.2g}. A larger budget would tell."
            for name, (low, high) in others.items()
            if answer.is_two_sided and (low > answer.interval[1] or high < answer.interval[0])
        ]
        warned = (*answer.warnings, *warnings)
        return replace(answer, statistics=statistics, warnings=warned, cost=spent)

    def _named(
        self, job: Job, answer: Estimate, look: PlainDraws | None = None, explanation: str = ""
    ) -> Estimate:
        """Another method's answer as one's own, with the look before it."""
        before = Cost() if look is None else look.outcomes(job.events[0]).cost
        trace = tuple(r._replace(forwards=r.forwards + before.forwards) for r in answer.trace)
        return replace(
            answer,
            method=self.name,
            settings=settings_of(self),
            budget=job.budget,
            cost=answer.cost + before,
            explanation=explanation or answer.explanation,
            trace=trace,
        )


def _look(job: Job) -> int:
    """How many plain draws are looked at first."""
    steps = max(event.steps for event in job.events)
    return max(1, min(max(int(LOOK_SHARE * job.budget), LOOK[0]), LOOK[1], job.budget // steps))


def _can_tilt(job: Job) -> bool:
    """Whether leafwise can answer."""
    try:
        Leafwise().check(job)
    except LongshotError:
        return False
    return True


def _is_enumerable(job: Job) -> bool:
    calls = exact_calls(job)
    return calls is not None and calls <= job.budget


class SeenAmong(NamedTuple):
    """Where an event occurs among some draws, and what it took to know."""

    found: Outcomes
    macs: int
    cost: Cost
    beside: Cost
    """What writing the draws and judging them took; part of the cost."""


class PlainDraws:
    """Plain draws with their activations and winners."""

    def __init__(self, job: Job, n: int, generator: torch.Generator) -> None:
        self.job, self.n, clock, asked = job, n, Clock(), replace(job)
        self.tokens = job.inputs.sample(n, generator)
        self.values = activations(job.model, self.tokens)
        self.won, self.seconds = winners(job.model, self.values), clock.seconds
        self.written, _ = asked.beside(asked.events[0])
        self._seen: dict[str, SeenAmong] = {}

    def outcomes(self, event: Event) -> SeenAmong:
        """Where an event occurs; found out once."""
        if event.key not in self._seen:
            clock, go_on = Clock(), PlainContinuations(self.job.model, self.tokens)
            asked = replace(self.job, events=(event,))
            found = outcomes(self.job.model, event, self.values, go_on, self.won)
            macs = self.n * self.job.call_macs + go_on.macs
            forwards, seconds = math.ceil(macs / self.job.call_macs), self.seconds + clock.seconds
            beside = self.written + asked.beside(event)[1]
            cost = Cost(forwards, 0, macs, seconds) + beside
            self._seen[event.key] = SeenAmong(found, macs, cost, beside)
        return self._seen[event.key]

    def interval(self, event: Event) -> Interval:
        """What the draws alone say of an event's probability."""
        found: Interval = mean_grade(self.outcomes(event).found.grade, self.n)["interval"]
        return found
