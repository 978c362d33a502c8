"""The public verbs, over all of the package."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import Any

from longshot.errors import LongshotError
from longshot.estimate import Estimate, Job, Progress
from longshot.events import EventLike, as_event
from longshot.inputs import ProductInputs, load_inputs
from longshot.methods import Method, make_method
from longshot.models import Model, load_model


def estimate(
    model: str | Path | Model,
    inputs: str | Path | ProductInputs,
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
    inputs: str | Path | ProductInputs,
    events: Iterable[EventLike],
    *,
    method: str | Method = "itgis",
    budget: int = 2**12,
    seed: int = 0,
    progress: Progress = lambda share: None,
    **settings: Any,
) -> list[Estimate]:
    """The same for several events at once: faster than one by one, with equal numbers."""
    if not isinstance(budget, Integral) or isinstance(budget, bool) or budget < 1:
        raise LongshotError(f"The budget is a whole number of model calls, not {budget!r}.")
    if isinstance(events, str):  # or each of its letters would be an event
        raise LongshotError(f"estimate_many takes a list of events, not the text {events!r}.")
    if settings and not isinstance(method, str):
        raise LongshotError(
            f"The method {method.name} brings its own settings; give {', '.join(settings)} to it, "
            "or the method by its name."
        )
    chosen = make_method(method, **settings)
    language_model = load_model(model)
    if not isinstance(inputs, ProductInputs):
        inputs = load_inputs(inputs, language_model)
    ends = [int(p.support[end]) for p in inputs.positions for end in (0, -1)]
    outside = [token for token in ends if not 0 <= token < language_model.vocab_size]
    if outside:
        raise LongshotError(
            f"The inputs {inputs.name!r} use token {outside[0]}, which is outside "
            f"{language_model.name}'s vocabulary of {language_model.vocab_size}."
        )
    wanted = tuple(as_event(event, language_model) for event in events)
    if not wanted:
        return []
    job = Job(language_model, inputs, wanted, int(budget), int(seed), progress)
    chosen.check(job)
    return chosen.estimate(job)
