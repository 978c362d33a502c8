from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.fits import gld_cell, power_cell
from longshot.estimate import Estimate
from longshot.study.fits import fit, leave_one_out
from longshot.study.losses import ITAKURA_SAITO, SQUARED_LOG
from longshot.study.scores import average, covers, score_cell, score_constant

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
        interval=interval,
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
    assert score.is_loss == left.losses.mean()
    assert score.is_left_out.losses.tolist() == left.losses.tolist()
    squared = leave_one_out("power", features, np.log(p), "squared_log")
    assert score.log_mse == squared.losses.mean()
    hit = log_x > -INF
    assert score.is_loss_raw == ITAKURA_SAITO(np.log(p)[hit], log_x[hit]).mean()
    assert score.log_mse_raw == SQUARED_LOG(np.log(p)[hit], log_x[hit]).mean()
    assert score.is_fit == fit("power", features, np.log(p), "itakura_saito")
    assert score.log_fit == fit("power", features, np.log(p), "squared_log")
    assert score.log_fitted.tolist() == score.is_fit.predict(features).tolist()
    assert score.zeros == 1 - hit.mean()
    assert score.noise_floor == pytest.approx(0.005)
    assert score.noise_floor_log == pytest.approx(0.01)
    assert (score.targets, score.unjudged, score.judged.sum()) == (20, 0, 20)
    assert (score.coverage, score.intervals) == (None, 0)


def test_gld_takes_its_own_form(rng) -> None:
    features, log_p = gld_cell(rng, 6)
    p = np.exp(log_p)
    estimates = [made(-9.0, method="gld", mu=mu, sigma=sigma) for mu, sigma in features.tolist()]
    score = score_cell(estimates, p, 0.1 * p)
    expected = leave_one_out("gld", features, np.log(p), "itakura_saito").losses.mean()
    assert score.is_loss == expected
    assert score.is_fit is not None
    assert score.is_fit.parameters.keys() == {"a", "epsilon", "b", "log_c"}


def test_the_constant_is_what_useless_estimates_get(rng) -> None:
    p = np.exp(rng.uniform(-16, -9, 15))
    useless = score_cell([made(-INF)] * 15, p, 0.2 * p)
    constant = score_constant(p, 0.2 * p)
    assert useless.is_loss == pytest.approx(constant.is_loss)
    assert useless.log_mse == pytest.approx(constant.log_mse)
    assert constant.noise_floor == pytest.approx(0.02)
    assert (useless.is_loss_raw, useless.log_mse_raw, useless.zeros) == (None, None, 1)
    assert (constant.is_loss_raw, constant.coverage, constant.intervals) == (None, None, None)


def test_targets_without_a_truth_are_dropped_and_counted(rng) -> None:
    features, log_p = power_cell(rng, 12)
    estimates = [made(x, interval=(1e-9, 1e-3)) for x in features[:, 0].tolist()]
    p = np.exp(log_p)
    whole = score_cell(estimates, p, 0.1 * p)
    more = score_cell([made(-4.0), *estimates], np.append(0, p), np.append(0, 0.1 * p))
    assert (more.targets, more.unjudged) == (12, 1)
    assert more.judged.tolist() == [False] + [True] * 12
    for name in ("is_loss", "log_mse", "is_loss_raw", "zeros", "noise_floor", "coverage"):
        assert getattr(more, name) == getattr(whole, name)


def test_too_few_targets_have_no_loss() -> None:
    one = score_cell([made(-9.0)], np.array([1e-4]), np.array([1e-5]))
    assert (one.is_loss, one.log_mse, one.targets) == (None, None, 1)
    assert one.is_loss_raw == pytest.approx(float(ITAKURA_SAITO(one.log_p, np.array([-9.0]))[0]))
    assert one.is_fit is not None
    none = score_cell([made(-9.0)], np.zeros(1), np.zeros(1))
    assert (none.targets, none.unjudged, none.is_fit, none.is_loss) == (0, 1, None, None)
    assert (none.zeros, none.noise_floor, none.coverage, none.intervals) == (None,) * 4
    assert score_cell([], np.zeros(0), np.zeros(0)).targets == 0
    assert score_constant(np.zeros(0), np.zeros(0)).is_loss is None


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

    def coverage(relative: float) -> float:
        return float(
            np.mean(
                [
                    covers(estimate, p, relative * p)
                    for estimate, p in zip(estimates, np.exp(seen).tolist(), strict=True)
                ]
            )
        )

    four_errors = 4 * math.sqrt(0.05 * 0.95 / 4000)
    assert abs(coverage(noise) - 0.95) < four_errors
    assert coverage(0.0) < 0.95 - four_errors


def test_coverage_is_of_the_intervals_given() -> None:
    estimates = [made(-9.0, interval=(1e-5, 1e-3)), made(-9.0, interval=(1e-5, 2e-5)), made(-9.0)]
    score = score_cell(estimates, np.full(3, 1e-4), np.full(3, 1e-6))
    assert (score.coverage, score.intervals) == (0.5, 2 / 3)


# --- over cells


def test_average_ignores_what_is_missing() -> None:
    assert average([1.0, None, 2.0, 6.0]) == (3.0, pytest.approx(math.sqrt(7 / 3)))
    assert average([2.0]) == (2.0, None)
    assert average([None]) == (None, None)
    assert average([1.0, INF]) == (INF, None)
