"""Past failures never come back: the corpus, the attacks that worked once, and some new cases."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
from pathlib import Path

import pytest

from longshot.errors import LongshotError
from tests.fuzz.attacks import ATTACKS, attack
from tests.fuzz.kinds import KINDS
from tests.fuzz.worker import _good, one_case, outcome

CORPUS = Path(__file__).parent / "corpus"
"""Folders named KIND-…, each with all that its file is read with."""


def test_attacks_that_worked_once_do_no_harm(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=attack, args=(tmp_path, theirs))
    process.start()
    theirs.close()
    told = {}
    try:
        while ours.poll(60):
            name, came, most = ours.recv()
            told[name] = (came, most < 100)
    except EOFError:
        pass
    process.kill()
    process.join()
    allowed = {"cut texts": "the same", "padding": "the same"}  # neither is asked for
    assert told == {name: (allowed.get(name, "refused"), True) for name in ATTACKS}


@pytest.mark.parametrize("name", ["config", "tokenizer", "template", "study", "table", "store"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    kind.make(tmp_path)
    (tmp_path / kind.file).unlink()
    os.mkfifo(tmp_path / kind.file)
    with pytest.raises(LongshotError, match=r"no regular file|There is no|no tokenizer"):
        kind.read(tmp_path / kind.file)


@pytest.mark.parametrize("folder", sorted(CORPUS.iterdir()), ids=lambda folder: folder.name)
def test_a_file_that_failed_once_is_read_or_refused(folder: Path, tmp_path: Path) -> None:
    name = max((n for n in KINDS if folder.name.startswith(n)), key=len)
    good = _good(KINDS[name], tmp_path / "good")
    shutil.copytree(folder, tmp_path / "spoilt")
    told = outcome(KINDS[name], good, tmp_path / "spoilt" / KINDS[name].file, True)
    assert told["outcome"] in ("refused", "read", "the same"), told["what"]


@pytest.mark.parametrize("name", KINDS)
def test_spoilt_files_are_refused_or_harmless(name: str, tmp_path: Path) -> None:
    kind, came = KINDS[name], []
    good = _good(kind, tmp_path / "good")
    for case in range(40):
        draw = random.Random(f"{name} {case}")
        told = one_case(kind, good, tmp_path / "good", tmp_path / "spoilt", draw)
        assert told["outcome"] in ("refused", "read", "the same"), (case, told["what"])
        came.append(told["outcome"])
    assert "refused" in came


def test_a_believed_file_would_be_seen(tmp_path: Path) -> None:
    """Negative control: a sealed file that reads otherwise is a finding unless it was forged."""
    kind = KINDS["table"]
    _good(kind, tmp_path)
    assert outcome(kind, "other", tmp_path / kind.file, False)["outcome"] == "believed"
    assert outcome(kind, "other", tmp_path / kind.file, True)["outcome"] == "read"
