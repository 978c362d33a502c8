"""How many times faster one function is than another, on a machine that is not quiet."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Comparison:
    """What two functions take, and their ratio."""

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
    times = _turns(slow, fast, pairs, time.perf_counter)
    return Comparison(
        slow_seconds=statistics.median(s for s, _ in times),
        fast_seconds=statistics.median(f for _, f in times),
        ratio=statistics.median(s / f for s, f in times),
    )


def compare_least(
    slow: Callable[[], object], fast: Callable[[], object], *, turns: int
) -> Comparison:
    """The least processor time of each in several turns: what neither has to do is left out."""
    slow_times, fast_times = zip(*_turns(slow, fast, turns, time.process_time), strict=True)
    least, own = min(slow_times), min(fast_times)
    return Comparison(slow_seconds=least, fast_seconds=own, ratio=least / own)


def _turns(
    slow: Callable[[], object], fast: Callable[[], object], turns: int, clock: Callable[[], float]
) -> list[tuple[float, float]]:
    """The seconds of both, turn by turn, after a warm-up of each."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        slow()
        fast()
        return [(_seconds(slow, clock), _seconds(fast, clock)) for _ in range(turns)]
    finally:
        torch.set_num_threads(threads)


def _seconds(function: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    function()
    return clock() - start
