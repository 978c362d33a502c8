"""The run's database: whole batches or nothing, foreign and damaged files refused."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest

from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Witness
from longshot.study import load_run
from longshot.study.results import FILE
from longshot.study.store import Chosen, Key, Row, RunStore, Target, Tuned
from longshot.study.summary import score_run, summary

OLD = Path(__file__).parent / "run-version-1"
HERE = {"longshot": "0"}


def key(token: int) -> Key:
    return Key("run", "m", "i", "naive", 0.0, token)


def answer(value: float = -3.5) -> Estimate:
    return Estimate(
        method="naive", settings={"a": None}, event="token:1", seed=0, budget=4,
        log_probability=value, interval=(0.0, 0.1), hits=0, cost=Cost(1, 2, 3, 0.25),
        witnesses=(Witness((1, 2), "a\x00b", -2.0, 0.5),),
    )  # fmt: skip


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    with RunStore(tmp_path / "a", create=True) as store:
        store.add([Row(key(2), answer(-math.inf)), Row(key(1), error="no")], HERE)
        assert store.rows() == [Row(key(1), error="no"), Row(key(2), answer(-math.inf))]
        assert store.done() == {key(2)}
        chosen = Chosen((Target(3, "'x'", 0.0, math.inf), Target(4, "'y'", 1e-5, 1e-6)), 9, "none")
        store.choose("run", "m", "i", chosen)
        assert store.chosen("run", "m", "i") == chosen
        assert store.chosen("tune", "m", "i") is None
        store.set_tuned("m", "i", "itgis", Tuned(0.5, ((0.5, 1.25), (1.0, 2.0))))
        assert store.tuned() == {("m", "i", "itgis"): Tuned(0.5, ((0.5, 1.25), (1.0, 2.0)))}


def test_an_error_gives_way_and_an_estimate_stays(tmp_path: Path) -> None:
    with RunStore(tmp_path / "a", create=True) as store:
        store.add([Row(key(1), error="no")], HERE)
        store.add([Row(key(1), answer())], HERE)
        store.add([Row(key(1), error="later")], HERE)
        store.add([Row(key(1), answer(-9.0))], HERE)
        assert store.rows() == [Row(key(1), answer())]


def test_a_batch_is_whole_or_absent(tmp_path: Path) -> None:
    with RunStore(tmp_path / "a", create=True) as store:
        store.add([Row(key(1), answer())], HERE)

        def batch() -> list[Row]:
            yield Row(key(2), answer())
            raise OSError("the disk is full")

        with pytest.raises(LongshotError, match=r"disk is full. What was committed before"):
            store.add(batch(), HERE)
        assert [row.key for row in store.rows()] == [key(1)]


def test_foreign_damaged_and_newer_files_are_refused_unharmed(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    sqlite3.connect(foreign).execute("CREATE TABLE t (x)")
    text = tmp_path / "text"
    text.write_text("my notes, longer than a header of SQLite" * 100)
    newer = tmp_path / "newer"
    with RunStore(newer, create=True) as store:
        store._connection.execute("PRAGMA user_version = 99")
    torn = tmp_path / "torn"
    with RunStore(torn, create=True) as store:
        store.add([Row(key(token), answer()) for token in range(400)], HERE)
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    for path, message in (
        (foreign, "not a study's run"),
        (text, "not a database"),
        (newer, "version 99"),
        (torn, "damaged|malformed"),
        (tmp_path / "none", "There is no study's run"),
    ):
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(LongshotError, match=message):
            load_run(path)
        assert (path.read_bytes() if path.exists() else None) == before


def test_a_damaged_row_is_one_sentence(tmp_path: Path) -> None:
    with RunStore(tmp_path / "a", create=True) as store:
        store.add([Row(key(1), answer())], HERE)
        store._connection.execute("UPDATE rows SET estimate = x'00'")
        with pytest.raises(LongshotError, match="failed"):
            store.rows()


def test_runs_of_the_first_version_keep_loading() -> None:
    """A file that was written once and is never rewritten, whatever becomes of the code."""
    run = load_run(OLD / FILE)
    assert run.name == "small"
    assert len(run.rows) == 36
    assert run.failures == []
    records = summary(score_run(run))
    assert {record["method"] for record in records} == {"constant", *run.methods}
    assert all(record["is_loss"] >= 0 for record in records)
