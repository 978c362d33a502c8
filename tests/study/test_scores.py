from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from benchmarks.fits import gld_cell, power_cell
from longshot.errors import LongshotError
from longshot.estimate import Estimate, Job
from longshot.methods import METHODS, Method
from longshot.study.fits import fit, leave_one_out
from longshot.study.losses import ITAKURA_SAITO, SQUARED_LOG
from longshot.study.scores import (
    LOSS_NAMES,
    Coverage,
    average,
    coverage,
    covers,
    pooled,
    score_cell,
    score_constant,
)

INF = math.inf


def made(
    log_x: float,
    *,
    method: str = "itgis",
    interval: tuple[float, float] | None = None,
    **statistics: float,
) -> Estimate:
    return Estimate(
        method=method,
        settings={},
        event="token 1",
        seed=0,
        budget=64,
        log_probability=log_x,
        interval=interval or (0.0, 1.0),
        no_interval=None if interval else "none",
        statistics=statistics,
    )


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20241017)


# --- a cell


def test_a_cell_is_its_fits_and_losses(rng) -> None:
    features, log_p = power_cell(rng, 20)
    features[:3] = -INF
    log_x, p = features[:, 0], np.exp(log_p)
    score = score_cell([made(x) for x in log_x.tolist()], p, 0.1 * p)
    left = leave_one_out("power", features, np.log(p), "itakura_saito")
    assert score.losses["is"].mean == left.losses.mean()
    assert score.losses["is"].left_out.losses.tolist() == left.losses.tolist()
    squared = leave_one_out("power", features, np.log(p), "squared_log")
    assert score.losses["log"].mean == squared.losses.mean()
    hit = log_x > -INF
    assert score.losses["is"].raw == ITAKURA_SAITO(np.log(p)[hit], log_x[hit]).mean()
    assert score.losses["log"].raw == SQUARED_LOG(np.log(p)[hit], log_x[hit]).mean()
    assert score.losses["is"].fit == fit("power", features, np.log(p), "itakura_saito")
    assert score.losses["log"].fit == fit("power", features, np.log(p), "squared_log")
    assert score.log_fitted.tolist() == score.losses["is"].fit.predict(features).tolist()
    assert score.zeros == 20 - hit.sum()
    assert score.losses["is"].noise_floor == pytest.approx(0.005)
    assert score.losses["log"].noise_floor == pytest.approx(0.01)
    assert (score.targets, score.unjudged, score.judged.sum()) == (20, 0, 20)
    assert (score.coverage, score.coverage.share) == ((0, 0), None)


def test_gld_takes_its_own_form(rng) -> None:
    features, log_p = gld_cell(rng, 6)
    p = np.exp(log_p)
    estimates = [made(-9.0, method="gld", mu=mu, sigma=sigma) for mu, sigma in features.tolist()]
    score = score_cell(estimates, p, 0.1 * p)
    expected = leave_one_out("gaussian", features, np.log(p), "itakura_saito").losses.mean()
    assert score.losses["is"].mean == expected
    fitted = score.losses["is"].fit
    assert fitted is not None
    assert fitted.parameters.keys() == {"a", "epsilon", "b", "log_c"}


@dataclass(frozen=True)
class Foreign(Method):
    """A method of another package, scored by two statistics."""

    name: ClassVar[str] = "foreign"
    fit_form: ClassVar[str] = "gaussian"

    def estimate(self, job: Job) -> list[Estimate]:
        raise NotImplementedError


def test_any_method_names_its_form_and_one_that_is_not_installed_has_the_power(
    rng, monkeypatch
) -> None:
    features, log_p = gld_cell(rng, 6)
    p = np.exp(log_p)
    cell = [made(x, method="foreign", mu=m, sigma=s) for x, (m, s) in enumerate(features, -20)]

    def form() -> str:
        found = score_cell(cell, p, 0.1 * p).losses["is"].fit
        assert found is not None
        return found.form

    assert form() == "power"
    monkeypatch.setitem(METHODS, "foreign", Foreign)
    assert form() == "gaussian"
    with pytest.raises(LongshotError, match="foreign lacks mu and sigma, which its fit needs"):
        score_cell([made(-9.0, method="foreign")] * 2, p[:2], p[:2])


def test_a_zero_costs_what_the_constant_loses_on_its_target() -> None:
    p = np.array([1e-4, 1e-5, 1e-6])
    score = score_cell([made(math.log(1e-4)), made(math.log(2e-5)), made(-INF)], p, 0.1 * p)
    raw = 0.5 - math.log(0.5) - 1
    ratio = 1e-6 / 5.5e-5  # to the mean of the others
    assert score.losses["is"].raw == pytest.approx(raw / 2)
    assert score.losses["is"].raw_zeros == pytest.approx((raw + ratio - math.log(ratio) - 1) / 3)
    assert score.zeros == 1


def test_what_the_bound_on_predictions_did_is_told() -> None:
    """A lone zero whose fit wants b = 0: bounded it costs little, as the paper does it e^28."""
    log_x = np.append(np.linspace(-30, -5, 20), -INF)
    log_p = np.append(-2 + 0.5 * log_x[:-1] - 0.02 * (log_x[:-1] + 17) ** 2, -12)
    p = np.exp(log_p)
    lost = score_cell([made(x) for x in log_x.tolist()], p, 0.1 * p).losses["is"]
    assert lost.clipped == lost.left_out.clipped.sum() >= 1
    assert lost.mean is not None
    assert lost.unclipped is not None
    assert lost.mean < 1e6 < lost.unclipped
    same = lost.left_out.losses == lost.left_out.losses_unclipped
    assert (same == ~lost.left_out.clipped).all()


def test_the_constant_is_what_useless_estimates_get(rng) -> None:
    p = np.exp(rng.uniform(-16, -9, 15))
    useless = score_cell([made(-INF)] * 15, p, 0.2 * p)
    constant = score_constant(p, 0.2 * p)
    for name in LOSS_NAMES:
        lost, least = useless.losses[name], constant.losses[name]
        assert lost.mean == lost.raw_zeros == pytest.approx(least.mean)
        assert lost.raw is least.raw is least.raw_zeros is None
    assert constant.losses["is"].noise_floor == pytest.approx(0.02)
    assert (useless.zeros, constant.zeros, constant.coverage) == (15, 0, (0, 0))


def test_targets_without_a_truth_are_dropped_and_counted(rng) -> None:
    features, log_p = power_cell(rng, 12)
    estimates = [made(x, interval=(1e-9, 1e-3)) for x in features[:, 0].tolist()]
    p = np.exp(log_p)
    whole = score_cell(estimates, p, 0.1 * p)
    more = score_cell([made(-4.0), *estimates], np.append(0, p), np.append(0, 0.1 * p))
    assert (more.targets, more.unjudged) == (12, 1)
    assert more.judged.tolist() == [False] + [True] * 12
    assert (more.zeros, more.coverage) == (whole.zeros, whole.coverage)
    for name in LOSS_NAMES:
        for number in ("mean", "raw", "raw_zeros", "unclipped", "clipped", "noise_floor"):
            one, other = (getattr(score.losses[name], number) for score in (more, whole))
            assert one == other


def test_too_few_targets_have_no_loss() -> None:
    one = score_cell([made(-9.0)], np.array([1e-4]), np.array([1e-5]))
    lost = one.losses["is"]
    assert (lost.mean, lost.unclipped, one.losses["log"].mean, one.targets) == (None,) * 3 + (1,)
    assert lost.raw == pytest.approx(float(ITAKURA_SAITO(one.log_p, np.array([-9.0]))[0]))
    assert lost.fit is not None
    zero = score_cell([made(-INF)], np.array([1e-4]), np.array([1e-5]))
    assert (zero.losses["is"].raw, zero.losses["is"].raw_zeros) == (None, None)
    none = score_cell([made(-9.0)], np.zeros(1), np.zeros(1))
    lost = none.losses["is"]
    assert (none.targets, none.unjudged, lost.fit, lost.mean) == (0, 1, None, None)
    assert (none.zeros, lost.noise_floor, none.coverage) == (0, None, (0, 0))
    assert score_cell([], np.zeros(0), np.zeros(0)).targets == 0
    assert score_constant(np.zeros(0), np.zeros(0)).losses["is"].mean is None


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="1 estimates, 2 truths"):
        score_cell([made(-9.0)], np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match="several methods: gld, itgis"):
        score_cell([made(-9.0), made(-9.0, method="gld")], np.ones(2), np.ones(2))
    with pytest.raises(FloatingPointError):
        score_cell([made(-9.0)], np.array([math.nan]), np.ones(1))


# --- intervals


@pytest.mark.parametrize(
    ("truth", "relative_error", "covered"),
    [
        (9.9e-6, 0, True),
        (10.1e-6, 0, False),
        (1.01e-6, 0, True),
        (0.99e-6, 0, False),
        (math.exp(math.log(2e-6) + math.hypot(math.log(5), 1.95)), 1.0, True),
        (math.exp(math.log(2e-6) + math.hypot(math.log(5), 1.97)), 1.0, False),
        (math.exp(math.log(2e-6) - math.hypot(math.log(2), 1.95)), 1.0, True),
        (math.exp(math.log(2e-6) - math.hypot(math.log(2), 1.97)), 1.0, False),
    ],
)
def test_each_arm_is_widened_by_the_truths_error(
    truth: float, relative_error: float, covered: bool
) -> None:
    estimate = made(math.log(2e-6), interval=(1e-6, 1e-5))
    assert covers(estimate, truth, relative_error * truth) == covered


def test_an_end_of_zero_needs_no_widening() -> None:
    bound = made(-INF, interval=(0.0, 1e-3))
    assert covers(bound, 1e-9, 0.0)
    assert covers(bound, 1.1e-3, 0.11e-3)
    assert not covers(bound, 1.3e-3, 0.13e-3)
    assert covers(made(math.log(1e-4), interval=(0.0, 1e-3)), 1e-9, 0.0)
    assert not covers(made(-INF, interval=(0.0, 0.0)), 1e-9, 1e-10)


def test_intervals_as_honest_as_the_truth_cover_95_in_100(rng) -> None:
    """Both sides are noisy; without widening an exact interval would seem to cover too little."""
    log_p, error, noise = rng.uniform(-16, -9, 4000), 0.2, 0.15
    seen = log_p + noise * rng.standard_normal(4000)
    log_x = log_p + error * rng.standard_normal(4000)
    estimates = [
        made(x, interval=(math.exp(x - 1.96 * error), math.exp(x + 1.96 * error)))
        for x in log_x.tolist()
    ]

    def share(relative: float) -> float:
        pairs = zip(estimates, np.exp(seen).tolist(), strict=True)
        return coverage((estimate, p, relative * p) for estimate, p in pairs).share or 0.0

    four_errors = 4 * math.sqrt(0.05 * 0.95 / 4000)
    assert abs(share(noise) - 0.95) < four_errors
    assert share(0.0) < 0.95 - four_errors


def test_coverage_is_of_the_intervals_given() -> None:
    estimates = [made(-9.0, interval=(1e-5, 1e-3)), made(-9.0, interval=(1e-5, 2e-5)), made(-9.0)]
    score = score_cell(estimates, np.full(3, 1e-4), np.full(3, 1e-6))
    assert score.coverage == Coverage(given=2, covered=1)
    assert score.coverage.share == 0.5


def test_coverage_is_pooled_and_no_mean_of_cells() -> None:
    assert pooled([Coverage(1, 0), Coverage(9, 9), Coverage(0, 0)]) == Coverage(10, 9)
    assert pooled([]) == Coverage(0, 0)
    assert pooled([]).share is None


# --- over cells


def test_average_ignores_what_is_missing() -> None:
    assert average([1.0, None, 2.0, 6.0]) == (3.0, pytest.approx(math.sqrt(7 / 3)))
    assert average([2.0]) == (2.0, None)
    assert average([None]) == (None, None)
    assert average([1.0, INF]) == (INF, None)
