"""Where work runs: anything with `.map(function, items)` that yields results as they finish.

A function travels to each worker once, so it carries what all items share (the models); items and
results are small. Every worker computes with one torch thread, and so does the process itself when
it is the only one, so that a result does not depend on where it was computed. Items are taken only
as workers become free: the iterable may be endless and may look at the results so far.
"""

from __future__ import annotations

from longshot.engines.base import Engine, make_engine
from longshot.engines.local import LocalEngine

__all__ = ["Engine", "LocalEngine", "make_engine"]
