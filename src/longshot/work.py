"""What runs work: the one protocol that `longshot.engines` implements and anybody may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

Item = TypeVar("Item")
Result = TypeVar("Result")


@runtime_checkable
class Engine(Protocol):
    """Anything that maps a function over items, which are taken only as workers become free."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results as they finish, in any order."""
