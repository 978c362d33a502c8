"""`longshot demo`, run for real: on a toy folder, and on the shipped models."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longshot.cli.app import app
from longshot.cli.main import run as longshot
from longshot.errors import LongshotError
from longshot.models.checkpoints import ZOO
from tests.checkpoint_files import write_config_and_weights
from tests.toys import toy_network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of no consequence behind the shipped tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "toy"
    write_config_and_weights(folder, toy_network(layers=1, vocab=4096, context=40))
    shutil.copy(ZOO / "tokenizer.json", folder)
    return folder


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["demo", *map(str, arguments)])
    if isinstance(result.exception, LongshotError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(printed: str) -> list[list[str]]:
    """The cells of the table's body."""
    lines = [line.split("│")[1:-1] for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line] for line in lines]


@pytest.mark.parametrize("samples", [1, 100, 1500])
def test_any_number_of_samples(folder: Path, samples: int) -> None:
    printed = run("--model", folder, "--samples", samples)
    outputs, inputs = re.findall(r"([\d,]+) different outputs in ([\d,]+) inputs", printed)[0]
    assert inputs == f"{samples:,}"
    seen = int(outputs.replace(",", ""))
    assert f"{4096 - seen:,} of 4,096 tokens were never the output" in printed
    table = rows(printed)
    assert len(table) == min(seen, 8)
    common, rare = [int(row[1].replace(",", "")) for row in table], [int(row[4]) for row in table]
    assert common == sorted(common, reverse=True)
    assert rare == sorted(rare)
    assert common[0] >= rare[0]
    assert float(table[0][2]) == pytest.approx(common[0] / samples, rel=0.06)


def test_the_same_seed_draws_the_same(folder: Path) -> None:
    arguments = ("--model", folder, "--inputs", "if", "--samples", 200)
    assert run(*arguments) == run(*arguments)
    assert run(*arguments, "--seed", 1) != run(*arguments)


def test_mistakes_are_sentences(folder: Path) -> None:
    with pytest.raises(LongshotError, match="did you mean 'mini-2l'"):
        run("--model", "mini-2k")
    with pytest.raises(LongshotError, match="did you mean 'camel'"):
        run("--model", folder, "--inputs", "camle")
    assert CliRunner().invoke(app, ["demo", "--samples", "0"]).exit_code == 2


def test_the_command_line_prints_one_line_and_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["longshot", "demo", "--model", "mini-2k"])
    with pytest.raises(SystemExit) as left:
        longshot()
    assert left.value.code == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.startswith("error: There is no model named 'mini-2k'; did you mean")
    assert not said.out


@pytest.mark.parametrize("arguments", [(), ("--model", "mini-4l", "--inputs", "english")])
def test_the_shipped_models(arguments: tuple[str, ...]) -> None:
    printed = run(*arguments, "--samples", 512)
    assert len(rows(printed)) == 8
    assert "different outputs in 512 inputs" in printed
