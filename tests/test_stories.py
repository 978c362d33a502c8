"""The commands of the stories run, with a small random model in place of theirs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app
from longshot.inputs import read_template
from longshot.inputs.counts import load_counts
from longshot.models import load_model
from tests.models.hf_models import chat_parts

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "stories").glob("*.md"))
BLOCKS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
LINES = [
    line
    for page in PAGES
    for block in BLOCKS.findall(page.read_text())
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("longshot estimate ")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("chat")
    for part in chat_parts():
        part.save_pretrained(place)
    return f"hf:{place}"


def test_there_are_three() -> None:
    assert len(PAGES) == 3
    assert len(LINES) >= 3


@pytest.mark.parametrize("line", LINES)
def test_a_command_answers(line: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    smaller = {"$SMOLLM2": folder, "$GEMMA": folder, "exact": "naive"}
    words = [smaller.get(word, word) for word in shlex.split(line)[1:]]
    budget = ["--budget", "256" if "splitting" in words else "16"]
    result = CliRunner().invoke(app, [*words, *budget, "--json"], catch_exceptions=False)
    assert 0 <= json.loads(result.output)["probability"] <= 1


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "stories").glob("*.toml")))
def test_a_template_has_as_many_inputs_as_it_says(path: Path, folder: str) -> None:
    said = re.search(r"= ([\d,]+)", path.read_text().splitlines()[0])
    if said is not None:
        tokenizer = load_model(folder).tokenizer
        inputs = read_template(path, tokenizer, load_counts(tokenizer))
        assert inputs.count == int(said[1].replace(",", ""))
