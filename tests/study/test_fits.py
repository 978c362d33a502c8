"""The fits against planted curves, a grid, finite differences and a slow refit by scipy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from benchmarks.fits import gld_cell, power_cell
from longshot.errors import LongshotError
from longshot.study import fits, newton
from longshot.study.fits import FORMS, fit, leave_one_out
from longshot.study.losses import ITAKURA_SAITO, LOSSES, Loss

Array = np.ndarray
INF = math.inf
both = pytest.mark.parametrize("loss", LOSSES)
CELLS = {"power": power_cell, "gaussian": gld_cell}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20241017)


def column(log_x: list[float] | Array) -> Array:
    return np.asarray(log_x, dtype=np.float64)[:, None]


def mean_loss(loss: str, log_p: Array, log_q: Array) -> float:
    return float(LOSSES[loss](log_p, log_q).mean())


# --- planted curves


@both
@pytest.mark.parametrize("zeros", [0, 10])
@pytest.mark.parametrize("shift", [0.0, -300.0])
def test_planted_parameters_are_recovered(rng, loss: str, zeros: int, shift: float) -> None:
    log_x = np.concatenate([rng.uniform(-25, -5, 40), np.full(zeros, -INF)])
    planted = {"log_a": -2.0, "log_b": -13.0, "c": 0.7}
    log_p = np.logaddexp(planted["log_a"] + planted["c"] * log_x, planted["log_b"])
    found = fit("power", column(log_x + shift), log_p, loss)
    expected = planted | {"log_a": planted["log_a"] - planted["c"] * shift}
    assert found.parameters == pytest.approx(expected, rel=1e-4)
    assert found.in_sample < 1e-7
    assert found.predict(column(log_x + shift)) == pytest.approx(log_p, abs=1e-3)


@both
def test_planted_parameters_are_recovered_through_noise(rng, loss: str) -> None:
    """Multiplicative noise of mean 1, or of log mean 0, which each loss averages out."""
    log_x = rng.uniform(-25, -5, 4000)
    noise = 0.5 * rng.standard_normal(4000) - (0.125 if loss == "itakura_saito" else 0)
    log_p = np.logaddexp(-2 + 0.7 * log_x, -13) + noise
    found = fit("power", column(log_x), log_p, loss).parameters
    assert found == pytest.approx({"log_a": -2.0, "log_b": -13.0, "c": 0.7}, abs=0.1)


@both
def test_planted_gld_parameters_are_recovered(rng, loss: str) -> None:
    sigma = rng.uniform(0.5, 3, 60)
    mu = -sigma * rng.uniform(2, 8, 60)
    planted = {"a": 0.6, "epsilon": 0.4, "b": -1.0, "log_c": -13.0}
    features = np.stack([mu, sigma], 1)
    log_p = np.logaddexp(-((0.6 * mu / (sigma + 0.4)) ** 2) - 1, -13.0)
    found = fit("gaussian", features, log_p, loss)
    assert found.parameters == pytest.approx(planted, rel=1e-3)
    assert found.predict(features) == pytest.approx(log_p, abs=1e-3)


# --- nothing is better


def grid_minimum(log_x: Array, log_p: Array, loss: str) -> float:
    """The least mean loss over a brute-force grid of (a, b, c)."""
    c = np.geomspace(0.02, 50, 40)[:, None, None, None]
    top = log_x.max() if np.isfinite(log_x).any() else 0.0
    height = np.linspace(log_p.min() - 5, log_p.max() + 15, 50)[:, None, None]
    log_b = np.linspace(log_p.min() - 10, log_p.max(), 40)[:, None]
    with np.errstate(over="ignore"):
        log_q = np.logaddexp(height + c * (log_x - top), log_b)
        return float(LOSSES[loss].of(log_p - log_q).mean(-1).min())


@both
@pytest.mark.parametrize("seed", range(6))
def test_no_grid_beats_the_fit(seed: int, loss: str) -> None:
    rng = np.random.default_rng(seed)
    features, log_p = power_cell(rng, (12, 40)[seed % 2])
    if seed >= 2:  # heavy zeros
        features[rng.random(len(features)) < 0.7] = -INF
    if seed >= 4:  # estimates that say nothing, over many decades
        features = 20 * rng.permutation(features)
    least = grid_minimum(features[:, 0], log_p, loss)
    assert fit("power", features, log_p, loss).in_sample <= least + 1e-6


@pytest.mark.parametrize("form", CELLS)
@both
def test_no_other_start_does_better(rng, form: str, loss: str) -> None:
    features, log_p = CELLS[form](rng, 24)
    curve = FORMS[form].curve(rng.permutation(features))
    assert curve is not None
    points = fits._grid(curve, log_p, LOSSES[loss]).theta.reshape(-1, 4)
    starts = points[rng.integers(0, len(points), 300)]
    everyone = np.ones((300, 24), dtype=bool)
    _, values = newton.newton(curve, log_p, LOSSES[loss], everyone, starts)
    theta = fits._full(curve, log_p, LOSSES[loss]).optima[:1]
    _, value = newton.newton(curve, log_p, LOSSES[loss], everyone[:1], theta)
    assert value[0] <= values.min() + 1e-7
    assert (values > values.min() + 1e-3).any(), "there are local minima to avoid"


# --- derivatives


def derivative_errors(form: str, loss: Loss, rng: np.random.Generator) -> tuple[float, float]:
    """Of gradient and Hessian against finite differences, relative to their size."""
    features, log_p = CELLS[form](rng, 20)
    curve = FORMS[form].curve(features)
    assert curve is not None
    weight = (rng.random((5, 20)) < 0.8) / 16
    reference = np.full((5, 1), int(np.argmax(curve.has)))
    at = np.array([-12.0, -13.0, -0.5, 0.3])[: curve.size]
    theta = at + 0.3 * rng.standard_normal((5, curve.size))

    def evaluate(theta: Array) -> newton.Point:
        return newton.evaluate(curve, log_p, loss, weight, reference, theta)

    h, point = 1e-5, evaluate(theta)
    worst = [0.0, 0.0]
    for i in range(curve.size):
        up, down = (evaluate(theta + h * sign * np.eye(curve.size)[i]) for sign in (1, -1))
        gradient = (up.value - down.value) / (2 * h)
        hessian = (up.gradient - down.gradient) / (2 * h)
        worst[0] = max(worst[0], np.abs(gradient - point.gradient[:, i]).max())
        worst[1] = max(worst[1], np.abs(hessian - point.hessian[:, :, i]).max())
    return worst[0] / np.abs(point.gradient).max(), worst[1] / np.abs(point.hessian).max()


@pytest.mark.parametrize("form", CELLS)
@both
def test_gradient_and_hessian_are_finite_differences(rng, form: str, loss: str) -> None:
    assert max(derivative_errors(form, LOSSES[loss], rng)) < 1e-6


@both
def test_finite_differences_notice_a_broken_derivative(rng, loss: str) -> None:
    right = LOSSES[loss]
    assert derivative_errors("power", replace(right, slope=lambda r: -right.slope(r)), rng)[0] > 0.1
    assert derivative_errors("power", replace(right, curvature=right.slope), rng)[1] > 0.1


@both
def test_a_fit_that_climbs_is_noticed(rng, loss: str, monkeypatch) -> None:
    """Negative control: with the gradient's sign broken no fit leaves its start."""
    features, log_p = power_cell(rng, 40)
    best = fit("power", features, log_p, loss).in_sample
    right = LOSSES[loss]
    broken = replace(right, slope=lambda r: -right.slope(r))
    monkeypatch.setattr(fits, "find_loss", lambda name: broken)
    assert fit("power", features, log_p, loss).in_sample > best + 1e-3


# --- leave one out


def slow_power(theta: Array, features: Array) -> Array:
    log_a, log_b, log_c = theta
    return np.logaddexp(log_a + np.exp(log_c) * (features[:, 0] + 12), log_b)


def slow_gld(theta: Array, features: Array) -> Array:
    log_a, log_epsilon, b, log_c = theta
    z = features[:, 0] / (features[:, 1] + np.exp(log_epsilon))
    return np.logaddexp(b - (np.exp(log_a) * z) ** 2, log_c)


SLOW: dict[str, tuple[Callable[[Array, Array], Array], Array, Array]] = {
    "power": (slow_power, np.array([-15, -17, -3.0]), np.array([-8, -10, 1.0])),
    "gaussian": (slow_gld, np.array([-2.5, -4, -12, -17.0]), np.array([0.5, 2, 0, -11.0])),
}


def slow_leave_one_out(form: str, features: Array, log_p: Array, loss: Loss, rng) -> Array:
    """By scipy, from many random starts, one fold at a time, with nothing of ours but the loss."""
    curve, low, high = SLOW[form]
    losses = []
    for i in range(len(log_p)):
        train = np.arange(len(log_p)) != i

        def objective(theta: Array, train: Array = train) -> float:
            theta = np.clip(theta, -60, 60)
            r = np.minimum(log_p[train] - curve(theta, features[train]), 500)
            return float(loss.of(r).mean())

        starts = rng.uniform(low, high, (12, len(low)))
        found = [optimize.minimize(objective, start, method="BFGS").x for start in starts]
        best = min(found, key=objective)
        options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4000, "maxfev": 4000}
        best = optimize.minimize(objective, best, method="Nelder-Mead", options=options).x
        log_q = curve(best, features[i : i + 1])
        log_q = np.clip(log_q, log_p[train].min(), log_p[train].max())
        losses.append(loss.of(log_p[i : i + 1] - log_q)[0])
    return np.array(losses)


def cell_with_a_clear_fit(form: str, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    if form == "power":
        log_x = rng.uniform(-22, -6, n)
        log_x[: n // 4] = -INF
        log_p = np.logaddexp(-3 + 0.7 * log_x, -15)
        return column(log_x), log_p + 0.5 * rng.standard_normal(n)
    sigma = rng.uniform(0.5, 3, n)
    mu = -sigma * rng.uniform(2, 8, n)
    log_p = np.logaddexp(-((0.6 * mu / (sigma + 0.6)) ** 2) - 3, -14.0)
    return np.stack([mu, sigma], 1), log_p + 0.3 * rng.standard_normal(n)


@pytest.mark.parametrize("form", CELLS)
@both
def test_leave_one_out_is_a_slow_refit_of_every_fold(rng, form: str, loss: str) -> None:
    features, log_p = cell_with_a_clear_fit(form, rng, 12)
    slow = slow_leave_one_out(form, features, log_p, LOSSES[loss], rng)
    assert leave_one_out(form, features, log_p, loss).losses == pytest.approx(slow, abs=1e-4)


def test_the_slow_refit_tells_the_losses_apart(rng) -> None:
    """Negative control: the other loss's fit, judged by this loss, is not close."""
    features, log_p = cell_with_a_clear_fit("power", rng, 12)
    right = leave_one_out("power", features, log_p, "itakura_saito")
    wrong = leave_one_out("power", features, log_p, "squared_log")
    assert np.abs(right.losses - ITAKURA_SAITO(log_p, wrong.log_q)).max() > 1e-2


@both
def test_leave_one_out_refits_without_the_target(rng, loss: str) -> None:
    features, log_p = power_cell(rng, 20)
    whole = leave_one_out("power", features, log_p, loss)
    for i in range(20):
        others = np.arange(20) != i
        alone = fit("power", features[others], log_p[others], loss)
        log_q = alone.predict(features[i : i + 1])
        clipped = np.clip(log_q, log_p[others].min(), log_p[others].max())
        assert whole.log_q[i] == pytest.approx(clipped[0], abs=2e-4)
        assert whole.clipped[i] == (clipped[0] != log_q[0])


@both
def test_the_constant_left_out_is_that_of_the_others(rng, loss: str) -> None:
    log_p = rng.uniform(-16, -9, 9)
    left = leave_one_out("constant", np.empty((9, 0)), log_p, loss)
    expected = [float(LOSSES[loss].log_constant(np.delete(log_p, i))) for i in range(9)]
    assert left.log_q == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("decades", "expected"), [(4, 2.385), (3, 1.52)])
def test_the_best_constant_on_log_uniform_targets(rng, decades: int, expected: float) -> None:
    """In expectation ln E[p] − E[ln p]; 500 targets make leaving one out cost next to nothing."""
    scores = []
    for _ in range(50):
        log_p = np.log(10) * rng.uniform(-decades, 0, 500)
        scores.append(
            leave_one_out("constant", column(log_p), log_p, "itakura_saito").losses.mean()
        )
    error = np.std(scores, ddof=1) / math.sqrt(len(scores))
    assert abs(np.mean(scores) - expected) < 4 * error + 0.005  # the figures are rounded
    assert error < 0.02


# --- what changes nothing


@both
def test_scales_change_nothing(rng, loss: str) -> None:
    features, log_p = power_cell(rng, 30)
    here = leave_one_out("power", features, log_p, loss).losses
    for by_x, by_p in ((-100.0, 0.0), (0.0, -100.0), (-50.0, -50.0)):
        there = leave_one_out("power", features + by_x, log_p + by_p, loss).losses
        assert there == pytest.approx(here, abs=1e-4)
    order = rng.permutation(30)
    assert leave_one_out("power", features[order], log_p[order], loss).losses == pytest.approx(
        here[order], abs=1e-4
    )


@both
def test_gld_does_not_depend_on_the_unit_of_logits(rng, loss: str) -> None:
    features, log_p = gld_cell(rng, 30)
    here = leave_one_out("gaussian", features, log_p, loss).losses
    assert leave_one_out("gaussian", 7 * features, log_p, loss).losses == pytest.approx(
        here, abs=1e-4
    )


# --- edges


def constant_loss(log_p: Array, loss: str) -> float:
    return mean_loss(loss, log_p, np.full_like(log_p, LOSSES[loss].log_constant(log_p)))


@both
def test_without_information_the_fit_is_the_constant(rng, loss: str) -> None:
    log_p = rng.uniform(-16, -9, 20)
    for features in (np.full(20, -INF), np.full(20, -3.0), -log_p, 30 * -log_p):
        found = fit("power", column(features), log_p, loss)
        assert found.parameters["log_a"] == -INF
        assert found.parameters["c"] == 1
        assert found.in_sample == pytest.approx(constant_loss(log_p, loss), abs=1e-12)
        constant = leave_one_out("constant", column(features), log_p, loss)
        left = leave_one_out("power", column(features), log_p, loss)
        assert left.losses == pytest.approx(constant.losses, abs=1e-12)


@both
def test_b_goes_to_zero_where_nothing_needs_it(rng, loss: str) -> None:
    """The boundary's loss is that of a·x^c alone."""
    log_x = rng.uniform(-30, -5, 30)
    log_p = -2 + 0.5 * log_x - 0.02 * (log_x + 17) ** 2 + 0.1 * rng.standard_normal(30)

    def objective(theta: Array) -> float:
        return float(LOSSES[loss].of(log_p - theta[0] - theta[1] * log_x).mean())

    alone = optimize.minimize(objective, [-2, 0.5], method="Nelder-Mead", options={"fatol": 1e-12})
    found = fit("power", column(log_x), log_p, loss)
    assert found.in_sample == pytest.approx(alone.fun, abs=1e-7)
    assert found.parameters["log_b"] < log_p.min() - 10


@both
def test_one_target_above_the_rest_makes_a_step(loss: str) -> None:
    """c → ∞: the highest estimate gets a value of its own, the others share theirs."""
    log_p = np.array([-15.0, -16, -14, -15, -16, -9])
    log_x = np.array([-9.3, -9.1, -9.4, -9.5, -9.2, -9.0])
    found = fit("power", column(log_x), log_p, loss)
    assert found.in_sample == pytest.approx(constant_loss(log_p[:-1], loss) * 5 / 6, abs=1e-3)
    left = leave_one_out("power", column(log_x), log_p, loss)
    assert np.isfinite(left.losses).all()
    assert left.log_q.max() <= log_p.max()


@both
def test_a_lone_zero_is_kept_within_the_other_truths(rng, loss: str) -> None:
    log_x = np.append(np.linspace(-30, -5, 20), -INF)
    log_p = np.append(-2 + 0.5 * log_x[:-1] - 0.02 * (log_x[:-1] + 17) ** 2, -12)
    left = leave_one_out("power", column(log_x), log_p, loss)
    assert left.clipped[-1]
    assert left.log_q[-1] == log_p[:-1].min()


@both
@pytest.mark.parametrize("form", FORMS)
def test_one_target_is_fitted_and_cannot_be_left_out(loss: str, form: str) -> None:
    features = np.array([[-3.0, 1.0]])[:, : 2 if form == "gaussian" else 1]
    found = fit(form, features, np.array([-12.0]), loss)
    assert found.predict(features) == pytest.approx([-12.0])
    assert found.in_sample == pytest.approx(0, abs=1e-12)
    left = leave_one_out(form, features, np.array([-12.0]), loss)
    assert np.isnan(left.losses).all()
    assert np.isnan(left.log_q).all()


numbers = st.one_of(st.just(-INF), st.floats(-690, 0), st.floats(-12, -8))


@settings(max_examples=25)
@given(
    st.lists(st.tuples(numbers, st.floats(-18, -7)), min_size=1, max_size=6),
    st.sampled_from(list(LOSSES)),
)
def test_any_few_targets_are_fitted(cell: list[tuple[float, float]], loss: str) -> None:
    log_x, log_p = (np.array(part) for part in zip(*cell, strict=True))
    found = fit("power", column(log_x), log_p, loss)
    assert found.in_sample <= constant_loss(log_p, loss) + 1e-9
    assert found.in_sample <= grid_minimum(log_x, log_p, loss) + 1e-5
    assert mean_loss(loss, log_p, found.predict(column(log_x))) == found.in_sample
    left = leave_one_out("power", column(log_x), log_p, loss)
    assert np.isfinite(left.losses).all() or len(log_p) == 1


@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(
            st.floats(-40, 0), st.one_of(st.just(0.0), st.floats(0.01, 9)), st.floats(-18, -7)
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(list(LOSSES)),
)
def test_any_few_gld_targets_are_fitted(cell: list[tuple[float, float, float]], loss: str) -> None:
    mu, sigma, log_p = (np.array(part) for part in zip(*cell, strict=True))
    features = np.stack([mu, sigma], 1)
    found = fit("gaussian", features, log_p, loss)
    assert found.in_sample <= constant_loss(log_p, loss) + 1e-9
    assert found.parameters["epsilon"] > 0
    left = leave_one_out("gaussian", features, log_p, loss)
    assert np.isfinite(left.losses).all() or len(log_p) == 1


def test_mistakes_are_refused() -> None:
    x, log_p = column([-1.0, -2.0]), np.array([-3.0, -4.0])
    with pytest.raises(LongshotError, match="did you mean 'power'"):
        fit("powr", x, log_p, "squared_log")
    with pytest.raises(LongshotError, match="did you mean"):
        fit("power", x, log_p, "squared")
    with pytest.raises(FloatingPointError):
        fit("power", x, np.array([-3.0, -INF]), "squared_log")
    with pytest.raises(FloatingPointError):
        fit("power", column([-1.0, math.nan]), log_p, "squared_log")
    with pytest.raises(ValueError, match="0 estimates for 0"):
        fit("power", x[:0], log_p[:0], "squared_log")
