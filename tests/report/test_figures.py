"""Figures: what they show, not how they look."""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
import pytest

from longshot.report.diagnostics import coverage, truth_by_rank, wilson
from longshot.report.evidence import Evidence
from longshot.report.figures import loss_by_model
from longshot.report.scatters import limits, marks, scatter
from longshot.report.style import LOOKS, SPARE, looks, style
from tests.report.synthetic import make_evidence, make_run


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return make_evidence(make_run(("a", "b"), ("hex", "caps"), targets=10))


@pytest.mark.parametrize("fitted", [False, True])
def test_a_scatter_has_every_target_in_its_panel(evidence: Evidence, fitted: bool) -> None:
    figure = scatter(evidence, "a", fitted)
    assert len(figure.axes) == 2 * 6
    for number, axes in enumerate(figure.axes):
        label, inputs = evidence.methods[number % 6], evidence.inputs[number // 6]
        outcome = evidence.outcome("a", inputs, label)
        assert outcome is not None
        hits, zeros = axes.get_lines()[-2:]
        assert len(hits.get_xdata()) + len(zeros.get_xdata()) == 10
        lost = 0 if fitted else sum(answer.probability == 0 for _, answer in outcome.answers)
        assert len(zeros.get_xdata()) == lost
        heights = np.asarray(hits.get_ydata(), dtype=float)
        assert all(below < heights.min(initial=0.0) for below in np.asarray(zeros.get_ydata()))


def test_error_bars_are_the_truths_and_the_intervals(evidence: Evidence) -> None:
    outcome = evidence.outcome("a", "hex", "itgis")
    assert outcome is not None
    for mark, (target, answer) in zip(marks(outcome, False), outcome.answers, strict=True):
        assert math.exp(mark.truth) == pytest.approx(target.probability)
        spread = math.exp(mark.truth_high) - math.exp(mark.truth_low)
        assert spread == pytest.approx(2 * target.standard_error)
        if answer.interval:
            assert mark.low == pytest.approx(math.log(answer.interval[0]))
        else:
            assert mark.low is None
    assert all(mark.low is None for mark in marks(outcome, True))
    assert limits([]) == ((-7.0, -4.0), (-7.0, -4.0))


def test_lines_of_loss_by_model_are_the_means(evidence: Evidence) -> None:
    axes = loss_by_model(evidence, "is").axes[0]
    assert {text.get_text() for text in axes.texts} == set(evidence.labels)
    shown = [list(np.asarray(line.get_ydata(), dtype=float)) for line in axes.get_lines()]
    for label in evidence.labels:
        means = [evidence.over_inputs(m, label, "is").value for m in evidence.models]
        assert means in shown


def test_other_figures_have_a_panel_for_each(evidence: Evidence) -> None:
    with style():
        figure = truth_by_rank(evidence)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["hex", "caps"]
    names = [text.get_text() for text in coverage(evidence).axes[0].get_yticklabels()]
    assert len(names) == 4 * 2  # naive, conditional, itgis and mhis give intervals


def test_wilson() -> None:
    assert wilson(0, 10)[0] == 0
    assert wilson(10, 10)[1] == 1
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)


def test_one_look_a_label_and_none_twice() -> None:
    every = [*LOOKS.values(), *SPARE]
    assert len({look.colour for look in every}) == len({look.mark for look in every}) == len(every)
    assert looks(["mine", "itgis"])["itgis"] == looks(["itgis"])["itgis"] == LOOKS["itgis"]
    foreign = looks([*LOOKS, *(f"mine-{n}" for n in range(20))])
    assert len({look.colour for look in foreign.values()}) == len(foreign)
    assert len({look.on_dark for look in foreign.values()}) == len(foreign)
    assert foreign["mine-0"] == looks(["mine-0", "itgis"])["mine-0"] == SPARE[0]


def test_matplotlib_is_left_as_it_was() -> None:
    before = dict(mpl.rcParams)
    with style():
        assert mpl.rcParams["axes.grid"] is True
    assert dict(mpl.rcParams) == before
