"""Charts: what they show, not how they look; each is one definition for every surface."""

from __future__ import annotations

import json
import math
from typing import Any

import altair as alt
import pytest
from jsonschema import ValidationError

from longshot.report.charts import (
    differences,
    every_token,
    one_estimate,
    run_charts,
    scatter,
    wilson,
)
from longshot.report.drawing import finished, named, names_of, powers, spec_of, specs
from longshot.report.evidence import Evidence
from longshot.report.style import LOOKS, SPARE, looks, night
from longshot.report.write import drawn
from tests.report.synthetic import make_evidence, make_run

STARTS = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return make_evidence(make_run(("a", "b"), ("hex", "if"), targets=10))


def records(chart: Any, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spec_of(chart)["datasets"][name]
    return found


def test_every_chart_is_a_valid_spec_and_draws(evidence: Evidence) -> None:
    """Also with a distribution that is named as a function of Vega's."""
    both = make_evidence(make_run(("if", "b"), ("hex", "icl", "if"), ("naive", "itgis"), 4))
    charts = run_charts(both)
    kinds = {"loss-by-model", "loss-by-distribution", "cost", "halves", "intervals", "scatter-raw",
             "scatter-fitted", "tuning", "truth"}  # fmt: skip
    assert {next(k for k in kinds if name.startswith(k)) for name in charts} == kinds
    checked = {name: spec_of(make()) for name, make in charts.items()}
    assert specs(charts) == checked
    for spec in checked.values():
        assert drawn(spec, "svg").startswith(STARTS["svg"])


def test_a_chart_that_is_wrong_would_be_seen() -> None:
    """Negative control: the check of `spec_of` is on, and that of `specs` off."""

    def wrong() -> Any:
        return finished(alt.Chart(named("x")).mark_point(filled="often"), {})

    with pytest.raises(ValidationError):
        spec_of(wrong())
    assert specs({"wrong": wrong})["wrong"]["mark"]["filled"] == "often"


@pytest.mark.parametrize("ending", STARTS)
def test_a_chart_is_a_file(ending: str) -> None:
    chart = one_estimate(1e-5, (1e-6, 1e-4), (2e-5, 1e-6))
    assert drawn(spec_of(chart), ending).startswith(STARTS[ending])


def test_a_scatter_has_every_target_in_its_panel(evidence: Evidence) -> None:
    raw, fitted = (records(scatter(evidence, "a", fit), "targets-a") for fit in (False, True))
    assert raw == fitted  # so that a page holds them once
    for label in evidence.methods:
        for inputs in evidence.inputs:
            outcome = evidence.outcome("a", inputs, label)
            assert outcome is not None
            shown = [r for r in raw if (r["inputs"], r["method"]) == (inputs, label)]
            assert len(shown) == 10
            for record, (target, answer) in zip(shown, outcome.answers, strict=True):
                assert record["truth"] == pytest.approx(target.probability, rel=1e-4)
                spread = record["truth high"] - record["truth low"]
                assert spread == pytest.approx(2 * target.standard_error, rel=1e-2)
                assert record["estimate"] == pytest.approx(answer.probability, rel=1e-4)
                if answer.is_two_sided:
                    assert record["low"] == pytest.approx(answer.interval[0], rel=1e-4)
                else:
                    assert record["low"] is None
                    assert record["interval"] == "no sample hit"


def test_lines_of_loss_by_model_are_the_means(evidence: Evidence) -> None:
    chart = run_charts(evidence)["loss-by-model-is"]()
    for record in records(chart, "means-is"):
        mean = evidence.over_inputs(record["model"], record["method"], "is")
        assert record["loss"] == pytest.approx(mean.value, rel=1e-4)
        assert record["low"] <= record["shown"] <= record["high"]
    assert len(records(chart, "cells-is")) == 2 * 2 * len(evidence.labels)


def test_intervals_are_counted(evidence: Evidence) -> None:
    for record in records(run_charts(evidence)["intervals"](), "intervals"):
        found = evidence.scored(record["row"].split(", ")[1], record["method"])
        assert record["given"] == sum(cell.score.coverage.given for cell in found)
        assert record["targets"] == 20
        if record["given"]:
            assert record["low"] <= record["share held"] <= record["high"]
        else:
            assert record["share held"] is None


def test_an_estimate_keeps_within_its_axis() -> None:
    for p, interval, truth in (
        (1e-5, (1e-6, 1e-4), None),
        (0.0, (0.0, 1e-3), None),
        (0.0, None, (1e-6, 2e-6)),
        (1e-300, None, None),
        (0.9, (0.5, 1.0), None),
    ):
        spec = spec_of(one_estimate(p, interval, truth))
        low, high = spec["layer"][1]["encoding"]["x"]["scale"]["domain"]
        assert 0 < low < high
        for record in spec["datasets"]["estimate"]:
            for end in ("at", "from", "to"):
                assert record[end] is None or low <= record[end] <= high


def test_a_bound_reaches_to_the_end_of_the_axis() -> None:
    (row,) = records(one_estimate(0.0, (0.0, 1e-3), None, "upper bound"), "estimate")
    assert row["at"] is None
    assert "upper bound" in row["says"]
    assert row["from"] < row["to"] / 10


def test_other_charts() -> None:
    tokens = records(
        every_token([0.5, 0.0, 0.25], [0.1, math.inf, 0.1], ["a", "b", "c"], "x"), "tokens"
    )
    assert [r["token"] for r in tokens] == ["a", "c"]
    changed = [
        {"cell": "m on hex", "method": "itgis", "first": 1.0, "last": 0.5, "difference": -0.5}
    ]
    assert drawn(spec_of(differences(changed, "loss")), "svg")


def test_axes_are_labelled_with_powers_and_names_are_never_bare() -> None:
    axis = powers(1e-7, 1e-4, "p").to_dict()
    assert json.loads(axis["labelExpr"].split("[indexof")[0]) == ["10⁻⁷", "10⁻⁶", "10⁻⁵", "10⁻⁴"]
    assert '"if"' not in names_of(["if"])


def test_wilson() -> None:
    assert wilson(0, 10)[0] == 0
    assert wilson(10, 10)[1] == 1
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)


def test_one_look_a_label_and_none_twice() -> None:
    every = [*LOOKS.values(), *SPARE]
    assert len({look.colour for look in every}) == len({look.shape for look in every}) == len(every)
    assert looks(["mine", "itgis"])["itgis"] == looks(["itgis"])["itgis"] == LOOKS["itgis"]
    foreign = looks([*LOOKS, *(f"mine-{n}" for n in range(20))])
    assert len({look.colour for look in foreign.values()}) == len(foreign)
    assert len({look.on_dark for look in foreign.values()}) == len(foreign)
    assert foreign["mine-0"] == looks(["mine-0", "itgis"])["mine-0"] == SPARE[0]
    assert {look.colour for look in foreign.values()} <= night(list(foreign)).keys()
