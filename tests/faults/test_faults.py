"""Every file operation of every command that writes may fail: nothing that was done is lost.

Each case: the command with one fault in it, a look at what is there, the command again without a
fault, and its data are those of a command that nothing disturbed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.commands import COMMANDS, prepare
from tests.faults.trial import tried

SOME = {"truth": 4, "study": 4, "report": 2, "estimate": 6, "export": 10}
"""Points that are tried here; `python -m tests.faults` tries every one."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "prepared"
    folder.mkdir()
    prepare(folder)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_some_faults_lose_nothing(name: str, prepared: Path) -> None:
    points, *_ = tried(name, prepared, SOME[name], seed=0)
    assert points > 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("name", COMMANDS)
def test_more_faults_lose_nothing(name: str, seed: int, prepared: Path) -> None:
    """Other faults at other points; `python -m tests.faults` tries each at every point."""
    points, *_ = tried(name, prepared, 2 * SOME[name], seed)
    assert points > 10
