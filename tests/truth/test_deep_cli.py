"""`longshot truth deepen`, `certificates` and `check`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app
from longshot.errors import LongshotError
from longshot.truth import load_truth, pick_certified


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["truth", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_shipped_certificates_are_listed_and_counted() -> None:
    table = said("certificates")
    assert "| mini-1l | hex |" in table
    records = json.loads(said("certificates", "--json"))
    certified = [r for r in records if r["refusal"] is None]
    assert len(certified) > 100
    assert all(1e-11 < r["probability"] < 1e-4 for r in certified)
    assert all(r["relative_error"] <= 0.25 and abs(r["apart"]) <= 3 for r in certified)
    assert len({(r["model"], r["inputs"]) for r in certified}) >= 7
    assert said("certificates", "--names").count("\n") == len(records)


def test_the_shipped_truth_is_checked_by_plain_samples() -> None:
    """Each half as it ships agrees with the plain samples of the other, in every cell.

    With true errors a cell of 100 tokens would leave ±0.3 or 0.7 … 1.4 in one of 150 cases, so some
    20 of them together sound a false alarm in one of seven; tables do not change between two runs.
    """
    rows = [line.split("|") for line in said("check").splitlines()[2:]]
    assert len(rows) == 24
    large = [row for row in rows if int(row[-5]) >= 100]
    assert len(large) >= 20
    for *_, mean, square, within, _ in large:
        assert abs(float(mean)) <= 0.3
        assert 0.7 <= float(square) <= 1.4
        assert int(within.strip(" %")) >= 90


def test_certified_targets_are_chosen_on_half_a_and_judged_by_their_certificates() -> None:
    truth = load_truth("mini-1l", "hex")
    picked = pick_certified(truth, 1e-9, 1e-5, 10)
    assert len(picked.tokens) == 10
    assert picked.qualified >= 20
    by_token = {found.token: found for found in truth.certificates}
    for token in picked.tokens:
        assert by_token[token].is_certified
        assert float(picked.judge.probability[token]) == by_token[token].probability
    assert picked.noise_floor.itakura_saito < 0.03
    with pytest.raises(LongshotError, match="truth deepen mini-1l hex"):
        pick_certified(truth, 1e-20, 1e-19, 10)


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    for arguments, sentence in (
        (("deepen", "mini-1l", "hex", "--range", "1e-5:1e-9"), "No probability lies between"),
        (("deepen", "mini-1l", "hex", "--per-decade", "0"), "At least one token a decade"),
        (("certificates", str(tmp_path)), "No cell has certificates"),
        (("check", str(tmp_path)), "No cell has plain samples to compare with"),
    ):
        with pytest.raises(LongshotError, match=sentence):
            said(*arguments)
