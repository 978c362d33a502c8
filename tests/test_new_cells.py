"""Inputs that are no product and events beyond the greedy next token, by splitting, exact and auto.

The truth is an enumeration by hand, made in the tests of the inputs and of the events.
"""

from __future__ import annotations

import pytest
import torch

import longshot as ls
from longshot.evaluate import Enumeration, outcomes
from longshot.events import as_event
from longshot.inputs import Finite
from longshot.testing import toy_model
from tests.inputs.test_generated import WRITER, make
from tests.inputs.test_slots import EVENTS
from tests.inputs.test_slots import exact as exact_on_slots
from tests.inputs.test_slots import toy as slots
from tests.test_judged import EVENT as JUDGED
from tests.test_judged import truth as judged_truth
from tests.test_sampled import QUESTIONS, TAU
from tests.test_sampled import exact as exact_when_sampled

MODEL = toy_model(2, context=12, dtype=torch.float64)  # that of the tests named above


def close(answers: list[ls.Estimate], truth: float) -> bool:
    """Whether all but one of the intervals hold the truth; an exact one has no width."""
    slack, intervals = 1e-6 * truth, [answer.interval for answer in answers if answer.interval]
    held = [low - slack <= truth <= high + slack for low, high in intervals]
    return sum(held) >= len(answers) - 1


def ask(inputs: Finite, event: object, method: str, seeds: int = 4) -> list[ls.Estimate]:
    return [
        ls.estimate(MODEL, inputs, event, method=method, budget=4000, seed=seed)
        for seed in range(seeds)
    ]


@pytest.mark.parametrize("wanted", EVENTS, ids=str)
def test_slots(wanted: object) -> None:
    truth = exact_on_slots(slots(), as_event(wanted, MODEL))
    (found,) = ask(slots(), wanted, "exact", 1)
    assert found.probability == pytest.approx(truth, abs=1e-9)
    assert ask(slots(), wanted, "auto", 1)[0].probability == pytest.approx(truth, abs=1e-9)
    assert close(ask(slots(), wanted, "splitting"), truth)


@pytest.mark.parametrize("question", QUESTIONS)
def test_sampled_outputs(question: str) -> None:
    event, bad, steps = QUESTIONS[question]
    truth, warm = exact_when_sampled("slots", bad(MODEL), steps), ls.Sampled(event, TAU)
    assert close(ask(slots(), warm, "auto"), truth)
    if question == "match":
        with pytest.raises(ls.LongshotError, match="splitting needs a score of inputs that miss"):
            ask(slots(), warm, "splitting")
        with pytest.raises(ls.LongshotError, match="exact needs inputs that can be listed"):
            ask(slots(), warm, "exact")
        return
    assert ask(slots(), warm, "exact", 1)[0].probability == pytest.approx(truth, rel=1e-6)
    assert close(ask(slots(), warm, "splitting"), truth)


def test_judged_outputs() -> None:
    truth = judged_truth()
    assert ask(slots(), JUDGED, "exact", 1)[0].probability == pytest.approx(truth, abs=1e-9)
    assert close(ask(slots(), JUDGED, "splitting"), truth)
    warm = ls.Sampled(JUDGED, 0.7)
    plain = ls.estimate(MODEL, slots(), warm, method="naive", budget=40_000)
    assert plain.standard_error is not None
    for answer in ask(slots(), warm, "splitting", 3):
        assert answer.interval is not None
        low, high = answer.interval
        assert (
            low - 3 * plain.standard_error <= plain.probability <= high + 3 * plain.standard_error
        )


@pytest.mark.parametrize("kind", ["plain", "around"])
def test_generated_inputs(kind: str) -> None:
    inputs, generated = make(kind), ls.GeneratedInputs
    arguments = {"before": [0, 3], "after": [2, 4], "temperature": 1.5} if kind == "around" else {}
    unlisted = generated(kind, WRITER, [0, 1], 3, **arguments)
    for token in range(1, 5):
        event, truth = as_event(token, WRITER), 0.0
        for leaves in Enumeration(WRITER, inputs):
            found = outcomes(WRITER, event, leaves.activation, leaves.go_on)
            truth += float(leaves.log_prob[found.rows].exp().sum())
        if not 1e-4 < truth < 1:
            continue
        for method in ("auto", "splitting"):
            answers = [
                ls.estimate(WRITER, unlisted, event, method=method, budget=4000, seed=seed)
                for seed in range(4)
            ]
            assert close(answers, truth)
