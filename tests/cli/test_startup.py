"""What answers at once: help, version, mistakes and completion load nothing that is heavy."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import longshot
from longshot import names
from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app
from longshot.inputs import CATALOGUE
from longshot.methods import METHODS
from longshot.models import available
from longshot.study.spec import PRESETS
from longshot.threads import SMALL, ask_for_threads, threads_for
from longshot.truth import tally

SCRIPT = Path(sys.executable).with_name("longshot")
HEAVY = {"torch", "numpy", "scipy", "altair", "safetensors", "tokenizers"}
WATCHED = """
import sys
sys.argv[0] = "longshot"
from longshot.cli.main import run
try:
    run()
finally:
    heavy = sorted({name.split(".")[0] for name in sys.modules} & %r)
    assert not heavy, heavy
"""


def watched(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process that fails where it has loaded something heavy."""
    return subprocess.run(
        [sys.executable, "-c", WATCHED % HEAVY, *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip


COMMANDS = ["", *(command.name or command.callback.__name__ for command in app.registered_commands)]  # type: ignore[union-attr]


@pytest.mark.parametrize("command", [*COMMANDS, "truth", "truth make"])
def test_help_loads_nothing_heavy(command: str) -> None:
    done = watched(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: longshot" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--version"], longshot.__version__),
        (["estmate"], "no command named 'estmate'; did you mean 'estimate'?"),
        (["estimate", "--modle", "x"], "No such option"),
        (["estimate", "--target", "ail", "--budget", "many"], "is no number of calls"),
        (["estimate"], "Name a target"),
    ],
)
def test_a_version_and_a_mistake_load_nothing_heavy(arguments: list[str], said: str) -> None:
    done = watched(*arguments)
    assert "AssertionError" not in done.stderr
    assert said in done.stdout + done.stderr
    assert done.returncode == (0 if arguments == ["--version"] else 2)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("longshot est", {"estimate"}),
        ("longshot estimate --model mini-", set(names.ZOO_NAMES)),
        ("longshot estimate --inputs c", {"camel", "colon", "caps"}),
        ("longshot estimate --method m", {"mhis"}),
        ("longshot run --preset s", {"smoke"}),
        ("longshot truth make --kind b", {"brute"}),
        ("longshot report x --format p", {"png", "pdf"}),
        ("longshot inputs s", {"show", "spanish"}),
        ("longshot estimate --bud", {"--budget"}),
    ],
)
def test_commands_options_and_values_complete(line: str, offered: set[str]) -> None:
    words = shlex.split(line)
    done = watched(
        _LONGSHOT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)
    )
    assert "AssertionError" not in done.stderr
    assert set(done.stdout.split()) == offered


def test_the_names_are_what_the_package_knows() -> None:
    assert names.model_names() == [row.name for row in available()]
    assert tuple(CATALOGUE) == names.INPUTS
    assert {*names.METHODS} == {*METHODS}
    assert names.KINDS == tally.KINDS
    assert names.preset_names() == sorted(path.stem for path in PRESETS.glob("*.toml"))


def test_the_package_is_light_and_all_its_names_are_there() -> None:
    code = (
        "import sys, longshot; assert 'torch' not in sys.modules\n"
        "import longshot.estimate\n"  # the submodule must not hide the verb
        "missing = [n for n in longshot.__all__ if not hasattr(longshot, n)]; assert not missing\n"
        "assert callable(longshot.estimate) and 'estimate' in dir(longshot)\n"
        "from longshot import *\n"
        "assert callable(estimate) and __version__\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'estimte'"):
        longshot.estimte  # type: ignore[attr-defined]  # noqa: B018


def test_a_small_model_gets_one_thread_and_gives_the_others_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads_for(SMALL):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with threads_for(SMALL + 1):
            assert torch.get_num_threads() == 2
        ask_for_threads(3)
        with threads_for(SMALL):
            assert torch.get_num_threads() == 3
        seen: list[int] = []
        ask_for_threads(None)
        longshot.estimate(
            "mini-1l", "camel", 84, method="naive", budget=64,
            progress=lambda share: seen.append(torch.get_num_threads()),
        )  # fmt: skip
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        ask_for_threads(None)
        torch.set_num_threads(before)


def test_the_example_in_the_help_gives_an_answer() -> None:
    text = CliRunner().invoke(app, ["estimate", "--help"], terminal_width=200).output
    (example,) = re.findall(r"Example: longshot (estimate .*?)\s*$", text, re.M)
    shown = CliRunner().invoke(app, shlex.split(example), catch_exceptions=False).output
    assert "95% interval" in shown
    assert "witness" in shown


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (["--help"], {}, "Usage: longshot"),
        (["--version"], {}, longshot.__version__),
        (["estmate"], {}, "did you mean 'estimate'?"),
        (
            [],
            {"_LONGSHOT_COMPLETE": "complete_bash", "COMP_WORDS": "longshot es", "COMP_CWORD": "1"},
            "estimate",
        ),
    ],
)
def test_what_answers_at_once_takes_under_four_tenths_of_a_second(
    arguments: list[str], environment: dict[str, str], said: str
) -> None:
    """Of processor time, the least of seven: what else runs on the machine costs some too."""
    spent = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [SCRIPT, *arguments],  # completion knows it by this name
            capture_output=True, text=True, check=False, env={**os.environ, **environment},
        )  # fmt: skip
        assert said in done.stdout + done.stderr
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(f"{shlex.join(arguments) or 'completion'}: {min(spent):.2f} s")
    assert min(spent) < 0.4
