"""What a method is, the registry of them, and the samples that several share.

A method is a small frozen dataclass: its fields are its settings, `estimate` answers a `Job`. Its
file reads: the formula and its citation, the settings, the step as plain functions, the estimate.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

from longshot.errors import LongshotError, unknown_name
from longshot.estimate import Cost, Estimate, Job
from longshot.evaluate import activations
from longshot.events import Event, TokenIn, show_event

NO_HIT = "No input produced the target: its probability is below what this budget can see."


@dataclass(frozen=True)
class Method(ABC):
    """An estimator: settings, a name and one verb."""

    name: ClassVar[str]
    shares: ClassVar[bool] = False
    """Whether one set of samples serves all events of a job."""
    needs: ClassVar[Literal["token", "score", "samples"]] = "token"
    """What of an event it lives on: the next token, a score to climb, or only what comes out."""

    def check(self, job: Job) -> None:
        """Refuse what it cannot do, in one sentence and before anything runs."""
        for event in job.events:
            if isinstance(event, TokenIn):
                continue
            if self.needs == "token":
                what = f"{self.name} needs an event of a single token; ask naive, conditional, "
                what += "itgis or mhis for"
            elif self.needs == "score" and not event.texts:
                what = f"{self.name} needs texts to climb towards: give climb=[…] to"
            elif (longest := job.inputs.length + event.reach) > job.model.context:
                what = f"{job.model.name} reads {job.model.context} tokens, not the {longest} of"
            elif (calls := event.calls if self.needs == "score" else event.steps) > job.budget:
                what = f"A budget of {job.budget} calls is below the {calls} of one sample of"
            else:
                continue
            raise LongshotError(f"{what} {show_event(event, job.model)}.")

    @abstractmethod
    def estimate(self, job: Job) -> list[Estimate]:
        """One estimate for each of the job's events, in order."""

    def answer(self, job: Job, event: Event, **found: Any) -> Estimate:
        """An estimate: what was asked, of whom and how, with what was found."""
        return Estimate(
            method=self.name,
            settings=settings_of(self),
            event=event.key,
            seed=job.seed,
            budget=job.budget,
            **found,
        )


METHODS: dict[str, type[Method]] = {}
M = TypeVar("M", bound=type[Method])


def register(method: M) -> M:
    """Make a method known by its name."""
    METHODS[method.name] = method
    return method


def make_method(name: str | Method, **settings: Any) -> Method:
    """The method of a name, with some of its settings changed."""
    if not isinstance(name, str):
        return name
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    made = METHODS[name]
    known = {f.name for f in fields(made)}
    for setting in settings:
        if setting not in known:
            raise unknown_name(f"setting of {name}", setting, known)
    return made(**settings)


def settings_of(method: Method) -> dict[str, Any]:
    """A method's settings as plain values."""
    return asdict(method)


def require_positive(method: Method, **values: float) -> None:
    """Refuse a setting that must be positive and finite and is not."""
    for setting, value in values.items():
        if not 0 < value < float("inf"):
            raise LongshotError(f"{method.name}: {setting} must be positive, not {value}.")


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start


class Activations:
    """Plain samples with their activations, which serve every target of a job.

    As many are drawn as the budget has calls, so that the first few do not depend on how many run.
    """

    tokens: Int[Tensor, "sample position"]
    values: Float[Tensor, "sample width"]
    cost: Cost

    def __init__(self, job: Job, samples: int) -> None:
        clock = Clock()
        drawn = job.inputs.sample(job.budget, job.shared_generator("activations"))
        self.tokens = drawn[:samples]
        self.values = activations(job.model, self.tokens)
        macs = samples * job.model.network.macs(job.inputs.length)
        self.cost = Cost(forwards=samples, macs=macs, seconds=clock.seconds)
