"""How many threads torch computes with: one for small models, whose products are not worth sharing.

Two threads take longer than one over the shipped models, which are 64 wide, and no less than one
until about 256. Wider models keep the threads that torch has, unless some number was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

SMALL = 256
"""The width up to which a model is given one thread."""

_asked: ContextVar[int | None] = ContextVar("threads", default=None)


def ask_for_threads(count: int | None) -> None:
    """Use so many threads whatever the model; None for as many as suit it."""
    _asked.set(count)


@contextmanager
def threads_for(width: int) -> Iterator[None]:
    """As many threads inside as suit a model of that width, as many as before outside."""
    with torch_threads(_asked.get() or (1 if width <= SMALL else None)):
        yield


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """So many torch threads inside, as many as before outside; None changes nothing."""
    import torch

    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None and torch.get_num_threads() != before:
            torch.set_num_threads(before)
