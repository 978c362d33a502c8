"""The fits that stand between a method's output and its loss (Wu and Hilton 2024, section 4.2).

    power:     q = a·x^c + b                          a, b, c > 0
    gaussian:  q = exp(−(a·μ/(σ + ε))² + b) + c       a, ε, c > 0
    constant:  q = b                                  mean of p, or geometric mean for squared log

A method names its form; one from another package may add a form of its own to `FORMS`.

Power and gaussian are one curve, a level under a decaying branch, in logarithms

    ln q = logaddexp(α − e^γ·(v − v₀), β),   v = −ln x   or   v = (m/D)²,

with m = |μ|/σ̄, D = (1 − w)·σ/σ̄ + w and w = ε/(ε + σ̄) the logistic function of ω; v₀ is the
smallest v, so that α is the log height of the branch where it is highest. No θ = (α, β, γ, ω)
leaves the domain, x = 0 is v = ∞ and gives q = e^β, and every limit of a, b, c or ε that a fit may
want (0 or ∞) is a flat end of the curve and not an overflow.

The mean loss is not convex. It is first read off a grid of θ that the data's own quantiles place;
Newton's method (damped, with the eigenvalues of the Hessian made positive) then starts from the
grid's best points. All folds of a leave-one-out, times all their starts, are one batch: the grid's
losses are kept target by target, so each fold reads off starts of its own, besides the full fit's
optima.

Where data leave θ undetermined, the fit nearest to c = 1 is taken (by a ridge on γ and ω too weak
to see in the loss), and where the branch gains nothing, there is none (a = 0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int

from longshot.errors import LongshotError, unknown_name
from longshot.estimate import Estimate
from longshot.study.losses import Array, Loss, find_loss
from longshot.study.newton import FLAT, STEEP, Curve, Vector, evaluate, newton

TIE = 1e-7
"""In mean loss: what a branch must gain over the constant to be kept."""
_STARTS = {3: 3, 4: 8}  # by the size of θ, for 64 targets; more for fewer
_FEW = 12  # targets, of which one may change everything
_SAMPLE = 128  # targets that a grid looks at; the loss of more of them has the same valleys
_HEAT = 12  # steps after which only the better half of the starts goes on
_WARM = 4  # of the full fit's optima, for each target that is left out
_OWN = 2  # and points of its own grid

Features = Float64[Array, "target feature"]


@dataclass(frozen=True)
class Fit:
    """A fitted form: its parameters by name, and its mean loss on the targets it was fitted to.

    Logarithms stand where a value may be too large or too small for a double.
    """

    form: str
    loss: str
    parameters: Mapping[str, float]
    in_sample: float

    def predict(self, features: Features) -> Vector:
        """ln q of each target."""
        log_q: Vector = FORMS[self.form].predict(features, self.parameters)
        return log_q


@dataclass(frozen=True)
class LeaveOneOut:
    """Each target under the fit to all others; NaN where there are no others.

    A prediction is kept within the truths that its fit has seen, which the paper does not do.
    Without that a fit could lose without bound: a lone estimate of zero gets q = b, and b → 0 is
    the best fit to the others whenever they are convex enough; c → ∞ throws the largest estimate
    beyond 1 in the same way. `clipped` marks the predictions that were moved, and
    `losses_unclipped` is what all would lose where the fit puts them (b is at least e^−40 of the
    smallest truth there).
    """

    losses: Vector
    log_q: Vector
    losses_unclipped: Vector
    clipped: Bool[Array, " target"]


def fit(form: str, features: Features, log_p: Vector, loss: str) -> Fit:
    """The form's best fit to all targets."""
    return _Fitting(form, features, log_p, loss).fit()


def leave_one_out(form: str, features: Features, log_p: Vector, loss: str) -> LeaveOneOut:
    """Refit without each target in turn, and what that fit loses on the target."""
    return _Fitting(form, features, log_p, loss).leave_one_out()


def fit_and_leave_out(
    form: str, features: Features, log_p: Vector, loss: str
) -> tuple[Fit, LeaveOneOut]:
    """Both, for little more than the second alone."""
    fitting = _Fitting(form, features, log_p, loss)
    return fitting.fit(), fitting.leave_one_out()


class _Fitting:
    """One form, one set of targets, one loss; the fit to all of them is found once."""

    def __init__(self, form: str, features: Features, log_p: Vector, loss: str) -> None:
        self.form, self.features, self.log_p, self.loss = form, features, log_p, loss
        if form not in FORMS:
            raise unknown_name("form", form, FORMS)
        if len(features) != len(log_p) or not len(log_p):
            raise ValueError(f"{len(features)} estimates for {len(log_p)} truths")
        if not np.isfinite(log_p).all():
            raise FloatingPointError("a fit needs truths above zero")
        if np.isnan(features).any() or (features == np.inf).any():
            raise FloatingPointError("an estimate is NaN or infinite")
        self.how, self.measure = FORMS[form], find_loss(loss)
        self.curve = self.how.curve(features)
        self.full = _full(self.curve, log_p, self.measure) if self.curve else None

    def fit(self) -> Fit:
        everyone = np.ones((1, len(self.log_p)), dtype=bool)
        theta = self.full.optima[:1] if self.full else np.full((1, 4), np.nan)
        theta, _ = _or_constant(self.curve, self.log_p, self.measure, everyone, theta)
        parameters = self.how.parameters(self.curve, theta[0])
        log_q = self.how.predict(self.features, parameters)
        lost = float(self.measure(self.log_p, log_q).mean())
        return Fit(self.form, self.loss, parameters, lost)

    def leave_one_out(self) -> LeaveOneOut:
        log_p, curve, full, n = self.log_p, self.curve, self.full, len(self.log_p)
        if n < 2:
            nothing = np.full(n, np.nan)
            return LeaveOneOut(nothing, nothing, nothing, np.zeros(n, dtype=bool))
        others = ~np.eye(n, dtype=bool)
        if curve is None or full is None:
            theta = np.full((n, 4), np.nan)
        else:
            theta = _left_out(curve, log_p, self.measure, full)
        theta, alone = _or_constant(curve, log_p, self.measure, others, theta)
        if curve is None:
            free = theta[:, 1]
        else:
            free = np.where(alone, theta[:, 1], curve.log_q(theta)[~others])
        spread = np.where(others, log_p, np.nan)
        log_q = np.clip(free, np.nanmin(spread, 1), np.nanmax(spread, 1))
        losses, unclipped = (self.measure(log_p, each) for each in (log_q, free))
        return LeaveOneOut(losses, log_q, unclipped, log_q != free)


# --- the curves


def _power_curve(features: Features) -> Curve | None:
    log_x = features[:, 0]
    has = log_x > -np.inf
    v = np.where(has, -log_x, 0.0)[None]
    none = np.zeros_like(v)
    return Curve(has, lambda omega: (v, none, none), (0.0,)) if has.any() else None


def _gaussian_curve(features: Features) -> Curve:
    mu, sigma = features.T
    unit = float(np.median(sigma)) or float(sigma.mean()) or 1.0
    m2, s = (mu / unit) ** 2, sigma / unit

    def depth(omega: Array) -> tuple[Array, Array, Array]:
        w = 1 / (1 + np.exp(-omega))
        D, slope = (1 - w) * s + w, w * (1 - w)
        v = m2 / D**2
        by_w = -2 * v * (1 - s) / D
        by_w2 = 6 * v * ((1 - s) / D) ** 2
        return v, by_w * slope, by_w2 * slope**2 + by_w * slope * (1 - 2 * w)

    omegas = tuple(6 * np.sinh(np.linspace(-1.2, 1, 9 if len(mu) > 32 else 25)))
    return Curve(np.ones(len(mu), dtype=bool), depth, omegas, unit)


# --- the forms


@dataclass(frozen=True)
class Form:
    """How features become a curve, θ becomes parameters, and those predict.

    The features are the `statistics` of an estimate that the form names, or else its logarithm.
    """

    curve: Callable[[Features], Curve | None]
    parameters: Callable[[Curve | None, Array], dict[str, float]]
    predict: Callable[[Features, Mapping[str, float]], Array]
    statistics: tuple[str, ...] = ()

    def features(self, estimates: Sequence[Estimate]) -> Features:
        """One row for each estimate."""
        lacking = next((e for e in estimates if not {*self.statistics} <= {*e.statistics}), None)
        if lacking is not None:
            names = " and ".join(self.statistics)
            raise LongshotError(
                f"An estimate of {lacking.method} lacks {names}, which its fit needs."
            )
        rows = [
            [e.statistics[n] for n in self.statistics] or [e.log_probability] for e in estimates
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, len(self.statistics) or 1)


def _power_parameters(curve: Curve | None, theta: Array) -> dict[str, float]:
    return {"log_a": float(theta[0]), "log_b": float(theta[1]), "c": float(np.exp(theta[2]))}


def _power_predict(features: Features, p: Mapping[str, float]) -> Array:
    log_q: Array = np.logaddexp(p["log_a"] + p["c"] * features[:, 0], p["log_b"])
    return log_q


def _gaussian_parameters(curve: Curve | None, theta: Array) -> dict[str, float]:
    assert curve is not None
    a, b, gamma, omega = theta.tolist()
    w = 1 / (1 + np.exp(-omega))
    return {
        "a": float(np.exp(gamma / 2) / (1 - w)),
        "epsilon": float(curve.unit * np.exp(omega)),
        "b": a,
        "log_c": b,
    }


def _gaussian_predict(features: Features, p: Mapping[str, float]) -> Array:
    mu, sigma = features.T
    z = mu / (sigma + p["epsilon"])
    log_q: Array = np.logaddexp(p["b"] - (p["a"] * z) ** 2, p["log_c"])
    return log_q


FORMS: dict[str, Form] = {
    "power": Form(_power_curve, _power_parameters, _power_predict),
    "gaussian": Form(
        _gaussian_curve, _gaussian_parameters, _gaussian_predict, statistics=("mu", "sigma")
    ),
    "constant": Form(
        lambda features: None,
        lambda curve, theta: {"log_b": float(theta[1])},
        lambda features, p: np.full(len(features), p["log_b"]),
    ),
}


# --- where to start


class _Grid(NamedTuple):
    """θ at every point, in blocks of one (ω, γ, β), and the loss of every target there."""

    theta: Float64[Array, "omega gamma beta alpha 4"]
    losses: Float32[Array, "omega gamma beta alpha target"]

    @property
    def total(self) -> Float64[Array, "omega gamma beta alpha"]:
        return np.asarray(self.losses.sum(-1, dtype=np.float64))

    def best(
        self, total: Float64[Array, "omega gamma beta alpha fit"], count: int
    ) -> tuple[Int[Array, "fit start"], Float64[Array, "fit start 4"]]:
        """Starts for each fit: the best points of blocks that are no worse than their neighbours.

        Fewer such blocks than `count` are filled up with the best of the others. Their numbers
        come first.
        """
        fits = total.shape[-1]
        alpha = total.argmin(3)
        least = np.take_along_axis(total, alpha[:, :, :, None], 3)[:, :, :, 0]
        valley = np.ones(least.shape, dtype=bool)
        for axis in range(3):
            rise = np.diff(least, axis=axis) >= 0
            end = np.ones_like(np.take(least, [0], axis), dtype=bool)
            valley &= np.concatenate([rise, end], axis)  # no worse than the next
            valley &= np.concatenate([end, ~rise], axis)  # better than the last
        rank = np.where(valley, least, least + 1e35).reshape(-1, fits)
        order = rank.argsort(0, kind="stable")[:count].T
        points = alpha.reshape(-1, fits)[order, np.arange(fits)[:, None]]
        return order, self.theta.reshape(len(rank), -1, 4)[order, points]


def _grid(curve: Curve, log_p: Vector, loss: Loss) -> _Grid:
    low = log_p.min()
    looked = np.argsort(log_p)[np.linspace(0, len(log_p) - 1, min(len(log_p), _SAMPLE)).astype(int)]
    looked.sort()
    betas = np.append(low - np.array([FLAT, 12, 4, 1]), np.quantile(log_p, np.linspace(0, 1, 8)))
    steepness = np.linspace(np.log(0.03), np.log(3000), 14)  # γ, over the whole range of v
    shares = np.linspace(0, 1, 15 if curve.size == 3 else 9) ** 2  # more where the branch is high
    theta = np.empty((len(curve.omegas), len(steepness), len(betas), len(shares), 4))
    for i, omega in enumerate(curve.omegas):
        v = curve.depth(np.full((1, 1), omega))[0][0, curve.has]
        gamma = np.clip(steepness - np.log(np.ptp(v) or 1.0), -STEEP, STEEP)
        heights = log_p[curve.has] + np.exp(gamma)[:, None] * v
        theta[i, ..., 0] = np.quantile(heights, shares, axis=1).T[:, None]
        theta[i, ..., 1] = betas[:, None]
        theta[i, ..., 2] = gamma[:, None, None]
        theta[i, ..., 3] = omega
    v = curve.depth(np.array(curve.omegas)[:, None])[0][:, looked]
    fall = (np.exp(theta[:, :, 0, 0, 2])[..., None] * v[:, None]).astype(np.float32)
    a, b = (theta[..., i, None].astype(np.float32) for i in (0, 1))
    branch = np.where(curve.has[looked], a - fall[:, :, None, None], np.float32(-1e30))
    with np.errstate(over="ignore"):
        log_q = np.maximum(branch, b) + np.log1p(np.exp(-np.abs(branch - b)))
        losses = loss.of(log_p[looked].astype(np.float32) - log_q)
    return _Grid(theta, np.minimum(losses, 1e30))  # so that they subtract


def _starts(curve: Curve) -> int:
    """From how many points to start a fold: of its own grid, and of the full fit's optima.

    Few targets are the harder case: what fits four of them exactly may be hidden in a corner.
    """
    return _STARTS[curve.size] * min(max(1, 64 // len(curve.has)), 8)


class _Full(NamedTuple):
    grid: _Grid
    optima: Float64[Array, "optimum 4"]
    """Of the fit to all targets, the best first."""
    tried: Int[Array, " start"]
    """The blocks of the grid that they were started from."""


def _full(curve: Curve, log_p: Vector, loss: Loss) -> _Full:
    grid = _grid(curve, log_p, loss)
    tried, starts = (each[0] for each in grid.best(grid.total[..., None], 6 * _starts(curve)))
    everyone = np.ones((len(starts), len(log_p)), dtype=bool)
    theta, value = newton(curve, log_p, loss, everyone, starts, steps=_HEAT)
    theta = _distinct(theta, value, 4)[: 3 * _starts(curve)]
    theta, value = newton(curve, log_p, loss, everyone[: len(theta)], theta)
    return _Full(grid, _distinct(theta, value, 6), tried)


def _distinct(
    theta: Float64[Array, "start 4"], value: Float64[Array, " start"], digits: int
) -> Float64[Array, "optimum 4"]:
    """One θ of each value, the least first."""
    order = value.argsort(kind="stable")
    _, first = np.unique(value[order].round(digits), return_index=True)
    found: Array = theta[order[first]]
    return found


def _left_out(curve: Curve, log_p: Vector, loss: Loss, full: _Full) -> Float64[Array, "target 4"]:
    """The best fit to all targets but one, for each of them.

    Its starts are the full fit's optima that promise most once the target is gone, and the points
    of the grid that are good for the others only.
    """
    n, folds = len(log_p), np.arange(len(log_p))
    optima = full.optima[: 2 * _starts(curve)]
    warm = _promising(curve, log_p, loss, optima)
    fold, theta = [np.repeat(folds, warm.shape[1])], [optima[warm].reshape(-1, 4)]
    if n <= _SAMPLE:
        blocks, starts = full.grid.best(
            full.grid.total[..., None] - full.grid.losses, _OWN if n > _FEW else _starts(curve)
        )
        new = ~np.isin(blocks, full.tried) if n > _FEW else np.ones(blocks.shape, dtype=bool)
        fold.append(np.broadcast_to(folds[:, None], new.shape)[new])
        theta.append(starts[new])
    which = np.concatenate(fold)
    parts = [
        newton(curve, log_p, loss, folds != f[:, None], t, damping, steps)
        for f, t, damping, steps in zip(fold, theta, (1e-8, 1e-3), (100, 40), strict=False)
        if len(f)
    ]
    found, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((value, which))
    first = np.searchsorted(which[order], folds)
    best: Array = found[order[first]]
    return best


def _promising(
    curve: Curve, log_p: Vector, loss: Loss, optima: Float64[Array, "optimum 4"]
) -> Int[Array, "target start"]:
    """Which optima to start from without each target: those of the least loss after one step.

    With target i gone, an optimum of n·F has the loss n·F − ℓᵢ and the gradient −gᵢ: Newton's step
    takes off ½·gᵢᵀ(nH)⁻¹gᵢ.
    """
    n, size = len(log_p), curve.size
    everyone = np.full((len(optima), n), 1 / n)
    depth = np.broadcast_to(curve.depth(optima[:, 3:])[0], everyone.shape)
    reference = np.where(curve.has, depth, np.inf).argmin(1)[:, None]
    theta = optima[:, :size].copy()
    theta[:, 0] -= np.exp(optima[:, 2]) * np.take_along_axis(depth, reference, 1)[:, 0]
    with np.errstate(over="ignore", invalid="ignore"):
        point = evaluate(curve, log_p, loss, everyone, reference, theta)
        own = loss.of(log_p - curve.log_q(optima)) / n
    values, vectors = np.linalg.eigh(point.hessian)
    along = vectors.mT @ point.pulls
    gain = (along**2 / (np.abs(values) + 1e-3 / n)[:, :, None]).sum(1) / 2
    after: Array = point.value[:, None] - own - gain
    kept: Array = after.argsort(0, kind="stable")[:_WARM].T
    return kept


def _or_constant(
    curve: Curve | None,
    log_p: Vector,
    loss: Loss,
    fitted: Bool[Array, "fit target"],
    theta: Float64[Array, "fit 4"],
) -> tuple[Float64[Array, "fit 4"], Bool[Array, " fit"]]:
    """θ, or a = 0 and the best constant wherever the branch gains nothing."""
    count = fitted.sum(1)
    level = loss.log_constant(np.where(fitted, log_p, np.nan))
    constant = (loss.of(log_p - level[:, None]) * fitted).sum(1) / count
    if curve is None:
        alone = np.ones(len(theta), dtype=bool)
    else:
        with np.errstate(over="ignore"):
            losses = loss.of(np.where(fitted, log_p - curve.log_q(theta), 0.0))
        alone = ~(losses.sum(1) / count < constant - TIE)
    level_only = np.stack([np.full_like(level, -np.inf), level, 0 * level, 0 * level], 1)
    return np.where(alone[:, None], level_only, theta), alone
