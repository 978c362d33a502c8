"""The benchmarks' own machinery; their figures belong to `make bench`."""

from __future__ import annotations

import time

import pytest

from benchmarks.__main__ import registered, run
from benchmarks.timing import compare
from longshot.errors import LongshotError


def test_the_ratio_is_of_slow_to_fast() -> None:
    measured = compare(lambda: time.sleep(0.02), lambda: time.sleep(0.002), pairs=5)
    assert 2 < measured.ratio < 11
    assert measured.slow_seconds >= 0.02
    assert measured.fast_seconds >= 0.002


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
