"""The run-time type checker of the tests: beartype, with an int allowed where a float is.

Functions inside functions go unchecked: they are made anew at every call, and beartype would
compile a check of each of them every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its arguments and its answer checked."""
    return function if "<locals>" in function.__qualname__ else _beartype(function)
