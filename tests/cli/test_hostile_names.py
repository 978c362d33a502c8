"""Names that are not ours reach neither rich's markup nor the terminal; answers are not lost."""

from __future__ import annotations

import errno
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from rich.text import Text

import longshot as ls
from longshot.cli import main
from longshot.cli.app import PlainConsole
from longshot.cli.estimate import _body
from longshot.errors import visible
from longshot.estimate import Estimate
from longshot.models.checkpoints import ZOO
from longshot.report.question import _headline, _interval
from tests.checkpoint_files import write_config_and_weights
from tests.toys import toy_network

NASTY = "[/x]\x1b[2J\u202egnp\n[red]:smile:"
SHOWN = r"[/x]\x1b[2J\u202egnp\n[red]:smile:"
TEMPLATE = """
[inputs]
name = "{name}"
text = "I {{word}}"
[slots.word]
choices = [" am", " was", " have"]
"""


class Ran:
    """What a command printed and left with."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        before, sys.argv = sys.argv, ["longshot", *map(str, arguments)]
        try:
            main.run()
            self.code: Any = 0
        except SystemExit as left:
            self.code = left.code
        finally:
            sys.argv = before
        self.out, self.err = capsys.readouterr()

    @property
    def clean(self) -> bool:
        """Nothing but lines of what prints."""
        return all(line.isprintable() for line in (self.out + self.err).split("\n"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in a folder of a nasty name, whose special tokens have nasty names too."""
    folder = tmp_path_factory.mktemp("models") / NASTY
    write_config_and_weights(folder, toy_network(layers=1, vocab=4200, context=40))
    words = tokenizers.Tokenizer.from_file(str(ZOO / "tokenizer.json"))
    words.add_special_tokens([tokenizers.AddedToken(f"<{NASTY}>", special=True)])
    words.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / f"{NASTY}.toml"
    path.parent.mkdir()
    path.write_text(TEMPLATE.format(name="[/x] [red]:smile:"))
    return path


def test_what_does_not_print_is_shown_by_its_escape() -> None:
    assert visible(NASTY) == SHOWN
    assert visible("plain ünïcödé 漢字") == "plain ünïcödé 漢字"


def test_every_command_takes_any_name(
    model: Path, template: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, run, study = tmp_path / f"{NASTY}.sqlite", tmp_path / NASTY, tmp_path / "study.toml"
    study.write_text(
        'name = "s"\nmodels = ["mini-1l"]\ninputs = ["icl"]\n[targets]\ncount = 2\n'
        "[methods.naive]\nbudget = 64\n"
    )
    here = ("--model", model, "--inputs", template)
    special = 4096
    for arguments, code in (
        (("inputs", "--model", model), 0),
        (("inputs", "show", "--file", template, "--model", model), 0),
        (("estimate", *here, "--target", f"#{special}", "--budget", 64), 0),
        (("estimate", *here, "--target", " am", "--method", NASTY), 2),
        (("estimate", *here, "--target", NASTY), 2),
        (("estimate", "--model", tmp_path / NASTY / NASTY, "--target", " am"), 2),
        (("truth", "make", *here, "--until", "64 leaves", "--store", store), 0),
        (("truth", "show", store), 0),
        (("truth", "table", store), 0),
        (("truth", "export", "--store", store, "--to", tmp_path / "tables"), 0),
        (("truth", "merge", tmp_path / "other.sqlite", store), 0),
        (("truth", "show", tmp_path / NASTY / NASTY), 2),
        (("run", study, "--out", run), 0),
        (("run", study, "--out", run, "--only", NASTY.replace("\n", "")), 2),
        (("score", run), 0),
        (("compare", run, run), 0),
        (("report", run, "--format", "md"), 0),
        (("report", run, "--format", NASTY), 2),
        (("score", tmp_path / NASTY / NASTY), 2),
        (("witnesses", tmp_path / NASTY / NASTY), 2),
    ):
        ran = Ran(capsys, *arguments)
        assert (arguments, ran.code, ran.clean) == (arguments, code, True), ran.err
    assert [path.name[:2] for path in (tmp_path / "tables").iterdir()] == ["x-"]
    text = (run / "report" / "report.md").read_text()
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_template_or_a_study_of_a_name_that_does_not_print_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.toml"
    path.write_text(TEMPLATE.format(name="a\\nb"))
    ran = Ran(capsys, "inputs", "show", "--file", path, "--model", model)
    assert ran.code == 2
    assert "do not print" in ran.err


def test_a_template_cannot_write_outside_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, store = tmp_path / "t.toml", tmp_path / "store.sqlite"
    path.write_text(TEMPLATE.format(name="x/../../../y"))
    goal = ("--until", "64 leaves", "--store", store)
    assert Ran(capsys, "truth", "make", "--model", "mini-1l", "--inputs", path, *goal).code == 0
    tables = tmp_path / "a" / "b"
    assert Ran(capsys, "truth", "export", "--store", store, "--to", tables).code == 0
    assert [path.parent for path in tmp_path.rglob("*.safetensors")] == [tables]


def tiny(**change: Any) -> Estimate:
    facts: dict[str, Any] = {
        "method": "itgis", "settings": {}, "event": "e", "seed": 0, "budget": 64,
        "log_probability": -1103.0, "hits": 83, "interval": (0.0, 0.0),
    }  # fmt: skip
    return Estimate(**(facts | change))


def test_a_probability_below_the_smallest_double_is_no_miss() -> None:
    shown = "\n".join(str(line) for line in _body(tiny()).renderables)
    assert "no hit" not in shown
    assert "e-480 (its logarithm is -1103.0)" in shown
    assert "0 … 0" not in shown + _interval(tiny())
    assert "e-480" in _headline(tiny())
    assert _headline(tiny(log_probability=-math.inf, hits=0)) == "no hit"
    assert "no hit" in str(_body(tiny(log_probability=-math.inf, hits=0)).renderables[0])


def test_a_page_that_cannot_be_written_costs_no_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    asked = ("estimate", "--target", " but", "--budget", "64", "--html")
    with monkeypatch.context() as patch:
        patch.setattr("longshot.cli.estimate.ask", lambda *a, **k: pytest.fail("worked"))
        for place in (tmp_path / "file" / "page.html", tmp_path, Path("/proc/no/page.html")):
            assert Ran(capsys, *asked, place).code == 2


def test_an_answer_is_printed_before_its_page_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a page that was there before stays whole."""
    page, write = tmp_path / "page.html", Path.write_bytes
    page.write_text("good")

    def full(path: Path, raw: bytes) -> int:
        if len(raw) > 1:
            write(path, raw[: len(raw) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, raw)

    monkeypatch.setattr(Path, "write_bytes", full)
    asked = ("estimate", "--target", " but", "--budget", "64", "--html", page, "--json")
    ran = Ran(capsys, *asked)
    assert ran.code == 2
    assert "No space left" in ran.err
    assert json.loads(ran.out)["budget"] == 64
    assert page.read_text() == "good"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_console_lets_no_escape_through(capsys: pytest.CaptureFixture[str]) -> None:
    PlainConsole().print(Text(f"a{NASTY}"), f"b{NASTY}")
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


def test_a_models_name_prints(model: Path) -> None:
    assert ls.load_model(model).name == SHOWN.split("/")[1]
