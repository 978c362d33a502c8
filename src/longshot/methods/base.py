"""What a method is, the registry of them, and the samples that several share.

A method is a small frozen dataclass: its fields are its settings, `estimate` answers a `Job`. Its
file reads: the formula and its citation, the settings, the step as plain functions, the estimate.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, TypeVar, get_type_hints

from jaxtyping import Float, Int
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from torch import Tensor

from longshot.errors import LongshotError, first_line, unknown_name
from longshot.estimate import Cost, Estimate, Job
from longshot.evaluate import activations, macs
from longshot.events import Event
from longshot.inputs import as_product
from longshot.names import METHOD_GROUP

NO_HIT = "No input produced the target: its probability is below what this budget can see."
NEVER_FOUND = (
    "No sample produced the target, which says nothing of how small its probability is: "
    "try another temperature, a larger budget, or naive."
)


Need = Literal["token", "score", "rank", "product"]
"""An event about the next token's argmax; one with a score that can be climbed, or that only tells
how near inputs are; inputs of independent tokens."""


@dataclass(frozen=True)
class Method(ABC):
    """An estimator: settings, a name and one verb."""

    name: ClassVar[str]
    shares: ClassVar[bool] = False
    """Whether one set of samples serves all events of a job."""
    needs: ClassVar[frozenset[Need]] = frozenset()
    """What it cannot do without, beyond inputs that can be sampled and events that are decided."""
    fit_form: ClassVar[str] = "power"
    """The fit that a study scores it by: one of `longshot.study.fits.FORMS`."""

    def check(self, job: Job) -> None:
        """Refuse what it cannot do, in one sentence and before anything runs."""
        if "product" in self.needs:
            as_product(job.inputs, self.name)
        for event in job.events:
            calls = event.calls if self.needs & {"score", "rank"} else event.steps
            if "token" in self.needs and not event.is_single_step:
                what = f"{self.name} needs an event of a single token, which is not"
            elif "score" in self.needs and not event.can_be_climbed:
                what = f"{self.name} needs texts to climb towards: give climb=[…] to"
            elif "rank" in self.needs and not event.can_be_ranked:
                what = f"{self.name} needs a score of inputs that miss, which there is not for"
            elif (longest := job.inputs.length + event.reach) > job.model.context:
                what = f"{job.model.name} reads {job.model.context} tokens, not the {longest} of"
            elif calls > job.budget:
                what = f"A budget of {job.budget} calls is below the {calls} of one sample of"
            else:
                continue
            raise LongshotError(f"{what} {event.show(job.model)}.")

    @abstractmethod
    def estimate(self, job: Job) -> list[Estimate]:
        """One estimate for each of the job's events, in order."""

    @property
    def works_in_rounds(self) -> bool:
        """Whether it can be stopped after any round with what it has."""
        return type(self).rounds is not Method.rounds

    def rounds(self, job: Job) -> Iterator[Estimate]:
        """The estimate of the only event of a job after each round, the last one final."""
        raise LongshotError(
            f"{self.name} does not work in rounds that could be stopped; auto and splitting do."
        )

    def answer(self, job: Job, event: Event, **found: Any) -> Estimate:
        """An estimate: what was asked, of whom and how, with what was found.

        What a writer of the inputs and a judge of the outputs took is added to the cost.
        """
        written, judged = job.beside(event)
        where = "shared_cost" if self.shares else "cost"
        found["cost"] = found.get("cost", Cost()) + judged
        found[where] = found.get(where, Cost()) + written
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
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise LongshotError(f"A method is a subclass of longshot.Method, which {method!r} is not.")
    METHODS[method.name] = method
    return method


def load_plugins() -> None:
    """Register the methods of other packages: their entry points in the group `longshot.methods`.

    One that cannot be loaded is told in a warning and hides none of the others.
    """
    for point in entry_points(group=METHOD_GROUP):
        if point.name not in METHODS:
            try:
                register(point.load())
            except Exception as error:  # another package's, so anything
                what = f"The method {point.name!r} of {point.value} cannot be loaded"
                warnings.warn(f"{what}: {first_line(error)}", stacklevel=2)


def make_method(name: str | Method, **settings: Any) -> Method:
    """The method of a name, with some of its settings changed."""
    if isinstance(name, Method):
        return name
    if not isinstance(name, str):
        raise LongshotError(f"A method is a name or a method, not {name!r}.")
    if name not in METHODS:
        load_plugins()
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
        spent = macs(job.model, self.tokens)
        self.cost = Cost(forwards=samples, macs=spent, seconds=clock.seconds)
