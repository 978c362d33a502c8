"""How many times faster one function is than another, on a machine that is not quiet."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Comparison:
    """Median seconds of each function, and the median of their ratios pair by pair."""

    slow_seconds: float
    fast_seconds: float
    ratio: float


def compare(
    slow: Callable[[], object], fast: Callable[[], object], *, pairs: int = 15
) -> Comparison:
    """Time two functions in turn, so that whatever disturbs the machine disturbs both.

    The ratio is the median over pairs of neighbours: a slow minute cancels out of each pair,
    where it would not cancel out of two separate medians. One thread, and one warm-up of each.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        slow()
        fast()
        times = [(_seconds(slow), _seconds(fast)) for _ in range(pairs)]
    finally:
        torch.set_num_threads(threads)
    return Comparison(
        slow_seconds=statistics.median(s for s, _ in times),
        fast_seconds=statistics.median(f for _, f in times),
        ratio=statistics.median(s / f for s, f in times),
    )


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
