"""What README and guide say to type works, and every link in the documents leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
EXECUTED = [ROOT / "README.md", ROOT / "docs" / "guide.md"]


def blocks(language: str) -> list[str]:
    fence = re.compile(rf"```{language}\n(.*?)```", re.DOTALL)
    return [code for path in EXECUTED for code in fence.findall(path.read_text())]


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str, tmp_path: Path) -> None:
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as the tests themselves
    command = [sys.executable, "-c", code]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env=one_thread, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if not link.startswith(("http:", "https:", "#")):
            assert (path.parent / link.split("#")[0]).exists(), link


def test_files_that_the_source_names_exist() -> None:
    named = re.compile(r"\b(?:benchmarks|docs|examples|tests|training)/[\w./-]+\.\w+")
    sources = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    found = [(path, name) for path, text in sources.items() for name in named.findall(text)]
    assert len(found) >= 3
    assert [(path, name) for path, name in found if not (ROOT / name).exists()] == []


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for path in DOCUMENTS:
        for target in re.findall(r"`?make ([a-z]+(?:-[a-z]+)*)`", path.read_text()):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), (path, target)


def test_commands_exist() -> None:
    """Every `longshot …` in a shell block is a command with such options."""
    shell = re.compile(r"```(?:sh|console)\n(.*?)```", re.DOTALL)
    lines = [
        line
        for path in DOCUMENTS
        for block in shell.findall(path.read_text())
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("longshot ")
    ]
    assert lines
    known: dict[str, str] = {}
    for line in lines:
        words = line.split("#")[0].split()
        command = words[1:3] if words[1] in ("truth", "inputs") else words[1:2]
        name = " ".join(word for word in command if re.fullmatch(r"[a-z]+", word))
        if name not in known:
            helped = CliRunner().invoke(app, [*name.split(), "--help"], terminal_width=200)
            assert helped.exit_code == 0, line
            known[name] = helped.output
        for option in re.findall(r"(?<= )--[a-z-]+", line):
            assert option in known[name], line
