"""Evidence: means, costs and halves, by hand."""

from __future__ import annotations

import pytest

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
