"""The benchmarks' own machinery; their figures belong to `make bench`."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import registered, run
from benchmarks.timing import compare
from longshot.errors import LongshotError


def test_the_ratio_is_of_slow_to_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the two functions move."""
    now = [0.0]

    def takes(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("benchmarks.timing.time.perf_counter", lambda: now[0])
    measured = compare(lambda: takes(8.0), lambda: takes(2.0), pairs=5)
    assert (measured.ratio, measured.slow_seconds, measured.fast_seconds) == (4, 8, 2)


def test_functions_take_turns_after_one_warm_up() -> None:
    calls: list[str] = []
    compare(lambda: calls.append("slow"), lambda: calls.append("fast"), pairs=3)
    assert calls == ["slow", "fast"] * 4


def test_a_module_with_a_main_is_registered_and_helpers_are_not() -> None:
    assert "model_paths" in registered()
    assert "timing" not in registered()


def test_a_misspelt_benchmark_gets_the_nearest() -> None:
    with pytest.raises(LongshotError, match="did you mean 'model_paths'"):
        run(["model_path"])
