"""A study as a TOML file: which models, inputs, targets and methods, and what each may spend.

    name = "mine"
    models = ["mini-1l", "mini-2l"]
    inputs = ["camel", "hex"]

    [targets]                        # chosen on one half of the truth, judged on the other
    count = 64
    high = 1e-4

    [tuning]                         # only for temperature = "tuned"
    temperatures = [0.5, 1.0, 2.0]
    budget = 1024

    [methods.itgis]                  # a label; method = "…" if it is not the method's name
    budget = 4096
    temperature = "tuned"            # any other key is a setting of the method

    [methods.itgis-long]
    method = "itgis"
    budget = 65536
    inputs = ["camel"]               # not on all of them

    [methods.auto]
    budget = [512, 4096, 65536]      # the labels auto (of the largest), auto-512 and auto-4096

    [temperatures.itgis.mini-1l]     # known already: these are not tuned
    camel = 0.5

A mistake is refused with its key and line before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mode
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
)

from longshot.errors import LongshotError, unknown_name, visible
from longshot.estimate import LARGEST_BUDGET
from longshot.files import read_text
from longshot.methods import METHODS, Method, make_method
from longshot.methods.base import complaint, settings_table
from longshot.names import PRESETS, preset_names, smaller_label
from longshot.toml import KeyPath, TomlFile
from longshot.truth.result import RELATIVE_ERROR

TUNED = "tuned"
T = TypeVar("T", bound=Hashable)


def _distinct(values: list[T]) -> list[T]:
    if len(set(values)) < len(values):
        raise ValueError("names the same thing twice")
    if any(visible(str(value)) != str(value) for value in values):
        raise ValueError("has characters that do not print")
    return values


Names = Annotated[list[str], Field(min_length=1), AfterValidator(_distinct)]
Probability = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Budget = Annotated[int, Field(ge=1, le=LARGEST_BUDGET)]
Count = Annotated[int, Field(ge=1, le=2**20)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TargetRange(_Table):
    """Which tokens are estimated: at most `count` of a cell, of a truth between the two.

    On the half that chooses, the truth is known to within `relative_error`; or they are `certified`
    below what samples can see.
    """

    count: Count = 64
    low: Probability = 0.0
    high: Probability = 1e-4
    relative_error: Positive = RELATIVE_ERROR
    certified: bool = False


class Tuning(TargetRange):
    """The sweep of temperatures, on tokens that are never evaluation targets."""

    temperatures: Annotated[list[Positive], Field(min_length=1), AfterValidator(_distinct)]
    budget: Budget
    count: Count = 32
    low: Probability = 1e-4
    high: Probability = 1e-2


class MethodEntry(_Table):
    """One labelled method of a study; what is not a field is a setting of the method."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    budget: Budget
    method: str | None = None
    models: Names | None = None
    inputs: Names | None = None

    @cached_property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def is_tuned(self) -> bool:
        """Whether its temperature is to be found first."""
        return self.settings.get("temperature") == TUNED


class Spec(_Table):
    """The whole of a study."""

    _file: TomlFile = PrivateAttr()

    name: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=100)]
    models: Names
    inputs: Names
    methods: Annotated[dict[str, MethodEntry], Field(min_length=1)]
    corpus: str | list[str] | None = None
    """Texts to count token frequencies in, for models whose tokenizer is not the shipped one."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    at_once: Annotated[int, Field(ge=1, le=2**16)] = 16
    """TargetRange of one batch: what runs together, and what a kill can lose."""
    targets: TargetRange = TargetRange()
    tuning: Tuning | None = None
    temperatures: dict[str, dict[str, dict[str, Positive]]] = {}
    """Known ones, by method, model and inputs."""

    def covers(self, label: str, model: str, inputs: str) -> bool:
        """Whether a method runs on that cell."""
        entry = self.methods[label]
        return model in (entry.models or self.models) and inputs in (entry.inputs or self.inputs)

    def method_name(self, label: str) -> str:
        return self.methods[label].method or label

    def known_temperature(self, label: str, model: str, inputs: str) -> float | None:
        """What the file says about a tuned method's temperature on a cell."""
        return self.temperatures.get(self.method_name(label), {}).get(model, {}).get(inputs)

    def with_methods(self, names: Sequence[str]) -> Spec:
        """The study with methods of one's own beside its labels, at the budget that most have."""
        budget = mode(entry.budget for entry in self.methods.values())
        new = {name: MethodEntry(budget=budget) for name in names if name not in self.methods}
        for name in new:
            make_method(name)  # or it is refused
        return self.model_copy(update={"methods": {**self.methods, **new}})

    def errors_at(self, *path: str) -> AbstractContextManager[None]:
        """Give a mistake that shows only when something is loaded its key and line."""
        return self._file.errors_at(*path)

    def beside(self, inputs: str) -> str:
        """A template's path, which a study's file gives from where it lies."""
        here = Path(self._file.where).parent / inputs
        return str(here) if inputs.endswith(".toml") and here.is_file() else inputs

    def make_method(self, label: str, temperature: float | None) -> Method:
        """A label's method, with its tuned temperature if it has one."""
        settings = self.methods[label].settings
        if self.methods[label].is_tuned:
            settings = {**settings, "temperature": temperature}
        return make_method(self.method_name(label), **settings)


def read_spec(path: Path) -> Spec:
    """A study from its file."""
    return parse_spec(read_text("study", path), str(path))


def preset(name: str) -> Spec:
    """A study that ships with the package."""
    if name not in preset_names():
        raise unknown_name("preset", name, preset_names())
    return read_spec(PRESETS / f"{name}.toml")


def parse_spec(source: str, where: str = "study") -> Spec:
    """A study from its text; `where` names it in errors."""
    return _Checker(TomlFile.parse(source, where)).check()


@dataclass(frozen=True)
class _Checker:
    """A study's file on its way to a spec; every refusal names a key and its line."""

    file: TomlFile

    def check(self) -> Spec:
        spec: Spec = self._validated((), Spec, self._one_budget_each())
        spec._file = self.file
        for label, entry in spec.methods.items():
            path = ("methods", label)
            if not re.fullmatch(r"[\w.-]{1,100}", label):
                self.file.refuse(path, "a label has letters, digits, '.', '_' and '-' only")
            name = spec.method_name(label)
            if name not in METHODS:
                key = path if entry.method is None else (*path, "method")
                self.file.refuse(key, str(unknown_name("method", name, METHODS)))
            self._settings(path, name, entry.settings)
            self._subset((*path, "models"), entry.models, spec.models)
            self._subset((*path, "inputs"), entry.inputs, spec.inputs)
            if entry.is_tuned and spec.tuning is None:
                for model, inputs in ((m, i) for m in spec.models for i in spec.inputs):
                    known = spec.known_temperature(label, model, inputs)
                    if spec.covers(label, model, inputs) and known is None:
                        self.file.refuse(
                            (*path, "temperature"),
                            f"is to be tuned on {model} and {inputs}, but there is no [tuning]",
                        )
        for range_ in ("targets", "tuning"):
            table = getattr(spec, range_)
            if table is not None and table.low > table.high:
                self.file.refuse((range_, "low"), f"{table.low:g} is above high, {table.high:g}")
        for name in spec.temperatures:
            if name not in METHODS:
                self.file.refuse(("temperatures", name), str(unknown_name("method", name, METHODS)))
        return spec

    def _one_budget_each(self) -> dict[str, Any]:
        """The file with a label for each budget where a method has a list of them."""
        found = self.file.parsed
        if not isinstance(methods := found.get("methods"), dict):
            return found
        apart: dict[str, Any] = {}
        for label, entry in methods.items():
            budgets = entry.get("budget") if isinstance(entry, dict) else None
            if not isinstance(budgets, list):
                apart[label] = entry
                continue
            whole = all(type(budget) is int for budget in budgets)
            if not budgets or not whole or len(set(budgets)) < len(budgets):
                path = ("methods", label, "budget")
                self.file.refuse(path, "is a number of calls, or a list of different ones")
            apart[label] = {**entry, "budget": max(budgets)}
            for budget in sorted(budgets)[:-1]:
                name = smaller_label(label, budget)
                if name in methods:
                    self.file.refuse(("methods", name), f"is what a budget of {label} is called")
                apart[name] = {"method": label, **entry, "budget": budget}
        return {**found, "methods": apart}

    def _settings(self, path: KeyPath, name: str, settings: Mapping[str, Any]) -> None:
        """Types first, by the method's own annotations; then the method's own judgement."""
        known = settings_table(METHODS[name]).model_fields
        for setting in settings:
            if setting not in known:
                both = [*known, "method", "budget", "models", "inputs"]
                complaint = unknown_name(f"setting of {name}", setting, both)
                self.file.refuse((*path, setting), str(complaint))
        fixed = {k: v for k, v in settings.items() if (k, v) != ("temperature", TUNED)}
        self._validated(path, settings_table(METHODS[name]), fixed)
        with self.file.errors_at(*path):
            make_method(name, **fixed)

    def _validated(self, path: KeyPath, table: type[Any], values: dict[str, Any]) -> Any:
        try:
            return table.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            key = (*path, *(str(part) for part in first["loc"]))
            if first["type"] == "extra_forbidden":
                self.file.refuse(key, "is no key that a study has here")
            self.file.refuse(key, complaint(first["msg"]))

    def _subset(self, path: KeyPath, names: list[str] | None, known: list[str]) -> None:
        for name in names or []:
            if name not in known:
                self.file.refuse(path, f"{name!r} is not among the study's {path[-1]}")


@dataclass(frozen=True)
class Selection:
    """Which part of a study to run: `model=mini-2l method=mhis,itgis`."""

    wanted: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, spec: Spec) -> Selection:
        known = {"model": spec.models, "inputs": spec.inputs, "method": list(spec.methods)}
        wanted: dict[str, frozenset[str]] = {}
        for part in text.split():
            name, equals, values = part.partition("=")
            if not equals or not values:
                raise LongshotError(
                    f'"{part}" selects nothing; write for example "model=mini-2l method=mhis".'
                )
            if name not in (*known, "token"):
                raise unknown_name("part of a study", name, (*known, "token"))
            for value in values.split(",") if name in known else ():
                if value not in known[name]:
                    raise unknown_name(f"{name} of the study", value, known[name])
            wanted[name] = frozenset(values.split(","))
        return cls(wanted)

    def has(self, name: str, value: str) -> bool:
        return name not in self.wanted or value in self.wanted[name]
