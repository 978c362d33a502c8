from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import longshot
from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.methods import make_method
from longshot.models import Model

INPUTS = ProductInputs(
    "short",
    [
        TokenDistribution.fixed(0),
        *[TokenDistribution.from_weights([1, 2, 3, 6], [4, 3, 2, 1])] * 3,
    ],
)


def timeless(estimate: Estimate) -> Estimate:
    """Without the seconds it took, which no two runs share."""
    cost, shared = (replace(c, seconds=0.0) for c in (estimate.cost, estimate.shared_cost))
    return replace(estimate, cost=cost, shared_cost=shared)


def test_one_event_is_many_of_one(toy: Model) -> None:
    one = longshot.estimate(toy, INPUTS, "c", method="naive", budget=64, seed=3)
    (same,) = longshot.estimate_many(toy, INPUTS, ["c"], method="naive", budget=64, seed=3)
    assert timeless(one) == timeless(same)
    assert (one.event, one.seed, one.budget, one.method) == ("token:3", 3, 64, "naive")
    assert one.cost + one.shared_cost != Cost()
    other = longshot.estimate(toy, INPUTS, "c", method="naive", budget=64, seed=4)
    assert timeless(other) != timeless(one)


def test_events_come_back_in_order_and_none_is_no_work(toy: Model) -> None:
    events = ["c", 1, ["a", 4]]
    answers = longshot.estimate_many(toy, INPUTS, iter(events), method="naive", budget=16)
    assert [a.event for a in answers] == ["token:3", "token:1", "token:1,4"]
    assert longshot.estimate_many(toy, INPUTS, [], method="naive", budget=16) == []


def test_settings_reach_the_method_by_name_or_in_the_object(toy: Model) -> None:
    by_name = longshot.estimate(toy, INPUTS, 3, method="itgis", budget=64, temperature=2.5)
    method = make_method("itgis", temperature=2.5)
    by_object = longshot.estimate(toy, INPUTS, 3, method=method, budget=64)
    assert by_name.settings["temperature"] == 2.5
    assert timeless(by_name) == timeless(by_object)
    with pytest.raises(LongshotError, match="itgis brings its own settings; give temperature"):
        longshot.estimate(toy, INPUTS, 3, method=method, budget=64, temperature=1.0)


@pytest.mark.parametrize("budget", [0, -5, True, 10**12, 2**63])
def test_a_budget_is_a_number_of_calls(toy: Model, budget: int) -> None:
    with pytest.raises(LongshotError, match=rf"model calls up to .*, not {budget}\."):
        longshot.estimate(toy, INPUTS, 3, method="naive", budget=budget)


WRONG = {
    "seed=1.5": "The seed is a whole number of at most 63 bits, not 1.5.",
    "seed=None": "The seed is a whole number of at most 63 bits, not None.",
    "seed='one'": "The seed is a whole number of at most 63 bits, not 'one'.",
    "method=None": "A method is a name or a method, not None.",
    "model=None": "A model is a name, a path or a model, not None.",
    "inputs=None": "Inputs are a name, a .toml file or inputs, not None.",
    "event=None": "A token is a text or a whole number, not None.",
}


def test_what_is_of_the_wrong_kind_is_one_sentence() -> None:
    """As a user meets it, without the type checks of the tests."""
    script = (
        "import longshot\n"
        "usual = dict(model='mini-1l', inputs='hex', event=3, method='naive', budget=8)\n"
        f"for wrong in ({', '.join(f'dict({wrong})' for wrong in WRONG)}):\n"
        "    try:\n"
        "        longshot.estimate(**(usual | wrong))\n"
        "    except longshot.LongshotError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines() == list(WRONG.values()), done.stderr


def test_a_misspelt_method_or_setting_gets_the_nearest(toy: Model) -> None:
    with pytest.raises(LongshotError, match="no method named 'itgsi'; did you mean 'itgis'"):
        longshot.estimate(toy, INPUTS, 3, method="itgsi")
    with pytest.raises(LongshotError, match=r"known: .*naive"):
        longshot.estimate(toy, INPUTS, 3, method="zzzz")
    with pytest.raises(LongshotError, match=r"setting of itgis .*did you mean 'temperature'"):
        longshot.estimate(toy, INPUTS, 3, method="itgis", temprature=1.0)


def test_bad_events_and_inputs_are_told_before_any_work(toy: Model) -> None:
    with pytest.raises(LongshotError, match="list of events, not the text 'abc'"):
        longshot.estimate_many(toy, INPUTS, "abc", method="naive")
    with pytest.raises(LongshotError, match="outside toy-0's vocabulary"):
        longshot.estimate(toy, INPUTS, 99, method="naive")
    foreign = ProductInputs("foreign", [TokenDistribution.from_weights([1, 50], [1, 1])])
    with pytest.raises(LongshotError, match=r"'foreign' use token 50, .* embeds only 8"):
        longshot.estimate(toy, foreign, 3, method="naive", budget=4)
    with pytest.raises(LongshotError, match="no model named 'mini-2'; did you mean 'mini-2l'"):
        longshot.estimate("mini-2", "camel", 3)


def test_progress_runs_from_something_to_one(toy: Model) -> None:
    seen: list[float] = []
    longshot.estimate_many(toy, INPUTS, [1, 3], method="itgis", budget=64, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)


def test_names_and_objects_are_the_same() -> None:
    model = longshot.load_model("mini-1l")
    inputs = longshot.load_inputs("camel", model)
    by_object = longshot.estimate(model, inputs, " but", method="naive", budget=64)
    by_name = longshot.estimate("mini-1l", "camel", " but", method="naive", budget=64)
    assert timeless(by_name) == timeless(by_object)


@pytest.mark.parametrize(
    ("method", "settings", "sentence"),
    [
        (
            "itgis",
            {"temperature": "abc"},
            "itgis: temperature should be a valid number, not 'abc'.",
        ),
        ("itgis", {"score": "gop"}, "itgis: score should be 'logit' or 'gap', not 'gop'."),
        ("itgis", {"batch": 0}, "itgis: batch must be positive, not 0."),
        ("itgis", {"batch": 2.5}, "itgis: batch should be a valid integer, not 2.5."),
        ("mhis", {"chains": 0}, "mhis: chains must be positive, not 0."),
        ("qld", {"repetitions": True}, "qld: repetitions should be a valid integer, not True."),
        ("naive", {"temperature": 1}, "naive has no settings, so none is named 'temperature'."),
    ],
)
def test_a_setting_of_the_wrong_kind_is_one_sentence(
    method: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(LongshotError) as caught:
        make_method(method, **settings)
    assert str(caught.value) == sentence


def test_numbers_of_numpy_are_numbers() -> None:
    method = make_method("itgis", temperature=np.float32(0.5), batch=np.int64(8))
    assert method == make_method("itgis", temperature=0.5, batch=8)
