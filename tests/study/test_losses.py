from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshot.errors import LongshotError
from longshot.study.losses import ITAKURA_SAITO, LOSSES, SQUARED_LOG, find_loss

logs = st.floats(-690, 0)
both = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def one(loss, log_p: float, log_q: float) -> float:
    return float(loss(np.array([log_p]), np.array([log_q]))[0])


@given(logs, st.floats(-40, 40))
def test_itakura_saito_is_its_formula(log_p: float, gap: float) -> None:
    log_q = log_p + gap
    with mpmath.workdps(60):
        ratio = mpmath.exp(mpmath.mpf(log_p) - mpmath.mpf(log_q))
        expected = float(ratio - mpmath.log(ratio) - 1)
    assert one(ITAKURA_SAITO, log_p, log_q) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@given(logs, logs)
def test_squared_log_is_its_formula(log_p: float, log_q: float) -> None:
    assert one(SQUARED_LOG, log_p, log_q) == pytest.approx((log_p - log_q) ** 2, rel=1e-15)


@both
def test_an_estimate_of_zero_costs_infinity(loss) -> None:
    assert loss(np.array([-3.0, -3.0]), np.array([-math.inf, -3.0])).tolist() == [math.inf, 0.0]


def test_beyond_a_double_the_loss_is_infinite_and_far_above_it_is_the_logarithm() -> None:
    assert one(ITAKURA_SAITO, 0.0, -710.0) == math.inf
    assert one(ITAKURA_SAITO, -710.0, 0.0) == pytest.approx(709.0)


@both
@pytest.mark.parametrize(
    ("log_p", "log_q"), [(-math.inf, -1.0), (math.nan, -1.0), (-1.0, math.nan)]
)
def test_a_truth_of_zero_and_nan_are_errors(loss, log_p: float, log_q: float) -> None:
    with pytest.raises(FloatingPointError):
        one(loss, log_p, log_q)


@both
@given(r=st.floats(-5, 5))
def test_derivatives_are_by_the_log_estimate(loss, r: float) -> None:
    def at(log_q: float, f) -> float:
        return float(f(np.array([r - log_q]))[0])

    h = 1e-5
    slope = (at(h, loss.of) - at(-h, loss.of)) / (2 * h)
    curvature = (at(h, loss.slope) - at(-h, loss.slope)) / (2 * h)
    assert at(0, loss.slope) == pytest.approx(slope, rel=1e-6, abs=1e-7)
    assert at(0, loss.curvature) == pytest.approx(curvature, rel=1e-6, abs=1e-7)


@both
@given(st.lists(st.floats(-20, 0), min_size=1, max_size=20))
def test_no_constant_beats_the_best_one(loss, truths: list[float]) -> None:
    log_p = np.array(truths)
    best = loss.log_constant(log_p)
    least = loss.of(log_p - best).mean()
    for other in best + np.array([-3, -0.1, -1e-3, 1e-3, 0.1, 3]):
        assert loss.of(log_p - other).mean() >= least * (1 - 1e-12)


def test_the_constants_of_the_two_losses_are_told_apart() -> None:
    log_p = np.array([0.0, -10.0])
    assert ITAKURA_SAITO.log_constant(log_p) == pytest.approx(math.log((1 + math.exp(-10)) / 2))
    assert SQUARED_LOG.log_constant(log_p) == -5


def test_a_misspelt_loss_gets_the_nearest() -> None:
    with pytest.raises(LongshotError, match="did you mean 'squared_log'"):
        find_loss("square_log")
