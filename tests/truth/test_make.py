"""The driver: goals, fair growth, and kill -9 at any moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from longshot.engines import LocalEngine
from longshot.errors import LongshotError
from longshot.estimate import Cell
from longshot.quantities import parse_count
from longshot.truth import Truth
from longshot.truth.make import Goal, TruthStatus, make_truth, parse_range
from longshot.truth.shards import ShardRunner
from longshot.truth.store import Store
from tests.kills import killed
from tests.truth.toys import toy_cell

ONE = LocalEngine(1)


def cells() -> list[Cell]:
    return [toy_cell("leaf last", name="a"), toy_cell("two after the leaf", name="b")]


def rows(path: Path) -> list[Any]:
    """Everything that a store holds, in an order that does not depend on how it came about."""
    with Store(path):
        connection = sqlite3.connect(path)
        found = connection.execute(
            "SELECT cells.model, cells.inputs, kind, seed, half, start, stop, samples, leaves, "
            "near_ties, sums FROM shards JOIN cells ON cell = id ORDER BY 1, 2, 3, 4, 5, 6"
        ).fetchall()
        connection.close()
    return found


def fill(path: Path, leaves: int = 12_000, shard_leaves: int = 500) -> None:
    with Store(path, create=True) as store:
        make_truth(cells(), store, ONE, Goal(leaves), shard_leaves=shard_leaves)


def test_every_cell_reaches_its_leaves_in_two_equal_halves(tmp_path: Path) -> None:
    seen: list[TruthStatus] = []
    with Store(tmp_path / "s", create=True) as store:
        done = make_truth(
            cells(), store, ONE, Goal(5000), shard_leaves=500, on_progress=lambda p: seen.append(p)
        )
        for cell in cells():
            truth = Truth.from_shards(cell.key, store.shards(cell.key))
            assert truth.leaves >= 5000
            assert truth.halves[0].leaves == truth.halves[1].leaves
    assert done.share == 1
    assert done.in_range >= 0
    assert len(seen) == len(rows(tmp_path / "s")) + 1


def test_a_second_run_has_nothing_to_do_and_a_longer_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s"
    fill(path, 3000)
    first = rows(path)
    fill(path, 3000)
    assert rows(path) == first
    fill(path, 6000)
    assert set(first) < set(rows(path))
    fill(tmp_path / "at once", 6000)
    assert rows(path) == rows(tmp_path / "at once")


def test_gaps_are_filled_with_shards_of_any_size(tmp_path: Path) -> None:
    """A run with larger shards goes around what is there; units are counted once."""
    path = tmp_path / "s"
    fill(path, 4000, shard_leaves=1500)
    with Store(path) as store:
        store._connection.execute("DELETE FROM shards WHERE start = 0 AND half = 0")
    fill(path, 20_000, shard_leaves=4000)
    with Store(path) as store:
        for cell in cells():
            by_half: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
            for span in store.spans(cell.key):
                by_half[span.stream.half].append((span.start, span.stop))
            for ends in by_half.values():
                assert ends[0][0] == 0
                assert all(a[1] == b[0] for a, b in pairwise(ends))


def test_minutes_and_relative_error_end_the_work(tmp_path: Path) -> None:
    with Store(tmp_path / "s", create=True) as store:
        make_truth(cells(), store, ONE, Goal(minutes=1e-4), shard_leaves=500)
        goal = Goal(relative_error=0.2, low=0.01, high=0.5)
        make_truth(cells(), store, ONE, goal, shard_leaves=500)
        for cell in cells():
            truth = Truth.from_shards(cell.key, store.shards(cell.key))
            errors = truth.relative_error[truth.between(0.01, 0.5)]
            assert float(errors.median()) <= 0.2


def test_with_only_minutes_all_cells_grow(tmp_path: Path) -> None:
    class Impatient:
        """Ends after six shards, as the clock would."""

        def map(self, function: ShardRunner, items: Iterable[Any]) -> Iterator[Any]:
            yield from (function(item) for item, _ in zip(items, range(6), strict=False))

    with Store(tmp_path / "s", create=True) as store:
        make_truth(cells(), store, Impatient(), Goal(minutes=60), shard_leaves=500)
        # Of unlike size, so that the leaves are alike.
        assert sorted(len(store.spans(cell.key)) for cell in cells()) == [2, 4]


def test_plain_samples_make_truth_too(tmp_path: Path) -> None:
    with Store(tmp_path / "s", create=True) as store:
        make_truth(cells()[:1], store, ONE, Goal(500), kind="brute", shard_leaves=64)
        truth = Truth.from_shards(cells()[0].key, store.shards(cells()[0].key))
    assert truth.samples == {"brute": 512}
    assert truth.leaves == 512
    assert torch.equal(truth.tallies["brute"].total, truth.tallies["brute"].total.round())


def test_killed_at_any_statement_it_ends_where_an_uninterrupted_run_does(tmp_path: Path) -> None:
    fill(tmp_path / "whole")
    expected, path, partial = rows(tmp_path / "whole"), tmp_path / "killed", 0
    for statement in range(1, 61, 2):  # from the first of a new file to those of later commits
        assert killed(lambda: fill(path), statement)
        if path.is_file() and path.stat().st_size:
            partial += 0 < len(rows(path)) < len(expected)
    fill(path)
    assert partial > 5
    assert rows(path) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2**10 leaves", 1024),
        ("1000", 1000),
        ("1e6 samples", 10**6),
        (" 2**26leaves ", 2**26),
        ("2^12", 4096),
        ("4k", 4000),
        ("4 Ki", 4096),
        ("1.5M", 1_500_000),
        ("65_536", 65536),
    ],
)
def test_counts_are_read_as_people_write_them(text: str, count: int) -> None:
    assert parse_count(text, "leaves") == count


@pytest.mark.parametrize(
    "text", ["", "many", "2**", "1.5 leaves", "-3", "2**24 prefixes", "9" * 30, "1,5e0", "_"]
)
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(LongshotError, match="number of leaves"):
        parse_count(text, "leaves")


def test_goals_and_ranges_are_checked() -> None:
    assert parse_range("1e-7:1e-4") == (1e-7, 1e-4)
    for text in ("1e-7", "a:b", "1:2:3", ""):
        with pytest.raises(LongshotError, match="no range"):
            parse_range(text)
    for wrong in ({}, {"leaves": 0}, {"minutes": -1.0}, {"leaves": 5, "low": 1.0, "high": 0.1}):
        with pytest.raises(LongshotError):
            Goal(**wrong)  # type: ignore[arg-type]
