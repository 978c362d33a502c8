"""A run's rows: the same after any crash, on any engine, in any order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from longshot.engines import make_engine
from longshot.errors import LongshotError
from longshot.estimate import Estimate, Job
from longshot.methods import METHODS, Method
from longshot.methods.itgis import ITGIS
from longshot.methods.naive import Naive
from longshot.study import load_run, parse_spec
from longshot.study.batches import StudyBatch
from longshot.study.progress import StudyStatus
from longshot.study.results import FILE
from longshot.study.store import Key, Row, RunStore
from tests.kills import killed
from tests.study.studies import ONE, SMALL, content, run, small


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    done = run(folder)
    assert done.failed == 0
    assert all(tally.done == tally.total and not tally.left for tally in done.tallies.values())
    return folder


def test_every_method_answers_every_target(whole: Path) -> None:
    stored = load_run(whole)
    assert stored.cells == [("mini-1l", "camel"), ("mini-1l", "hex")]
    assert stored.methods == ["naive", "conditional", "gld", "qld", "itgis", "mhis"]
    for model, inputs in stored.cells:
        for label in stored.methods:
            assert len(stored.estimates(model, inputs, label)) == 3
    assert len(stored.rows) == 2 * 3 * 6
    assert stored.failures == []


def test_tuned_methods_run_at_the_temperature_that_was_chosen(whole: Path) -> None:
    stored = load_run(whole)
    assert set(stored.tuned) == {
        ("mini-1l", inputs, label) for inputs in ("camel", "hex") for label in ("itgis", "mhis")
    }
    for (model, inputs, label), tuned in stored.tuned.items():
        assert [t for t, _ in tuned.curve] == [0.5, 1.0]
        for _, estimate in stored.estimates(model, inputs, label):
            assert estimate.settings["temperature"] == tuned.temperature


def test_no_target_is_used_for_both_tuning_and_judging(whole: Path) -> None:
    chosen = load_run(whole).chosen
    for inputs in ("camel", "hex"):
        tokens = [
            {target.token for target in chosen[stage, "mini-1l", inputs].targets}
            for stage in ("tune", "run")
        ]
        assert tokens[0]
        assert tokens[1]
        assert not tokens[0] & tokens[1]


def test_running_again_runs_nothing(whole: Path) -> None:
    before = content(whole)
    assert all(tally.ran == 0 for tally in run(whole).tallies.values())
    assert content(whole) == before


def test_killed_at_any_statement_it_ends_where_an_uninterrupted_run_does(
    whole: Path, tmp_path: Path
) -> None:
    expected, partial = content(whole), 0
    for statement in (3, 100, 180, 132, 133, 140):
        assert killed(lambda: run(tmp_path), statement)
        partial += 0 < load_rows(tmp_path) < len(expected[0])
    run(tmp_path)
    assert partial > 2
    assert content(tmp_path) == expected


def load_rows(folder: Path) -> int:
    try:
        with RunStore(folder / FILE) as store:
            return len(store.rows("tune")) + len(store.rows("run"))
    except LongshotError:  # killed before there was a file
        return 0


@pytest.mark.parametrize(
    ("engine", "only"),
    [
        ("local", "method=naive,qld inputs=hex"),
        pytest.param("local", "", marks=pytest.mark.long),
        pytest.param("ray", "", marks=pytest.mark.long),
    ],
)
def test_two_workers_give_the_same_rows(tmp_path: Path, engine: str, only: str) -> None:
    run(tmp_path / "two", engine=make_engine(engine, 2), only=only)
    run(tmp_path / "one", only=only)
    assert content(tmp_path / "two") == content(tmp_path / "one")


def test_parts_in_any_order_and_any_batches_make_the_whole(whole: Path, tmp_path: Path) -> None:
    parts = ["method=mhis inputs=hex", "method=gld,naive", "inputs=camel method=itgis", ""]
    for part in parts:
        spec = small("at_once = 2", f"at_once = {len(part) % 3 + 1}")
        run(tmp_path, spec, only=part)
    assert content(tmp_path, macs=0) == content(whole, macs=0)


def test_tuning_first_and_running_later_make_the_whole(whole: Path, tmp_path: Path) -> None:
    run(tmp_path, stages=("tune",))
    assert load_run(tmp_path).rows == ()
    assert len(load_run(tmp_path).tuned) == 4
    run(tmp_path)
    assert content(tmp_path) == content(whole)


def test_tuning_first_changes_no_target_where_the_ranges_overlap(tmp_path: Path) -> None:
    """Tuning takes what the run's targets leave, and as many as it asked for."""
    spec = small("temperatures = [0.5, 1.0]", "temperatures = [0.5, 1.0]\nlow = 0.0\nhigh = 1e-4")
    for name, orders in {"one": [("tune", "run")], "two": [("tune",), ("run",)]}.items():
        for stages in orders:
            run(tmp_path / name, spec, only="inputs=hex method=naive,itgis", stages=stages)
    alone, after = content(tmp_path / "one"), content(tmp_path / "two")
    assert alone == after
    chosen = load_run(tmp_path / "one").chosen
    judged, tuned = (
        {target.token for target in chosen[stage, "mini-1l", "hex"].targets}
        for stage in ("run", "tune")
    )
    assert len(judged) == len(tuned) == 3
    assert not judged & tuned


def test_one_target_alone(whole: Path, tmp_path: Path) -> None:
    token = load_run(whole).chosen["run", "mini-1l", "hex"].targets[1].token
    run(tmp_path, only=f"inputs=hex method=naive,qld token={token}")
    (first, second) = load_run(tmp_path).rows
    both = [row for row in load_run(whole).rows if row.key in (first.key, second.key)]
    assert [r.estimate.log_probability for r in both if r.estimate] == [
        r.estimate.log_probability for r in (first, second) if r.estimate
    ]


@dataclass(frozen=True)
class Fragile(Method):
    """Fails on some targets as long as `broken` is set."""

    name: ClassVar[str] = "fragile"
    broken: ClassVar[bool] = True

    def estimate(self, job: Job) -> list[Estimate]:
        if self.broken and any(event.members[0] % 2 for event in job.events):
            raise ValueError("odd tokens are too much\nand the rest is noise")
        return [
            self.answer(job, event, log_probability=-1.0, no_interval="a toy")
            for event in job.events
        ]


def test_a_failure_is_a_row_that_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "fragile", Fragile)
    spec = small(SMALL[SMALL.index("[methods.naive]") :], "[methods.fragile]\nbudget = 1\n")
    done = run(tmp_path, spec)
    stored = load_run(tmp_path)
    odd = [row for row in stored.rows if row.key.token % 2]
    assert odd
    assert done.failed == len(odd)
    assert {row.error for row in odd} == {"ValueError: odd tokens are too much"}
    assert all(row.estimate for row in stored.rows if row.key.token % 2 == 0)
    assert stored.failures == odd

    monkeypatch.setattr(Fragile, "broken", False)
    again = run(tmp_path, spec)
    assert again.failed == 0
    assert sum(tally.ran for tally in again.tallies.values()) == len(odd)
    assert load_run(tmp_path).failures == []


def test_a_failed_sweep_leaves_rows_that_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = METHODS["itgis"].estimate

    def failing(self: Any, job: Job) -> list[Estimate]:
        if self.temperature == 0.5 and job.inputs.name == "hex":
            raise MemoryError
        return original(self, job)

    monkeypatch.setattr(METHODS["itgis"], "estimate", failing)
    done = run(tmp_path, only="method=itgis")
    assert done.failed == 6
    failures = load_run(tmp_path).failures
    assert {row.key.inputs for row in failures} == {"hex"}
    assert {row.error for row in failures} == {
        "its temperature was not tuned: part of the sweep failed"
    }
    monkeypatch.undo()
    assert run(tmp_path, only="method=itgis").failed == 0


def test_another_study_is_refused_and_nothing_lost(whole: Path) -> None:
    before = content(whole)
    with pytest.raises(LongshotError, match="holds another study"):
        run(whole, small("count = 3\n[tuning]", "count = 4\n[tuning]"))
    assert content(whole) == before


def test_a_study_may_grow_and_its_rows_stay(whole: Path, tmp_path: Path) -> None:
    gld = "[methods.gld]\nbudget = 64\n"
    part = parse_spec(SMALL.replace('"camel", ', "").replace(gld, ""))
    run(tmp_path, part)
    assert load_run(tmp_path).methods == ["naive", "conditional", "qld", "itgis", "mhis"]
    run(tmp_path)
    assert content(tmp_path) == content(whole)
    run(tmp_path, part)  # a part of it, and it stays whole
    assert content(tmp_path) == content(whole)
    with pytest.raises(LongshotError, match="holds another study"):
        run(tmp_path, parse_spec(SMALL.replace("budget = 256", "budget = 128")))


def test_two_processes_on_one_run_are_refused(tmp_path: Path) -> None:
    run(tmp_path, only="method=naive inputs=hex")

    class Meddling:
        def map(self, function: Any, items: Any) -> Any:
            with pytest.raises(LongshotError, match="Another process"):
                run(tmp_path)
            yield from ONE.map(function, items)

    assert run(tmp_path, engine=Meddling(), only="method=naive inputs=camel").failed == 0


def test_rows_of_other_weights_are_refused(whole: Path, tmp_path: Path) -> None:
    run(tmp_path, only="method=naive inputs=hex")
    with RunStore(tmp_path / FILE) as store:
        store._connection.execute("UPDATE cells SET model_fingerprint = 'other'")
    with pytest.raises(LongshotError, match="another version of mini-1l on hex"):
        run(tmp_path)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(LongshotError, match="cannot be used"):
        run(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("model=mini-9l", "no model of the study named 'mini-9l'; did you mean 'mini-1l'"),
        ("mehtod=itgis", "did you mean 'method'"),
        ("itgis", "selects nothing"),
        ("method=", "selects nothing"),
    ],
)
def test_a_wrong_selection_is_refused(tmp_path: Path, only: str, message: str) -> None:
    with pytest.raises(LongshotError, match=message):
        run(tmp_path, only=only)


def test_records_and_witnesses(whole: Path) -> None:
    stored = load_run(whole)
    table = stored.to_pandas()
    assert len(table) == len(stored.rows)
    assert {"model", "inputs", "method", "text", "truth", "probability", "macs"} <= set(table)
    assert table.query("method == 'gld'").probability.gt(0).all()  # it always extrapolates
    assert all(table.statistics[table.method == "gld"].map(set) == {"mu", "sigma"})
    for witness in stored.witnesses():
        assert witness["gap"] > 0
        assert len(witness["tokens"]) > 20


def test_time_left_is_known_from_the_first_batch_on(tmp_path: Path) -> None:
    seen = []
    run(tmp_path, on_progress=lambda progress: seen.append(progress.seconds_left))
    assert seen[0] is None
    assert all(seen[1:-1])
    assert seen[-1] == 0


def test_what_has_not_begun_is_as_fast_as_its_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 targets of 4 calls took 64 s: 2 s a call. One batch of 100 shared calls is to come."""
    tuning = StudyBatch(0, "tune", "itgis", ITGIS(), 4, 0, 1.0, tuple(range(8)))
    later = replace(tuning, stage="run", budget=16)
    shared = replace(later, label="naive", method=Naive(), budget=100)
    progress = StudyStatus()
    for batch in (tuning, later, shared):
        progress.planned(batch, 8)
    assert progress.seconds_left is None
    progress.finished(tuning, [Row(Key("tune", "m", "d", "itgis", 1.0, t)) for t in range(8)], 64.0)
    monkeypatch.setattr(StudyStatus, "elapsed", 32.0)  # two workers
    assert progress.seconds_left == pytest.approx((8 * 16 + 100) * 2 / 2)
    progress.finished(shared, [Row(Key("run", "m", "d", "naive", 0.0, t)) for t in range(8)], 10.0)
    assert progress.seconds_left == pytest.approx(8 * 16 * 2 * 32 / 74)
