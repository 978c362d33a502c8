"""What an engine is, and how one is made from its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar, runtime_checkable

import torch

from longshot.errors import LongshotError, unknown_name

Item = TypeVar("Item")
Result = TypeVar("Result")


@runtime_checkable
class Engine(Protocol):
    """Runs a function on items."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results as they finish, in any order."""


def make_engine(name: str = "local", workers: int = 1, address: str | None = None) -> Engine:
    """An engine by its name: `local`, or `ray` on the cluster at `address`."""
    if workers < 1:
        raise LongshotError(f"An engine needs at least one worker, not {workers}.")
    if name == "local":
        from longshot.engines.local import LocalEngine

        if address is not None:
            raise LongshotError("Only the engine 'ray' takes an address.")
        return LocalEngine(workers)
    if name == "ray":
        from longshot.engines.ray import RayEngine

        return RayEngine(workers, address)
    raise unknown_name("engine", name, ["local", "ray"])


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread inside, as many as before outside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
