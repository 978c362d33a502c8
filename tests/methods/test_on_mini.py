"""The samplers on a shipped model, against its shipped truth."""

from __future__ import annotations

import math

import pytest

import longshot as ls
from longshot.intervals import log_interval
from longshot.methods.itgis import ITGIS
from longshot.methods.mhis import MHIS
from tests.methods.replicas import Replicas, Summary, summarise

TARGETS = ["quence", "ers", "r"]  # of probability 1e-3 to 3e-3, known to half a per cent


def runs_of(
    method: ls.Method, target: str, budget: int, count: int
) -> tuple[Summary, float, float]:
    model = ls.load_model("mini-1l")
    inputs = ls.load_inputs("camel", model)
    truth, token = ls.load_truth(model, inputs), model.tokenizer.single(target)
    exact, error = float(truth.probability[token]), float(truth.standard_error[token])
    assert error < 0.01 * exact
    events = (ls.TokenIs(token),) * count
    runs = method.estimate(Replicas(model, inputs, events, budget))
    return summarise(runs, exact), exact, error


@pytest.mark.long
def test_itgis_is_unbiased_and_its_intervals_cover() -> None:
    """50 runs on each target: |z| < 4 (false alarm 6e-5 each), coverage of 88 to 99% in all."""
    enough = given = covered = 0
    for target in TARGETS:
        runs, exact, error = runs_of(ITGIS(), target, budget=1024, count=50)
        assert abs(runs.mean - exact) < 4 * math.hypot(runs.error, error)
        enough, given = enough + runs.enough, given + runs.given
        covered += runs.covered
    assert given >= 0.6 * enough
    assert 0.88 <= covered / given <= 0.99


def test_mhis_seldom_gives_an_interval_where_its_chains_have_not_mixed() -> None:
    """Chains of 256 steps over 32 positions; of the few that are given nearly all must hold."""
    runs, _, _ = runs_of(
        MHIS(temperature=1.0, chains=8, normaliser="harmonic"), "quence", 8 * 256, count=10
    )
    assert runs.enough >= 8
    assert runs.given <= 0.5 * runs.enough
    assert runs.covered >= runs.given - 1  # which ones differs between processors


@pytest.mark.long
def test_mhis_covers_where_its_chains_get_round() -> None:
    """50 runs of 1024 steps over 32 positions: coverage of 88 to 99%."""
    runs, _, _ = runs_of(
        MHIS(temperature=2.0, chains=8, normaliser="harmonic"), "r", 2**13, count=50
    )
    print(f"{runs.enough} runs with 30 hits, {runs.given} intervals, {runs.covered} of them cover")
    assert runs.enough >= 40
    assert runs.given >= 0.6 * runs.enough
    assert 0.88 <= runs.covered / runs.given <= 0.99


@pytest.mark.long
def test_mhis_covers_where_its_chains_mix() -> None:
    """icl has ten free positions, which 2048 steps get round: 52 runs on four targets."""
    model = ls.load_model("mini-1l")
    inputs = ls.load_inputs("icl", model)
    truth, enough, given, covered = ls.load_truth(model, inputs), 0, 0, 0
    for target in ("y", " g", " man", "ward"):
        token = model.tokenizer.single(target)
        exact = float(truth.probability[token])
        job = Replicas(model, inputs, (ls.TokenIs(token),) * 13, 2**14)
        runs = [
            r for r in MHIS(chains=8, normaliser="harmonic").estimate(job) if (r.hits or 0) >= 30
        ]
        intervals = [run.interval for run in runs if run.is_two_sided]
        enough, given = enough + len(runs), given + len(intervals)
        covered += sum(low <= exact <= high for low, high in intervals)
    print(f"{enough} runs with 30 hits, {given} intervals, {covered} of them cover")
    assert enough >= 40
    assert given >= 0.6 * enough
    assert covered >= 0.88 * given


@pytest.mark.long
def test_heavy_weights_need_the_stretch() -> None:
    """Without it the same runs' intervals cover less than 88%: the control."""
    model = ls.load_model("mini-1l")
    inputs = ls.load_inputs("camel", model)
    truth, given, covered, plainly = ls.load_truth(model, inputs), 0, 0, 0
    for target in ("ector", "r", "quence"):
        token = model.tokenizer.single(target)
        exact = float(truth.probability[token])
        job = Replicas(model, inputs, (ls.TokenIs(token),) * 40, 1024)
        for run in ITGIS(temperature=0.7, score="logit").estimate(job):
            if not run.is_two_sided or run.standard_error is None:
                continue
            error, size = run.standard_error / run.probability, run.effective_sample_size or 0
            low, high = log_interval(run.log_probability, error, size - 1)
            given += 1
            covered += run.interval[0] <= exact <= run.interval[1]
            plainly += low <= exact <= high
    assert plainly < 0.88 * given <= covered
