"""`longshot demo`, run for real: every method on two distributions, a table, a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from longshot.cli.main import run as longshot
from longshot.study import load_run


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What it prints, and where it writes; as a user runs it, without the tests' type checks."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    command = [sys.executable, "-m", "longshot", "demo", "--out", str(folder), "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, folder


@pytest.mark.long
def test_every_method_stands_beside_the_truth(shown: tuple[str, Path]) -> None:
    output, folder = shown
    run = load_run(folder)
    assert run.failures == []
    for inputs in ("camel", "hex"):
        assert f"How likely is it that mini-2l says … after {inputs} tokens?" in output
    for heading in ("truth", *run.methods):
        assert heading in output


@pytest.mark.long
def test_what_it_means(shown: tuple[str, Path]) -> None:
    output, _ = shown
    total, naive, best = map(
        int, re.findall(r"Of (\d+) outputs .* saw (\d+) and \w+ (\d+)", output)[0]
    )
    assert 0 <= naive < best <= total == 24
    loss, constant = map(
        float, re.findall(r"loss (\d+\.\d+), where knowing nothing .* costs (\d+\.\d+)", output)[0]
    )
    assert 0 < loss < constant


@pytest.mark.long
def test_the_page_is_there(shown: tuple[str, Path]) -> None:
    output, folder = shown
    (page,) = folder.rglob("*.html")
    assert page.name in output
    assert "itgis" in page.read_text()


def test_the_command_line_prints_one_line_and_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["longshot", "estimate", "--model", "mini-2k", "--target", "a"])
    with pytest.raises(SystemExit) as left:
        longshot()
    assert left.value.code == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.startswith("error: There is no model named 'mini-2k'; did you mean")
    assert not said.out
