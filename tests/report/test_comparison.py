"""Runs side by side, from Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import longshot as ls
from longshot.report.drawing import spec_of
from longshot.study.results import Run
from longshot.study.summary import score_run
from tests.report.synthetic import make_run


@pytest.fixture(scope="module")
def runs() -> tuple[Run, Run]:
    first = make_run(("m",), ("hex",), ("naive", "itgis"), 6)
    last = make_run(("m",), ("hex",), ("itgis", "mhis"), 6)
    return first, replace(last, study={**last.study, "name": "mine"})


def test_what_both_have_is_compared(runs: tuple[Run, Run]) -> None:
    found = ls.compare(*runs)
    assert found.names == ("synthetic", "mine")
    by = {record["method"]: record for record in found.records}
    assert set(by) == {"constant", "naive", "itgis", "mhis"}
    losses = [
        next(cell.loss("is") for cell in score_run(run) if cell.method == "itgis") for run in runs
    ]
    assert by["itgis"]["losses"] == losses
    assert by["itgis"]["difference"] == losses[1] - losses[0]
    assert by["naive"]["losses"][1] is by["naive"]["difference"] is None
    table = found.to_pandas()
    assert list(table["mine"].dropna()) == [
        record["losses"][1] for record in found.records if record["losses"][1] is not None
    ]


def test_a_comparison_shows_itself(runs: tuple[Run, Run]) -> None:
    found = ls.compare(*runs, loss="log_mse")
    assert "synthetic → mine" in found._repr_html_()
    spec = spec_of(found.plot())
    assert {r["method"] for r in spec["datasets"]["differences"]} == {"constant", "itgis"}
    assert "mine minus synthetic" in str(spec)


def test_runs_of_one_name_are_told_apart_by_their_place(runs: tuple[Run, Run]) -> None:
    other = replace(runs[0], path=Path("other/run.sqlite"))
    assert ls.compare(runs[0], other).names == ("run.sqlite", "other/run.sqlite")
    assert ls.compare(runs[0], runs[0]).names == ("run.sqlite (1)", "run.sqlite (2)")


def test_mistakes(runs: tuple[Run, Run]) -> None:
    with pytest.raises(ls.LongshotError, match="two runs"):
        ls.compare(runs[0])
    with pytest.raises(ls.LongshotError, match="log_mse"):
        ls.compare(*runs, loss="is")
    other = make_run(("n",), ("hex",), ("naive",), 4)
    with pytest.raises(ls.LongshotError, match="in common"):
        ls.compare(runs[0], other).plot()
