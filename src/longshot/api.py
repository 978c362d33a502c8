"""The public verbs, over all of the package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

from longshot.bar import watched
from longshot.errors import LongshotError
from longshot.estimate import LARGEST_BUDGET, Cost, Estimate, Job, Progress
from longshot.events import Event, EventLike, as_event
from longshot.inputs import Inputs, load_inputs, with_noise
from longshot.methods import Method, make_method
from longshot.models import Model, load_model
from longshot.names import DEFAULT_BUDGET
from longshot.threads import threads_for


def estimate(
    model: str | Path | Model,
    inputs: str | Path | Inputs,
    event: EventLike,
    *,
    method: str | Method = "auto",
    budget: int = DEFAULT_BUDGET,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Estimate:
    """How likely is `event` when `model` reads `inputs`?

    `event` is the text of a token, its id, several of these as a set, or an event such as
    `Continuation` or `Matches`. `settings` are those of the method, such as `relative_error` of
    `auto` or `temperature` of `itgis`. `progress` is called with the share of the work that is
    done; without it a bar is drawn where somebody watches, in a terminal or a notebook.
    """
    (answer,) = estimate_many(
        model,
        inputs,
        [event],
        method=method,
        budget=budget,
        seed=seed,
        progress=progress,
        **settings,
    )
    return answer


def estimate_many(
    model: str | Path | Model,
    inputs: str | Path | Inputs,
    events: Iterable[EventLike],
    *,
    method: str | Method = "auto",
    budget: int = DEFAULT_BUDGET,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> list[Estimate]:
    """The same for several events at once: faster than one by one, with equal numbers."""
    if isinstance(events, str):  # or each of its letters would be an event
        raise LongshotError(f"estimate_many takes a list of events, not the text {events!r}.")
    chosen, job = _asked(model, inputs, events, method, budget, seed, settings)
    with watched(progress, "estimating") as tell, threads_for(job.model.width):
        job = replace(job, progress=tell)
        found = chosen.estimate(job) if job.events else []
    return [beside(event, answer) for event, answer in zip(job.events, found, strict=True)]


def estimate_steps(
    model: str | Path | Model,
    inputs: str | Path | Inputs,
    event: EventLike,
    *,
    method: str | Method = "auto",
    budget: int = DEFAULT_BUDGET,
    seed: int = 0,
    progress: Progress = lambda share: None,
    **settings: Any,
) -> Iterator[Estimate]:
    """The running answer after each round, for as long as one likes; the last is `estimate`'s.

    A method that does not work in rounds refuses at the first step.
    """
    chosen, job = _asked(model, inputs, [event], method, budget, seed, settings, progress)
    rounds = chosen.rounds(job)
    while True:
        with threads_for(job.model.width):  # and not while the answer is looked at
            answer = next(rounds, None)
        if answer is None:
            return
        yield beside(job.events[0], answer)


def _asked(
    model: str | Path | Model,
    inputs: str | Path | Inputs,
    events: Iterable[EventLike],
    method: str | Method,
    budget: int,
    seed: int,
    settings: dict[str, Any],
    progress: Progress = lambda share: None,
) -> tuple[Method, Job]:
    """The method and the job, all that can be wrong with them refused."""
    if settings and isinstance(method, Method):
        raise LongshotError(
            f"The method {method.name} brings its own settings; give {', '.join(settings)} to it, "
            "or the method by its name."
        )
    chosen = make_method(method, **settings)
    language_model = load_model(model)
    distribution = load_inputs(inputs, language_model)
    wanted = tuple(as_event(event, language_model) for event in events)
    calls = whole_number(budget, BUDGET, 1, LARGEST_BUDGET)
    number = whole_number(seed, SEED, -(2**63), 2**63 - 1)
    distribution = with_noise(distribution, max((event.noise for event in wanted), default=0))
    job = Job(language_model, distribution, wanted, calls, number, progress)
    if wanted:
        chosen.check(job)
    return chosen, job


def beside(event: Event, answer: Estimate) -> Estimate:
    """The answer with what a judge has to say of itself."""
    if not hasattr(event, "told"):
        return answer
    told = event.told(answer.probability, answer.interval)
    cost = answer.cost + Cost(macs=int(getattr(event, "example_macs", 0)))
    return replace(answer, statistics={**answer.statistics, **told}, cost=cost)


SEED = "The seed is a whole number of at most 63 bits"
BUDGET = f"The budget is a whole number of model calls up to {LARGEST_BUDGET:,}"


def whole_number(value: object, what: str, least: int, most: int) -> int:
    """The value as an int; a sentence that begins with `what` where it is none."""
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        raise LongshotError(f"{what}, not {value!r}.")
    return number
