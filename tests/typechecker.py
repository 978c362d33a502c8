"""The run-time checks of the tests: jaxtyping's shapes and, by beartype, the rest of an annotation.

What jaxtyping itself puts around a function checks the arguments twice, binds them to the signature
at every call, and is made anew for a function inside a function at every call of the outer one:
half the time of a test on a toy. Here arguments and answer are checked once, in one scope of names,
and functions inside functions go unchecked. An int may stand where a float is asked for.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import cache, partial, wraps
from types import FunctionType
from typing import Any, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype

_beartype = beartype(
    conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError)
)
_jaxtyped = jaxtyping.jaxtyped


def install(package: str) -> None:
    """Check every function and dataclass of a package that is not imported yet."""
    jaxtyping.jaxtyped = lambda *, typechecker: typechecker  # what the hook decorates with
    jaxtyping.install_import_hook(package, "tests.typechecker.checked")


def checked(thing: Any) -> Any:
    """A function, or the `__init__` of a dataclass, with its arguments and its answer checked."""
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and not hasattr(thing.__init__, "__wrapped__"):
            thing.__init__ = _checked(thing.__init__)  # type: ignore[misc]
        return thing
    return thing if "<locals>" in thing.__qualname__ else _checked(thing)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    is_of_an_argument = any("{" in str(it) for it in function.__annotations__.values())
    if is_of_an_argument or inspect.isgeneratorfunction(function):
        return _jaxtyped(function, typechecker=_beartype)  # type: ignore[no-any-return]

    @cache
    def inner() -> Callable[..., Any]:  # at the first call, when every name has its meaning
        return _beartype(_with_hints(function))

    @wraps(function)
    def outer(*arguments: Any, **named: Any) -> Any:
        with _jaxtyped("context"):
            return inner()(*arguments, **named)

    return outer


def _with_hints(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with annotations that are no texts; what has no meaning may be anything."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    copy.__module__ = function.__module__
    copy.__annotations__ = {
        name: _hint(annotation, function.__globals__)
        for name, annotation in function.__annotations__.items()
    }
    return copy


def _hint(annotation: Any, names: dict[str, Any]) -> Any:
    alone = partial(int)
    alone.__annotations__ = {"it": annotation}
    try:
        return get_type_hints(alone, names, include_extras=True)["it"]
    except Exception:
        return Any
