"""The answer: what it says when one wins, several do, or none."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from longshot.report.evidence import gather
from longshot.report.words import answer, winner
from tests.report.synthetic import make_evidence, make_run


def test_the_winner_is_the_lowest_mean() -> None:
    evidence = make_evidence(make_run(targets=20))
    for model in evidence.models:
        means = {m: evidence.over_inputs(model, m, "is").value or 9 for m in evidence.methods}
        assert winner(evidence, model, "is") == min(means, key=lambda m: means[m])


def test_one_winner_is_named_with_its_lead_and_cost() -> None:
    said = answer(make_evidence(make_run(models=("mini-1l",), targets=40)))
    assert said.headline.startswith("itgis is closest to the truth on mini-1l: a mean loss of 0.")
    assert "for the best constant" in said.headline
    text = " ".join(said.details)
    assert "of 8" in text
    assert "behind (paired by cell)" in text
    assert "Development and test distributions" in text
    assert "multiply-accumulates on mini-1l" in text


def test_different_winners_are_named_with_their_models() -> None:
    said = answer(make_evidence(make_run(targets=40)))
    assert "depends on the model" in said.headline
    assert all(model in said.headline for model in ("mini-1l", "mini-2l", "mini-4l"))


def test_where_nothing_hits_nothing_beats_the_constant() -> None:
    said = answer(gather(make_run(("m",), ("hex",), ("naive", "itgis"), 6, zeros=True)))
    assert said.headline.startswith("No method beats the best constant on m")


def test_a_method_that_never_hit_is_no_candidate() -> None:
    """After the fit it is a constant, and here that is better than what the other says."""
    run = make_run(("m",), ("hex",), ("naive", "itgis"), 12)
    guess = random.Random(1)
    rows = []
    for row in run.rows:
        assert row.estimate is not None
        log_p = -math.inf if row.key.method == "naive" else guess.gauss(-12, 3)
        rows.append(replace(row, estimate=replace(row.estimate, log_probability=log_p)))
    evidence = gather(replace(run, rows=tuple(rows)))
    naive, itgis = (evidence.over_inputs("m", m, "is").value or 0 for m in ("naive", "itgis"))
    assert naive < itgis
    assert winner(evidence, "m", "is") == "itgis"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rows": False}, "no estimate was stored yet"),
        ({"failed": True}, "all 48 attempts failed"),
        ({"targets": 1}, "needs two targets"),
    ],
)
def test_what_cannot_be_compared_is_said(options: dict[str, object], sentence: str) -> None:
    arguments = {"models": ("m",), "inputs": ("hex", "icl"), "targets": 4, **options}
    assert sentence in answer(gather(make_run(**arguments))).headline
