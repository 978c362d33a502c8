"""What a method is, the registry of them, and the samples that several share.

A method is a small frozen dataclass: its fields are its settings, `estimate` answers a `Job`. Its
file reads: the formula and its citation, the settings, the step as plain functions, the estimate.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, get_type_hints

from jaxtyping import Float, Int
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from torch import Tensor

from longshot.errors import LongshotError, unknown_name
from longshot.estimate import Cost, Estimate, Job
from longshot.evaluate import activations
from longshot.events import Event, TokenIn, show_event

NO_HIT = "No input produced the target: its probability is below what this budget can see."
NEVER_FOUND = (
    "No sample produced the target, which says nothing of how small its probability is: "
    "try another temperature, a larger budget, or naive."
)


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
    known = settings_table(made)
    for setting in settings:
        if not known.model_fields:
            raise LongshotError(f"{name} has no settings, so none is named {setting!r}.")
        if setting not in known.model_fields:
            raise unknown_name(f"setting of {name}", setting, known.model_fields)
    plain = {k: v.item() if hasattr(v, "item") else v for k, v in settings.items()}  # numpy's
    try:
        known.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{first['loc'][0]} {complaint(first['msg'])}, not {first['input']!r}"
        raise LongshotError(f"{name}: {what}.") from error
    return made(**plain)


@cache
def settings_table(method: type[Method]) -> type[BaseModel]:
    """A method's settings with their types, strictly."""
    hints = get_type_hints(method)
    known: dict[str, Any] = {
        f.name: (hints[f.name], ... if f.default is MISSING else f.default) for f in fields(method)
    }
    strictly = ConfigDict(extra="forbid", frozen=True, strict=True)
    return create_model("Settings", __config__=strictly, **known)


def complaint(message: str) -> str:
    """Pydantic's sentence without its preambles."""
    if message == "Field required":
        return "is missing"
    return message.removeprefix("Value error, ").removeprefix("Input ").rstrip(".")


def settings_of(method: Method) -> dict[str, Any]:
    """A method's settings as plain values."""
    return asdict(method)


def require_positive(method: Method, **values: float | None) -> None:
    """Refuse a setting that must be positive and finite, or None, and is not."""
    for setting, value in values.items():
        if value is not None and not 0 < value < float("inf"):
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
