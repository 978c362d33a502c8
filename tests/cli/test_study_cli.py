"""`longshot run`, `tune`, `score`, `compare`, `witnesses`: run for real on a shipped model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app
from longshot.errors import LongshotError
from longshot.estimate import Estimate
from longshot.methods import METHODS
from longshot.study import load_run
from longshot.study.scores import score_cell
from tests.study.studies import SMALL


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder, its study beside it."""
    home = tmp_path_factory.mktemp("studies")
    (home / "small.toml").write_text(SMALL)
    result = run("run", home / "small.toml", "--out", home / "run")
    assert result.exit_code == 0
    assert "60 of 60 estimates" in result.output
    return home / "run"


def test_scores_are_shown_and_written(finished: Path, tmp_path: Path) -> None:
    result = run("score", finished, "--out", tmp_path / "summary.json")
    assert result.exit_code == 0
    assert "Itakura–Saito loss on mini-1l" in result.output
    records = json.loads((tmp_path / "summary.json").read_text())
    assert len(records) == 2 * 7
    wanted = {
        "is_loss", "is_loss_raw", "log_mse", "zeros", "noise_floor", "coverage", "targets",
        "forwards", "backwards", "macs", "seconds", "temperature",
    }  # fmt: skip
    assert all(wanted <= set(record) for record in records)
    assert json.loads(run("score", finished, "--json").output) == records
    assert "Squared error in log space" in run("score", finished, "--loss", "log_mse").output


def test_scoring_loads_no_model(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("longshot.models.checkpoints._read_tensors", refuse)
    assert run("score", finished).exit_code == 0


def test_comparing_a_run_with_itself(finished: Path) -> None:
    rows = json.loads(run("compare", finished, finished, "--json").output)
    assert len(rows) == 14
    assert all(row["difference"] in (0.0, None) for row in rows)
    assert "last − first" in run("compare", finished, finished).output
    with pytest.raises(LongshotError, match="two runs"):
        run("compare", finished)


def test_witnesses_are_lines_of_json(finished: Path) -> None:
    for line in run("witnesses", finished).output.splitlines():
        assert json.loads(line)["gap"] > 0


def test_rows_are_lines_of_strict_json(finished: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    lines = run("rows", finished).output.splitlines()
    found = [json.loads(line, parse_constant=refuse) for line in lines]
    assert len(found) == len(load_run(finished).rows)
    assert {row["method"] for row in found} >= {"naive", "itgis"}
    assert any(row["low"] == 0 and row["no_interval"] for row in found)


def test_gld_is_rescored_from_the_rows_that_are_printed(finished: Path) -> None:
    rows = [json.loads(line) for line in run("rows", finished).output.splitlines()]
    own = [row for row in rows if (row["inputs"], row["method"]) == ("hex", "gld")]
    estimates = [
        Estimate(
            row["method_name"], row["settings"], f"token:{row['token']}", row["seed"],
            row["budget"], row["log_probability"], no_interval=row["no_interval"],
            statistics=row["statistics"],
        )
        for row in own
    ]  # fmt: skip
    p, error = (np.array([row[name] for row in own]) for name in ("truth", "truth_error"))
    again = score_cell(estimates, p, error).losses["is"]
    records = json.loads(run("score", finished, "--json").output)
    (kept,) = (r for r in records if (r["inputs"], r["method"]) == ("hex", "gld"))
    assert again.fit is not None
    assert again.fit.form == "gaussian"
    assert again.mean == kept["is_loss"]


def test_what_a_loss_leaves_out_is_said_beside_it(finished: Path) -> None:
    shown = " ".join(run("score", finished).output.split())
    records = json.loads(run("score", finished, "--json").output)
    clipped, zeros = (sum(r[key] for r in records) for key in ("is_loss_clipped", "zero_count"))
    assert zeros > 0
    assert f"which the paper does not do: {clipped} of 42 were moved" in shown
    assert f"leaves out the estimates of zero, {zeros} of 36" in shown
    for record in records:
        assert record["given"] >= record["covered"] >= 0
        if record["method"] != "constant":
            assert record["is_loss_raw_zeros"] is not None


def test_tuning_shows_its_curves(finished: Path) -> None:
    shown = run("tune", finished.parent / "small.toml", "--out", finished).output
    assert "temperature" in shown
    assert "itgis" in shown


def test_failures_show_in_the_exit_code(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: object, job: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(METHODS["naive"], "estimate", failing)
    study = finished.parent / "small.toml"
    result = run("run", study, "--out", tmp_path / "run", "--only", "method=naive,gld")
    assert result.exit_code == 1
    assert "6 failed" in result.output
    assert "RuntimeError: no luck" in result.output
    assert run("score", tmp_path / "run").exit_code == 1


TINY = """
[inputs]
name = "tiny"
text = "{who} said{what}"
[slots.who]
choices = ["He", "She", "We", "I"]
[slots.what]
tokens = "starts-with-space-letters"
repeat = 2
"""


def test_a_template_lies_beside_its_study_and_truth_is_where_it_is_said_to_be(
    tmp_path: Path,
) -> None:
    """From another folder, too; without the truth, the sentence names what would make it."""
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "study.toml").write_text(
        'name = "tiny"\nmodels = ["mini-1l"]\ninputs = ["tiny.toml"]\n'
        "[targets]\nhigh = 1e-2\ncount = 3\n[methods.naive]\nbudget = 64\n"
    )
    template, store = tmp_path / "tiny.toml", tmp_path / "truth.sqlite"
    start = ("run", tmp_path / "study.toml", "--out", tmp_path / "run")
    with pytest.raises(LongshotError, match=f"--model mini-1l --inputs {template} --until"):
        run(*start)
    made = ("--model", "mini-1l", "--inputs", template, "--until", "20000 leaves")
    assert run("truth", "make", *made, "--store", store).exit_code == 0
    assert "3 of 3 estimates" in run(*start, "--truth", store).output
    assert "3 of 3 estimates" in run(*start).output  # it has its targets


def test_an_interruption_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("longshot.study.run_study", interrupt)
    result = run("run", "--preset", "smoke", "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert "the same command goes on" in result.output


def test_first_mistakes(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(SMALL.replace("mini-1l", "mini-9l"))
    for arguments, message in (
        (["run"], "a preset"),
        (["run", "x.toml", "--preset", "smoke"], "a preset"),
        (["run", "--preset", "smok"], "did you mean 'smoke'"),
        (["run", tmp_path / "none.toml"], "No such file"),
        (["run", tmp_path / "wrong.toml", "--out", tmp_path / "r"], "wrong.toml, line 3, models"),
        (["run", "--preset", "smoke", "--engine", "slurm"], "no engine named 'slurm'"),
        (["score", tmp_path], "There is no study's run"),
        (["score", tmp_path, "--loss", "mse"], "is_loss or log_mse"),
    ):
        with pytest.raises(LongshotError, match=message):
            run(*arguments)


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "longshot.cli.main", "score", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: There is no study's run")
    assert len(ended.stderr.splitlines()) == 1


def test_a_method_of_ones_own_runs_beside_a_study(finished: Path, tmp_path: Path) -> None:
    study = finished.parent / "small.toml"
    found = run("run", study, "--method", "splitting", "--only", "inputs=hex", "--out", tmp_path)
    assert "3 of 3 estimates" in found.output
    stored = load_run(tmp_path)
    assert stored.methods == ["splitting"]
    assert {row.estimate.budget for row in stored.rows if row.estimate} == {64}
    with pytest.raises(LongshotError, match="did you mean 'splitting'"):
        run("run", study, "--method", "spliting", "--out", tmp_path)


READ_ONLY = "mount --bind {0} {0} && mount -o remount,ro,bind {0} && "


@pytest.mark.long
def test_a_run_on_a_read_only_place_is_scored_and_reported(finished: Path, tmp_path: Path) -> None:
    inside = ["unshare", "--mount", "--map-root-user", "bash", "-c"]
    place = READ_ONLY.format(finished)

    def there(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*inside, place + command], capture_output=True, text=True)

    if shutil.which("unshare") is None or there("true").returncode:
        pytest.skip("no file system can be mounted here")
    assert there(f"touch {finished}/x").returncode  # it is read-only
    longshot = f"{sys.executable} -m longshot"
    scored = there(f"{longshot} score {finished} --json")
    assert json.loads(scored.stdout) == json.loads(run("score", finished, "--json").output)
    assert not there(f"{longshot} report {finished} --out {tmp_path} --format md").returncode
    assert "Itakura" in (tmp_path / "report.md").read_text()
    beside = there(f"{longshot} report {finished} --format md")  # where it cannot be written
    assert beside.returncode == 2
    assert beside.stderr.count("\n") == 1
    (finished / "run.sqlite-wal").write_bytes(b"not yet in the file")
    try:
        assert "left in the middle" in there(f"{longshot} score {finished}").stderr
    finally:
        (finished / "run.sqlite-wal").unlink()
