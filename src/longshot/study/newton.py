"""Newton's method on many small fits at once: one curve, many subsets of its targets, many starts.

A fit's loss is the mean over its own targets of a loss of ln p − ln q, with

    ln q = logaddexp(α − e^γ·(v − v₀), β),    θ = (α, β, γ) or (α, β, γ, ω) where v depends on ω.

Steps are damped, with the eigenvalues of the Hessian made positive; θ is kept within bounds beyond
which the curve is flat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from longshot.study.losses import Array, Loss

RIDGE = 1e-8  # on γ and ω, too weak to see in the loss
FLAT = 40.0  # e^−40 of the smallest truth is nothing beside it
STEEP = 14.0  # bound on |γ|
_EDGE = 25.0  # bound on |ω|
_PROMISE = 1e-12  # of mean loss
_BLOCK = 2**15  # numbers in an array
Vector = Float64[Array, " target"]


@dataclass(frozen=True)
class Curve:
    """The depth v of every target, which says how far down the branch of ln q it lies."""

    has: Bool[Array, " target"]
    """Which targets have a branch: an estimate of zero has only the level β."""
    depth: Callable[[Array], tuple[Array, Array, Array]]
    """The depths and their first two derivatives by ω: a row for each ω of a column."""
    omegas: tuple[float, ...]
    """The values of ω that the grid tries; a single one if the depth does not depend on ω."""
    unit: float = 1.0
    """What σ is divided by before the fit."""

    @property
    def size(self) -> int:
        return 3 if len(self.omegas) == 1 else 4

    def log_q(self, theta: Float64[Array, "fit 4"]) -> Float64[Array, "fit target"]:
        """ln q of every target under each θ, with v₀ = 0."""
        a, b, gamma, omega = theta.T[:, :, None]
        branch: Array = np.where(self.has, a - np.exp(gamma) * self.depth(omega)[0], -np.inf)
        log_q: Array = np.logaddexp(branch, b)
        return log_q


class Point(NamedTuple):
    """The mean loss of each fit, ridge included, with its gradient and Hessian by θ.

    `pulls` is each target's part of the gradient, the ridge's apart.
    """

    value: Float64[Array, " fit"]
    gradient: Float64[Array, "fit size"]
    hessian: Float64[Array, "fit size size"]
    pulls: Float64[Array, "fit size target"]


def evaluate(
    curve: Curve,
    log_p: Vector,
    loss: Loss,
    weight: Float64[Array, "fit target"],
    reference: Array,
    theta: Float64[Array, "fit size"],
) -> Point:
    """The mean loss and its derivatives at θ, where v₀ is the depth of the `reference` target.

    With s the branch's share of q and ℓ the branch's logarithm,

    ∇ln q = s·∇ℓ + (1 − s)·∇β,    ∇²ln q = s(1 − s)·(∇ℓ − ∇β)(∇ℓ − ∇β)ᵀ + s·∇²ℓ.
    """
    size = theta.shape[1]
    alpha, beta, gamma = theta.T[:3, :, None]
    omega = theta[:, 3:] if size == 4 else np.zeros_like(alpha)
    v, v1, v2 = curve.depth(omega)
    v0, v01, v02 = (
        np.take_along_axis(np.broadcast_to(d, weight.shape), reference, 1) for d in (v, v1, v2)
    )
    C = np.where(curve.has, np.exp(gamma), 0.0)
    by_gamma, by_omega, by_omega2 = -C * (v - v0), -C * (v1 - v01), -C * (v2 - v02)
    branch = np.where(curve.has, alpha + by_gamma, -np.inf)
    log_q = np.logaddexp(branch, beta)
    s, t = np.exp(branch - log_q), np.exp(beta - log_q)
    r = np.where(weight > 0, log_p - log_q, 0.0)
    slope, curvature = weight * loss.slope(r), weight * loss.curvature(r)
    by_log_q = slope * s
    one = np.ones_like(s)
    along = np.stack([one, -one, by_gamma, by_omega][:size], 1)  # ∇ℓ − ∇β
    jacobian = along * s[:, None]
    jacobian[:, 1] = t
    hessian = (jacobian * curvature[:, None]) @ jacobian.mT
    hessian += (along * (by_log_q * t)[:, None]) @ along.mT
    hessian[:, 2, 2] += (by_log_q * by_gamma).sum(1)
    if size == 4:
        cross = (by_log_q * by_omega).sum(1)
        hessian[:, 2, 3] += cross
        hessian[:, 3, 2] += cross
        hessian[:, 3, 3] += (by_log_q * by_omega2).sum(1)
    pulls = jacobian * slope[:, None]
    gradient = pulls.sum(2)
    gradient[:, 2:] += 2 * RIDGE * theta[:, 2:]
    hessian[:, range(2, size), range(2, size)] += 2 * RIDGE
    value = (weight * loss.of(r)).sum(1) + RIDGE * np.square(theta[:, 2:]).sum(1)
    return Point(value, gradient, hessian, pulls)


def _step(
    point: Point, damping: Float64[Array, " fit"], held: Bool[Array, "fit size"]
) -> tuple[Float64[Array, "fit size"], Float64[Array, " fit"]]:
    """−(|H| + damping)⁻¹·∇, leaving alone what is held at its bound; and ∇ᵀ|H|⁻¹∇."""
    free = ~held
    hessian = np.where(free[:, :, None] & free[:, None, :], point.hessian, np.eye(held.shape[1]))
    values, vectors = np.linalg.eigh(hessian)
    stiffness = np.abs(values) + 1e-15
    along = (vectors.mT @ np.where(free, point.gradient, 0.0)[:, :, None])[:, :, 0]
    promise = (along**2 / stiffness).sum(1)
    step = -(vectors @ (along / (stiffness + damping[:, None]))[:, :, None])[:, :, 0]
    longest = np.abs(step).max(1, keepdims=True)
    return step * np.minimum(1.0, 3.0 / np.maximum(longest, 1e-300)), promise


def newton(
    curve: Curve,
    log_p: Vector,
    loss: Loss,
    fitted: Bool[Array, "fit target"],
    starts: Float64[Array, "fit 4"],
    damping: float = 1e-3,
    steps: int = 200,
) -> tuple[Float64[Array, "fit 4"], Float64[Array, " fit"]]:
    """Minimise every fit's mean loss over its own targets, from its own start.

    A fit is done, and leaves the batch, when Newton's step promises next to nothing. Fits go in
    blocks whose arrays stay in the processor's cache.
    """
    block = max(1, _BLOCK // fitted.shape[1])
    cuts = [slice(i, i + block) for i in range(0, len(starts), block)]
    parts = [_newton(curve, log_p, loss, fitted[cut], starts[cut], damping, steps) for cut in cuts]
    theta, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    return theta, value


def _newton(
    curve: Curve,
    log_p: Vector,
    loss: Loss,
    fitted: Bool[Array, "fit target"],
    starts: Float64[Array, "fit 4"],
    first: float,
    steps: int,
) -> tuple[Float64[Array, "fit 4"], Float64[Array, " fit"]]:
    size = curve.size
    depth = np.broadcast_to(curve.depth(starts[:, 3:])[0], fitted.shape)
    reference = np.where(fitted & curve.has, depth, np.inf).argmin(1)[:, None]
    low = np.where(fitted, log_p, np.inf).min(1) - FLAT
    lower = np.stack([low, low, 0 * low - STEEP, 0 * low - _EDGE], 1)[:, :size]
    upper = np.array([np.inf, np.inf, STEEP, _EDGE])[:size]
    final = starts.copy()
    final[:, 0] -= np.exp(starts[:, 2]) * np.take_along_axis(depth, reference, 1)[:, 0]
    final[:, :size] = np.clip(final[:, :size], lower, upper)
    value = np.empty(len(final))

    at = np.arange(len(final))  # the fits still at work
    theta, weight, damping = final[:, :size], fitted / fitted.sum(1, keepdims=True), 0 * low + first
    with np.errstate(over="ignore", invalid="ignore"):
        point = evaluate(curve, log_p, loss, weight, reference, theta)
        for _ in range(steps):
            held = (theta <= lower[at]) & (point.gradient > 0)
            held |= (theta >= upper) & (point.gradient < 0)
            step, promise = _step(point, damping, held)
            going = (promise > _PROMISE) & (damping < 1e12)
            if not going.all():
                final[at, :size], value[at] = theta, point.value
                at, theta, damping, step = at[going], theta[going], damping[going], step[going]
                point = Point(*(part[going] for part in point))
                if not len(at):
                    break
            trial = np.clip(theta + step, lower[at], upper)
            new = evaluate(curve, log_p, loss, weight[at], reference[at], trial)
            better = (new.value < point.value) & np.isfinite(new.hessian).all((1, 2))
            theta = np.where(better[:, None], trial, theta)
            point = Point(
                np.where(better, new.value, point.value),
                np.where(better[:, None], new.gradient, point.gradient),
                np.where(better[:, None, None], new.hessian, point.hessian),
                new.pulls,  # nobody asks on the way
            )
            damping = np.where(better, damping / 10, damping * 8)
    if len(at):
        final[at, :size], value[at] = theta, point.value
    depth = np.broadcast_to(curve.depth(final[:, 3:])[0], fitted.shape)
    final[:, 0] += np.exp(final[:, 2]) * np.take_along_axis(depth, reference, 1)[:, 0]
    return final, value
