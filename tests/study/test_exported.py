"""Rows are read back as a run: the same scores, and what a stranger wrote refused."""

from __future__ import annotations

import json
import lzma
import math
from dataclasses import replace
from pathlib import Path

import pytest

from longshot.errors import LongshotError
from longshot.report import write_report
from longshot.study import load_run
from longshot.study.results import Run, finite
from longshot.study.summary import score_run, summary
from tests.report.synthetic import make_run

MINI = Path(__file__).parents[2] / "docs" / "results" / "mini"


def written(run: Run, path: Path, **changed: object) -> Path:
    """A file of a run's rows, the first changed."""
    records = [finite(record) for record in run.records()]
    records[0] |= changed
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    path.write_bytes(lzma.compress(text.encode()) if path.suffix == ".xz" else text.encode())
    return path


@pytest.fixture(scope="module")
def run() -> Run:
    made = make_run(("b", "a"), ("icl", "hex"), ("naive", "gld", "itgis"), 6)
    rows = list(made.rows)
    rows[3] = replace(rows[3], estimate=None, error="it failed")
    return replace(made, rows=tuple(rows))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.xz"])
def test_rows_are_scored_as_the_run_is(run: Run, tmp_path: Path, name: str) -> None:
    back = load_run(written(run, tmp_path / name))
    assert back.name == tmp_path.name
    assert (back.cells, back.methods) == (run.cells, run.methods)
    assert len(back.failures) == 1
    scores = [summary(score_run(each)) for each in (run, back)]
    records = [[finite(record) for record in each.records()] for each in (run, back)]
    for here, there in (*zip(*scores, strict=True), *zip(*records, strict=True)):
        assert here.pop("seconds", None) == pytest.approx(there.pop("seconds", None))
        assert here == there


def test_rows_are_reported(run: Run, tmp_path: Path) -> None:
    back = load_run(written(run, tmp_path / "mine.jsonl"))
    files = write_report(back, tmp_path / "report", ["html", "md", "tex"])
    page = files[0].read_text()
    assert "mine" in page
    assert all(f"paired-is-{model}.tex" in {path.name for path in files} for model in "ab")


def test_a_temperature_that_differs_between_cells_was_tuned(run: Run, tmp_path: Path) -> None:
    rows = [
        replace(row, estimate=replace(row.estimate, settings={"temperature": 0.5}))
        if row.estimate and row.key[1:4] == ("a", "hex", "itgis")
        else row
        for row in run.rows
    ]
    tuned = load_run(written(replace(run, rows=tuple(rows)), tmp_path / "rows.jsonl")).tuned
    assert {key[2] for key in tuned} == {"itgis"}
    assert tuned["a", "hex", "itgis"].temperature == 0.5
    assert tuned["b", "icl", "itgis"].temperature == 1.0


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"truth": 2.0}, "Line 1 of .* no probability"),
        ({"truth": "much"}, "Line 1 of"),
        ({"token": -4}, "Line 1 of"),
        ({"model": "\x1b[31m"}, "no name"),
        ({"seconds": -1.0}, "out of range"),
        ({"macs": 10**40}, "Line 1 of"),
        ({"low": 0.9, "high": 0.1}, "Line 1 of"),
        ({"statistics": {"mu": "x"}}, "Line 1 of"),
        ({"warnings": 3}, "Line 1 of"),
        ({"method_name": "other"}, "several methods"),
        ({"token": 101}, "two truths|twice"),
    ],
)
def test_what_no_run_wrote_is_refused(
    run: Run, tmp_path: Path, changed: dict[str, object], sentence: str
) -> None:
    with pytest.raises(LongshotError, match=sentence):
        load_run(written(run, tmp_path / "rows.jsonl", **changed))


@pytest.mark.parametrize(
    "content",
    [b"{", b'{"a": 1}\n', b"{}\n[]\n", b"\xfd7zXZ\x00 and no more", lzma.compress(b"{}")[:-8],
     lzma.compress(b"\n"), b'{"a":' * 5000],
)  # fmt: skip
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.jsonl.xz").write_bytes(content)
    with pytest.raises(LongshotError):
        load_run(tmp_path / "rows.jsonl.xz")


def test_the_committed_rows_give_the_committed_summary() -> None:
    """All but the fits, which take half a minute: counts, truths, costs and raw losses."""
    run = load_run(MINI / "rows.jsonl.xz")
    assert (run.name, len(run.rows), len(run.cells)) == ("mini", 7080, 24)
    told = {(r["model"], r["inputs"], r["method"]): r for r in json.loads(_summary())}
    for model, inputs in run.cells:
        for label in run.methods:
            answers = run.estimates(model, inputs, label)
            record = told[model, inputs, label]
            assert record["targets"] == len(answers)
            assert record["zero_count"] == sum(e.probability == 0 for _, e in answers)
            assert record["given"] == sum(e.is_two_sided for _, e in answers)
            own = math.fsum(e.cost.macs for _, e in answers)
            shared = max(e.shared_cost.macs for _, e in answers)
            assert record["macs"] == pytest.approx((own + shared) / len(answers))


def _summary() -> str:
    return (MINI / "summary.json").read_text()
