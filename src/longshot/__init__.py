"""How likely is your language model's unlikeliest output?

The names below are loaded when they are first used: `import longshot` alone takes no time.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from longshot.version import __version__

if TYPE_CHECKING:
    from longshot.api import estimate, estimate_many, estimate_steps
    from longshot.errors import LongshotError
    from longshot.estimate import Cost, Estimate, Job, Problem, Witness
    from longshot.evaluate import Judged, Sampled
    from longshot.events import Continuation, Event, Matches, TokenIn, TokenIs
    from longshot.inputs import (
        GeneratedInputs,
        Inputs,
        ProductInputs,
        SlotInputs,
        TokenDistribution,
        generated,
        load_inputs,
        template,
    )
    from longshot.look import Sayings, look
    from longshot.methods import METHODS, Method
    from longshot.models import Model, load_model
    from longshot.report.comparison import Comparison, compare
    from longshot.report.exports import to_arviz, to_inspect, to_pandas
    from longshot.study import Run, load_run
    from longshot.truth import Truth, load_truth, pick_targets

__all__ = [
    "METHODS",
    "Comparison",
    "Continuation",
    "Cost",
    "Estimate",
    "Event",
    "GeneratedInputs",
    "Inputs",
    "Job",
    "Judged",
    "LongshotError",
    "Matches",
    "Method",
    "Model",
    "Problem",
    "ProductInputs",
    "Run",
    "Sampled",
    "Sayings",
    "SlotInputs",
    "TokenDistribution",
    "TokenIn",
    "TokenIs",
    "Truth",
    "Witness",
    "__version__",
    "compare",
    "estimate",
    "estimate_many",
    "estimate_steps",
    "generated",
    "load_inputs",
    "load_model",
    "load_run",
    "load_truth",
    "look",
    "pick_targets",
    "template",
    "to_arviz",
    "to_inspect",
    "to_pandas",
]

_HOMES = {
    "api": ("estimate", "estimate_many", "estimate_steps"),
    "errors": ("LongshotError",),
    "estimate": ("Cost", "Estimate", "Job", "Problem", "Witness"),
    "evaluate": ("Judged", "Sampled"),
    "events": ("Continuation", "Event", "Matches", "TokenIn", "TokenIs"),
    "inputs": (
        "GeneratedInputs",
        "Inputs",
        "ProductInputs",
        "SlotInputs",
        "TokenDistribution",
        "generated",
        "load_inputs",
        "template",
    ),
    "look": ("Sayings", "look"),
    "methods": ("METHODS", "Method"),
    "models": ("Model", "load_model"),
    "report.comparison": ("Comparison", "compare"),
    "report.exports": ("to_arviz", "to_inspect", "to_pandas"),
    "study": ("Run", "load_run"),
    "truth": ("Truth", "load_truth", "pick_targets"),
}
"""Where each public name lives, for those who run; above, for those who check types."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def _verb(home: str, name: str) -> property:
    """A verb whose name a submodule has too: importing the submodule changes nothing."""

    def get(package: ModuleType) -> Any:
        return getattr(import_module(f"{package.__name__}.{home}"), name)

    return property(get, lambda package, submodule: None)


class _Package(ModuleType):
    """The package itself, whose public names come when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{self.__name__}.{_HOME_OF[name]}"), name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})

    estimate = _verb("api", "estimate")
    look = _verb("look", "look")


sys.modules[__name__].__class__ = _Package
