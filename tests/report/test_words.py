"""The answer: what it says when one wins, several do, or none."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from longshot.report.evidence import Evidence, gather
from longshot.report.words import answer, winner
from tests.report.synthetic import make_evidence, make_run


def with_losses(evidence: Evidence, losses: dict[str, tuple[float, ...]]) -> Evidence:
    """The same with each method's losses, one for each distribution, set by hand."""
    outcomes = dict(evidence.outcomes)
    for (model, inputs, label), outcome in evidence.outcomes.items():
        if label in losses:
            value = losses[label][evidence.inputs.index(inputs)]
            parts = outcome.score.losses
            each = replace(parts["is"].left_out, losses=np.full(outcome.score.targets, value))
            part = replace(parts["is"], mean=value, left_out=each)
            score = replace(outcome.score, losses={**parts, "is": part})
            outcomes[model, inputs, label] = replace(outcome, score=score)
    return replace(evidence, outcomes=outcomes)


def test_the_winner_is_the_lowest_mean() -> None:
    """Neither the best of single distributions, nor the lowest median, nor the first listed."""
    inputs = ("hex", "camel", "caps")
    evidence = make_evidence(make_run(("m",), inputs, ("naive", "qld", "itgis", "mhis"), 6))
    losses = {"naive": (0.5, 0.5, 1.3), "qld": (0.1, 0.2, 2.0), "itgis": (0.7, 0.7, 0.7)}
    shown = with_losses(evidence, {**losses, "mhis": (0.9, 0.8, 0.9)})
    assert winner(shown, "m", "is") == "itgis"
    assert winner(shown, "m", "is", ["hex", "camel"]) == "qld"
    lower = with_losses(shown, {"mhis": (0.6, 0.6, 0.6)})
    assert winner(lower, "m", "is") == "mhis"
    part = {key: o for key, o in lower.outcomes.items() if key[1:] != ("caps", "mhis")}
    assert winner(replace(lower, outcomes=part), "m", "is") == "itgis"


def test_one_winner_is_named_with_its_lead_and_cost() -> None:
    said = answer(make_evidence(make_run(models=("mini-1l",), targets=40)))
    assert said.headline.startswith("itgis is closest to the truth on mini-1l: a mean loss of 0.")
    assert "for the best constant" in said.headline
    text = " ".join(said.details)
    assert "of 8" in text
    assert "behind (paired by target)" in text
    assert "Development and test distributions" in text
    assert "multiply-accumulates on mini-1l" in text


def test_a_headline_says_no_more_than_paired_differences_support() -> None:
    inputs = ("hex", "camel", "caps")
    evidence = make_evidence(make_run(("m",), inputs, ("itgis", "mhis"), 6))
    clear = with_losses(evidence, {"itgis": (0.05, 0.06, 0.07), "mhis": (0.08, 0.09, 0.101)})
    assert answer(clear).headline.startswith("itgis is closest to the truth on m")
    close = with_losses(evidence, {"itgis": (0.05, 0.06, 0.07), "mhis": (0.09, 0.04, 0.08)})
    assert answer(close).headline.startswith("itgis and mhis are too close to call on m")
    lucky = with_losses(close, {"constant": (0.06, 0.06, 0.07)})
    assert answer(lucky).headline.startswith("No method clearly beats the best constant on m")


def test_different_winners_are_named_with_their_models() -> None:
    said = answer(make_evidence(make_run(targets=40)))
    assert "depends on the model" in said.headline
    assert all(model in said.headline for model in ("mini-1l", "mini-2l", "mini-4l"))


def test_winners_that_are_not_clear_of_each_other_do_not_depend_on_the_model() -> None:
    evidence = make_evidence(make_run(("m", "n"), ("hex", "caps"), ("itgis", "mhis"), 6))
    parts = {}
    for model, lower, higher in (("m", "itgis", "mhis"), ("n", "mhis", "itgis")):
        near = with_losses(evidence, {lower: (0.05, 0.07), higher: (0.09, 0.04)})
        parts |= {key: o for key, o in near.outcomes.items() if key[0] == model}
    said = answer(replace(evidence, outcomes=parts)).headline
    assert said == "itgis and mhis are too close to call on m and n."


def test_where_nothing_hits_nothing_beats_the_constant() -> None:
    said = answer(gather(make_run(("m",), ("hex",), ("naive", "itgis"), 6, zeros=True)))
    assert said.headline.startswith("No method clearly beats the best constant on m")


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
