"""Every kind of run reports, in every format, the same each time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app
from longshot.errors import LongshotError
from longshot.report import FORMATS, write_report
from longshot.study.results import FILE
from longshot.study.store import RunStore
from tests.report.synthetic import make_run

SMALL = {"models": ("mini-1l",), "inputs": ("hex", "caps"), "targets": 5}


def names(paths: list[Path]) -> set[str]:
    return {path.name for path in paths}


def test_a_run_with_everything(tmp_path: Path) -> None:
    shares: list[float] = []
    run = make_run(**SMALL, methods=("naive", "itgis"))
    written = write_report(run, tmp_path, progress=lambda share, what: shares.append(share))
    assert {path.suffix[1:] for path in written} == set(FORMATS)
    assert all(path.stat().st_size > 0 for path in written)
    assert {
        "index.html", "report.md", "loss-is-mini-1l.tex", "loss-log-mini-1l.tex", "cost.tex",
        "temperatures.tex", "intervals.tex", "halves-is.tex", "loss-by-model-is.png",
        "loss-by-distribution-log.svg", "scatter-raw-mini-1l.pdf", "scatter-fitted-mini-1l.png",
        "cost-is.svg", "intervals.png", "tuning-mini-1l.png", "truth.png", "halves-is.png",
    } <= names(written)  # fmt: skip
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        pytest.param({"rows": False}, "loss-by-model-is.svg", id="empty"),
        pytest.param({"failed": True}, "scatter-raw-mini-1l.svg", id="only failures"),
        pytest.param({"tuned": False}, "tuning-mini-1l.svg", id="without tuning"),
        pytest.param({"inputs": ("hex",)}, "halves-is.svg", id="one cell"),
        pytest.param({"targets": 1}, None, id="one target"),
        pytest.param({"targets": 0}, "truth.svg", id="no target"),
        pytest.param({"zeros": True, "methods": ("naive", "mhis")}, None, id="all zeros"),
        pytest.param({"models": (), "inputs": ()}, "truth.svg", id="nothing"),
        pytest.param({"methods": ("mine", "other")}, None, id="unknown labels"),
    ],
)
def test_odd_runs_report_too(
    options: dict[str, object], missing: str | None, tmp_path: Path
) -> None:
    arguments = {**SMALL, "methods": ("naive", "itgis"), **options}
    written = names(write_report(make_run(**arguments), tmp_path, ["html", "md", "tex", "svg"]))
    assert {"index.html", "report.md"} <= written
    assert missing not in written


def test_a_report_made_again_is_the_same(tmp_path: Path) -> None:
    run = make_run(("m",), ("hex",), ("itgis",), 4, tuned=False)
    formats = ["html", "md", "tex", "svg"]  # the slow ones are left out
    first, second = (write_report(run, tmp_path / name, formats) for name in "ab")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_a_wrong_format_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LongshotError, match="did you mean 'html'"):
        write_report(make_run(**SMALL), tmp_path, ["htm"])


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LongshotError, match="cannot be written"):
        write_report(make_run(**SMALL, methods=("naive",)), tmp_path / "file", ["html"])


def test_the_command_reads_a_stored_run(tmp_path: Path) -> None:
    run = make_run(**SMALL, methods=("naive", "itgis"))
    with RunStore(tmp_path / FILE, create=True) as store:
        store.set_fact("study", json.dumps(run.study))
        for (stage, *cell), chosen in run.chosen.items():
            store.choose(stage, *cell, chosen)
        store.add(run.rows, {})
    arguments = ["report", str(tmp_path), "--format", "html", "--format", "md"]
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False).output
    assert "2 files in" in shown
    page = (tmp_path / "report" / "index.html").read_text()
    assert "itgis" in page
    assert re.search(r"<h1>[^<]+</h1>", page)
