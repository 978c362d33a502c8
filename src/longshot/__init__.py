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
    from longshot.events import Continuation, Event, Matches, TokenIn, TokenIs
    from longshot.inputs import Inputs, ProductInputs, TokenDistribution, load_inputs
    from longshot.methods import METHODS, Method
    from longshot.models import Model, load_model
    from longshot.report.exports import to_arviz, to_inspect, to_pandas
    from longshot.study import Run, load_run
    from longshot.truth import Truth, load_truth, pick_targets

__all__ = [
    "METHODS",
    "Continuation",
    "Cost",
    "Estimate",
    "Event",
    "Inputs",
    "Job",
    "LongshotError",
    "Matches",
    "Method",
    "Model",
    "Problem",
    "ProductInputs",
    "Run",
    "TokenDistribution",
    "TokenIn",
    "TokenIs",
    "Truth",
    "Witness",
    "__version__",
    "estimate",
    "estimate_many",
    "estimate_steps",
    "load_inputs",
    "load_model",
    "load_run",
    "load_truth",
    "pick_targets",
    "to_arviz",
    "to_inspect",
    "to_pandas",
]

_HOMES = {
    "api": ("estimate", "estimate_many", "estimate_steps"),
    "errors": ("LongshotError",),
    "estimate": ("Cost", "Estimate", "Job", "Problem", "Witness"),
    "events": ("Continuation", "Event", "Matches", "TokenIn", "TokenIs"),
    "inputs": ("Inputs", "ProductInputs", "TokenDistribution", "load_inputs"),
    "methods": ("METHODS", "Method"),
    "models": ("Model", "load_model"),
    "report.exports": ("to_arviz", "to_inspect", "to_pandas"),
    "study": ("Run", "load_run"),
    "truth": ("Truth", "load_truth", "pick_targets"),
}
"""Where each public name lives, for those who run; above, for those who check types."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


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

    @property
    def estimate(self) -> Any:
        """The verb, though a submodule has its name too: importing that one changes nothing."""
        return import_module(f"{self.__name__}.api").estimate

    @estimate.setter
    def estimate(self, submodule: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package
