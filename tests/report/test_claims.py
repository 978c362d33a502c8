"""Claims: the verdict follows the figures, and turns when they do."""

from __future__ import annotations

import pytest

from longshot.report.claims import HELD, NOT_HELD, UNKNOWN, beyond, claims
from longshot.report.tables import tables
from tests.report import synthetic
from tests.report.synthetic import make_evidence, make_run


def verdicts() -> dict[str, str]:
    grid = claims(make_evidence(make_run(targets=24)))
    assert grid is not None
    return {row[0].text: row[1].text for row in grid.rows}


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    changed = dict(synthetic.NOISE)
    monkeypatch.setattr(synthetic, "NOISE", changed)
    return changed


def test_a_lead_holds_and_its_reverse_does_not(noise: dict[str, float]) -> None:
    noise.update(itgis=0.3, mhis=0.3, qld=1.5, gld=2.5)
    assert verdicts()["ITGIS is ahead of QLD"] == HELD
    assert verdicts()["QLD is ahead of GLD"] == HELD
    noise.update(itgis=2.5, gld=0.3)
    assert verdicts()["ITGIS is ahead of QLD"] == NOT_HELD
    assert verdicts()["QLD is ahead of GLD"] == NOT_HELD
    assert verdicts()["The squared error in log space orders the methods alike"] != NOT_HELD


def test_equals_cannot_be_told_apart(noise: dict[str, float]) -> None:
    noise.update(itgis=1.0, mhis=1.0, qld=1.0, gld=1.0)
    found = verdicts()
    assert found["ITGIS is ahead of QLD"] == found["QLD is ahead of GLD"] == UNKNOWN
    assert found["Some distributions favour ITGIS, others MHIS"] == UNKNOWN


def test_itgis_ahead_on_the_largest_model_contradicts_the_paper(noise: dict[str, float]) -> None:
    noise.update(itgis=0.2, mhis=1.5)
    assert verdicts()["ITGIS is ahead on small models, MHIS on large ones"] == NOT_HELD


def test_a_lead_of_gld_that_is_large_is_not_hardly_one(noise: dict[str, float]) -> None:
    text = "GLD is hardly ahead of the best constant"
    noise.update(gld=0.05)
    assert verdicts()[text] == NOT_HELD


def test_the_best_of_each_family_is_compared_target_by_target() -> None:
    evidence = make_evidence(make_run(targets=24))
    grid = beyond(evidence)
    assert grid is not None
    for row, model in zip(grid.rows, evidence.models, strict=True):
        name, paper, loss, other, least, difference, ratio = row
        assert (name.text, paper.text, other.text) == (model, "itgis", "conditional")
        assert loss.value == evidence.over_inputs(model, "itgis", "is").value
        assert least.value == evidence.over_inputs(model, "conditional", "is").value
        assert difference.value == pytest.approx((loss.value or 0) - (least.value or 0))
        assert ratio.value == pytest.approx((least.value or 0) / (loss.value or 1))


def test_a_run_without_the_papers_methods_has_no_claims() -> None:
    evidence = make_evidence(make_run(methods=("naive", "conditional"), targets=6))
    assert claims(evidence) is None
    assert beyond(evidence) is None
    assert not {"claims", "beyond"} & {grid.name for grid in tables(evidence)}
    every = tables(make_evidence(make_run(targets=6)))
    assert {"claims", "beyond"} <= {grid.name for grid in every}
