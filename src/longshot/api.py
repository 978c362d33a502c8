"""The public verbs, over all of the package."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import Any

from longshot.errors import LongshotError
from longshot.estimate import Estimate, Job, Progress
from longshot.events import EventLike, as_event
from longshot.inputs import Inputs, load_inputs
from longshot.methods import Method, make_method
from longshot.models import Model, load_model
from longshot.threads import threads_for


def estimate(
    model: str | Path | Model,
    inputs: str | Path | Inputs,
    event: EventLike,
    *,
    method: str | Method = "itgis",
    budget: int = 2**12,
    seed: int = 0,
    progress: Progress = lambda share: None,
    **settings: Any,
) -> Estimate:
    """How likely is `event` when `model` reads `inputs`?

    `event` is the text of a token, its id, several of these as a set, or an event such as
    `Continuation` or `Matches`. `settings` are those of the method, such as `temperature`.
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
    method: str | Method = "itgis",
    budget: int = 2**12,
    seed: int = 0,
    progress: Progress = lambda share: None,
    **settings: Any,
) -> list[Estimate]:
    """The same for several events at once: faster than one by one, with equal numbers."""
    if isinstance(events, str):  # or each of its letters would be an event
        raise LongshotError(f"estimate_many takes a list of events, not the text {events!r}.")
    if settings and isinstance(method, Method):
        raise LongshotError(
            f"The method {method.name} brings its own settings; give {', '.join(settings)} to it, "
            "or the method by its name."
        )
    chosen = make_method(method, **settings)
    language_model = load_model(model)
    distribution = load_inputs(inputs, language_model)
    wanted = tuple(as_event(event, language_model) for event in events)
    calls = whole_number(budget, "The budget is a whole number of model calls", least=1)
    job = Job(language_model, distribution, wanted, calls, whole_number(seed, SEED), progress)
    if not wanted:
        return []
    chosen.check(job)
    with threads_for(language_model.width):
        return chosen.estimate(job)


SEED = "The seed is a whole number"


def whole_number(value: object, what: str, least: int | None = None) -> int:
    """The value as an int; a sentence that begins with `what` where it is none."""
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or (least is not None and number < least):
        raise LongshotError(f"{what}, not {value!r}.")
    return number
