"""`longshot estimate` and `longshot methods`, run for real."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app
from longshot.errors import LongshotError
from longshot.estimate import Estimate, Job
from longshot.methods import METHODS, Splitting

QUESTION = ["estimate", "--model", "mini-1l", "--inputs", "camel", "--budget", "512"]


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, [*QUESTION, *arguments], catch_exceptions=False).output


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"exact"}))
def test_every_method_answers_in_a_panel(method: str) -> None:
    more = ["--budget", "2k"] if method == "given_last" else []
    shown = run("--target", "quence", "--method", method, *more)
    assert "'quence' after camel on mini-1l" in shown
    assert "probability" in shown
    assert "interval" in shown or "upper bound" in shown
    assert "multiply-accumulates" in shown


def test_json_is_the_estimate_itself() -> None:
    answer = json.loads(run("--target", "quence", "--json"))
    assert answer["method"] == "auto"
    assert answer["budget"] == 512
    assert answer["interval_kind"] in ("two-sided", "upper bound")


def test_a_question_can_be_asked_again_and_of_every_method() -> None:
    found = json.loads(run("--target", "#84", "--repeat", "2", "--json"))
    assert [answer["seed"] for answer in found] == [0, 1]
    assert "seed 1" in run("--target", "#84", "--repeat", "2")
    asked = ["compare-methods", "mini-1l", "camel", "#84", "--budget", "600"]
    shown = CliRunner().invoke(app, asked, catch_exceptions=False).output
    assert "exact cannot answer" in shown
    assert all(name in shown for name in ("splitting", "mhis", "gld"))


def test_an_interrupted_question_says_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the second round: the first one's answer, and that it was stopped."""
    rounds = Splitting.rounds

    def interrupted(self: Splitting, job: Job) -> Iterator[Estimate]:
        yield next(rounds(self, job))
        raise KeyboardInterrupt

    monkeypatch.setattr(Splitting, "rounds", interrupted)
    shown = run("--target", "quence", "--method", "splitting", "--set", "relative_error=0.01")
    assert "It was stopped before it was done." in shown
    assert "probability" in shown


def test_settings_and_token_ids_and_sets() -> None:
    asked = ["--target", "#84", "--target", "ers", "--method", "itgis", "--set", "temperature=0.5"]
    answer = json.loads(run(*asked, "--json"))
    assert answer["settings"]["temperature"] == 0.5
    assert answer["event"] == "token:84,448"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Name a target"),
        (["--target", "quences"], "is 2 tokens: .* in a shell --continuation"),
        (["--target", "ers", "--continuation", "ers of"], "Name only one of --target"),
        (["--target", "ers", "--within", "3"], "--within belongs to --matches and --judge-prompt"),
        (["--target", "ers", "--climb", "ers"], "--climb belongs to --matches"),
        (
            ["--target", "ers", "--method", "itgis", "--set", "temperature=abc"],
            "should be a valid number",
        ),
        (
            ["--target", "ers", "--method", "itgis", "--set", "score=gop"],
            "should be 'logit' or 'gap', not 'gop'",
        ),
    ],
)
def test_first_mistakes(arguments: list[str], sentence: str) -> None:
    with pytest.raises(LongshotError, match=sentence):
        run(*arguments)


def test_events_beyond_one_token() -> None:
    shown = run("--continuation", "quence of", "--method", "naive")
    assert "'quence of' (" in shown
    found = run("--matches", "[a-z]", "--within", "2", "--climb", "ers", "--json")
    answer = json.loads(found)
    assert answer["event"].startswith("matches:2:[a-z] climbing ")
    assert answer["hits"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Name a target"),
        (("--target", "quence", "--continuation", "quence"), "one of"),
        (("--matches", "a", "--method", "itgis"), "climb"),
        (("--continuation", "quence of", "--method", "qld"), "single token"),
        (("--target", "quence", "--method", "itgs"), "itgis"),
        (("--target", "quence", "--set", "temperature"), "NAME=VALUE"),
        (("--target", "quence", "--set", "relativ_error=1"), "relative_error"),
        (("--target", "two tokens at least"), "tokens"),
        (("--target", "quence", "--budget", "0"), "budget"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(LongshotError, match=sentence):
        run(*arguments)


def test_methods_are_listed_with_their_settings() -> None:
    rows = json.loads(CliRunner().invoke(app, ["methods", "--json"]).output)
    assert {row["name"] for row in rows} == set(METHODS)
    assert all(row["summary"] for row in rows)
