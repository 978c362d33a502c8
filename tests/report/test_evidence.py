"""Evidence: means, costs and halves, by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from longshot.report.charts import run_charts
from longshot.report.evidence import gather
from longshot.study.summary import CONSTANT, score_run
from tests.report.synthetic import make_evidence, make_run


def test_gathering_is_scoring() -> None:
    run = make_run(("m",), ("hex", "icl"), ("naive", "itgis"), 6)
    shares: list[float] = []
    evidence = gather(run, shares.append)
    assert shares == [0.0, 0.5, 1.0]
    assert evidence.labels == (CONSTANT, "naive", "itgis")
    for scored in score_run(run):
        outcome = evidence.outcome(scored.model, scored.inputs, scored.method)
        assert outcome is not None
        assert outcome.loss("is") == scored.score.losses["is"].mean
        assert outcome.loss("log") == scored.score.losses["log"].mean


def test_a_shared_stage_is_paid_once_or_by_each() -> None:
    evidence = make_evidence(make_run(("m",), ("hex",), ("naive", "itgis"), 8))
    alone, each = (evidence.spent("m", "naive", kind) for kind in ("alone", "each"))
    assert alone is not None
    assert each is not None
    assert alone.macs == pytest.approx(1e9 + 1000)
    assert each.macs == pytest.approx(1e9 / 8 + 1000)
    assert alone.forwards == 4096
    own, together = (evidence.spent("m", "itgis", kind) for kind in ("alone", "each"))
    assert own == pytest.approx(together)
    assert evidence.spent("m", CONSTANT, "alone") is None


def test_smaller_budgets_are_points_of_a_line_and_no_methods_of_their_own() -> None:
    """By the budgets of their rows: a label that only looks like one stays a method."""
    run = make_run(("m",), ("hex",), ("naive", "naive-64", "itgis", "itgis-9999"), 4)
    budgets = {"naive-64": 64, "itgis-9999": 9999}
    rows = tuple(
        replace(row, estimate=replace(row.estimate, budget=budgets[row.key.method]))
        if row.key.method in budgets and row.estimate
        else row
        for row in run.rows
    )
    evidence = gather(replace(run, rows=rows))
    assert evidence.smaller == {"naive": ["naive-64"]}
    assert evidence.methods == ("naive", "itgis", "itgis-9999")
    assert evidence.known == (CONSTANT, "naive", "itgis", "itgis-9999")
    assert "naive-64" not in {outcome.method for outcome in evidence.scored("m")}
    assert [outcome.method for outcome in evidence.scored(label="naive-64")] == ["naive-64"]
    spec = run_charts(evidence)["cost-is"]().to_dict()
    (data,) = spec["datasets"].values()
    assert sorted(record["method"] for record in data) == [
        "itgis", "itgis-9999", "naive", "naive",
    ]  # fmt: skip
    assert '"line"' in json.dumps(spec)
    assert '"line"' not in json.dumps(run_charts(gather(run))["cost-is"]().to_dict())


def test_halves_need_both() -> None:
    both = make_evidence(make_run(("m",), ("icl", "hex", "other"), ("itgis",), 2))
    assert both.halves() == {"development": ["hex"], "test": ["icl"]}
    assert make_evidence(make_run(("m",), ("hex",), ("itgis",), 2)).halves() == {}


def test_a_loss_has_the_spread_of_its_targets() -> None:
    evidence = make_evidence(make_run(("m",), ("hex",), ("itgis",), 4))
    outcome = evidence.outcome("m", "hex", "itgis")
    assert outcome is not None
    losses = outcome.losses("is")
    mean = sum(losses) / 4
    variance = sum((loss - mean) ** 2 for loss in losses) / 3
    assert outcome.loss_error("is") == pytest.approx((variance / 4) ** 0.5)
