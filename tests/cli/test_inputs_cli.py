"""`longshot inputs` and `longshot models`, on a small model folder with the shipped tokenizer."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from longshot.cli import inputs, models  # noqa: F401  (puts the commands on the app)
from longshot.cli.app import app
from longshot.errors import LongshotError
from longshot.inputs import CATALOGUE
from longshot.models.checkpoints import ZOO
from tests.toys import toy_network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    network = toy_network(layers=1, vocab=4096, context=40)
    folder = tmp_path_factory.mktemp("model")
    config = {"format": "longshot-gelu", "licence": "MIT"} | dataclasses.asdict(network.config)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(network.state_dict(), folder / "model.safetensors")
    shutil.copy(ZOO / "tokenizer.json", folder)
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, LongshotError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_list(folder: Path) -> None:
    rows = json.loads(run("inputs", "--model", folder, "--json"))
    assert [row["name"] for row in rows] == list(CATALOGUE)
    assert {row["name"]: row["random_positions"] for row in rows}["caps"] == 17
    printed = run("inputs", "--model", folder)
    assert all(name in printed for name in CATALOGUE)


def test_show_draws_and_describes(folder: Path) -> None:
    printed = run("inputs", "show", "if", "--model", folder, "-n", 3)
    assert "34 tokens, 32 of them random" in printed
    assert printed.count("<|BOS|>| if|") == 3  # bars where there is no colour
    assert "2–33" in printed  # like positions are one row
    assert "1024" in printed


def test_show_as_json_is_the_same_for_the_same_seed(folder: Path) -> None:
    arguments = ("inputs", "show", "icl", "--model", folder, "-n", 2, "--json")
    shown = json.loads(run(*arguments, "--seed", 3))
    assert shown == json.loads(run(*arguments, "--seed", 3))
    assert shown["samples"] != json.loads(run(*arguments, "--seed", 4))["samples"]
    assert shown["length"] == len(shown["positions"]) == len(shown["samples"][0]["tokens"]) == 30
    assert len(shown["free_positions"]) == 10
    assert shown["samples"][0]["text"].startswith("<|BOS|>A for ")


def test_show_a_template(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('[inputs]\nname = "mine"\ntext = "a{x}"\n[slots.x]\nchoices = ["b", "\\n"]\n')
    printed = run("inputs", "show", "--file", file, "--model", folder)
    assert "mine" in printed
    assert "|\\n" in printed  # what does not print is escaped


def test_a_corpus_may_be_named(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "code.py"
    text.write_text("class ErrorName: pass\nclass NameError: pass")
    shown = json.loads(
        run("inputs", "show", "camel", "--model", folder, "--corpus", f"python={text}", "--json")
    )
    assert shown["positions"][1]["size"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show",), "longshot inputs show NAME"),
        (("camel",), "longshot inputs show NAME"),
        (("show", "camel", "--file", "my.toml"), "longshot inputs show NAME"),
        (("show", "--file", "my.txt"), "longshot inputs show --file TEMPLATE.toml"),
        (("show", "camle"), "did you mean 'camel'"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], said: str, folder: Path) -> None:
    with pytest.raises(LongshotError, match=said):
        run("inputs", *arguments, "--model", folder)


def test_the_models() -> None:
    rows = json.loads(run("models", "--json"))
    assert {"mini-1l", "mini-2l", "mini-4l", "gelu-1l"} <= {row["name"] for row in rows}
    assert all(row["licence"] and row["source"] for row in rows)
    assert "mini-2l" in run("models")
