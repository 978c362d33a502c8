"""Where work runs: anything with `.map(function, items)` that yields results as they finish.

A function travels to each worker once, so it carries what all items share (the models); items and
results are small. Every worker computes with one torch thread, and so does the process itself when
it is the only one, so that a result does not depend on where it was computed. Items are taken only
as workers become free: the iterable may be endless and may look at the results so far.
"""

from __future__ import annotations

from longshot.engines.local import LocalEngine
from longshot.engines.ray import RayEngine
from longshot.errors import LongshotError, unknown_name
from longshot.work import Engine

__all__ = ["Engine", "LocalEngine", "make_engine"]


def make_engine(name: str = "local", workers: int = 1, address: str | None = None) -> Engine:
    """An engine by its name: `local`, or `ray` on the cluster at `address`."""
    if workers < 1:
        raise LongshotError(f"An engine needs at least one worker, not {workers}.")
    if name == "local":
        if address is not None:
            raise LongshotError("Only the engine 'ray' takes an address.")
        return LocalEngine(workers)
    if name == "ray":
        return RayEngine(workers, address)
    raise unknown_name("engine", name, ["local", "ray"])
