"""From the estimates of one cell (method, inputs, model) to its numbers, and from cells to a mean.

Every estimate is judged by its truth p, which has a standard error of its own. A target that the
judging half of the truth never saw has p = 0: both losses are infinite there whatever the estimate,
and say nothing about it. Such targets are left out of fits and losses and counted in `unjudged`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from longshot.estimate import Estimate
from longshot.study.fits import Features, Fit, LeaveOneOut, fit_and_leave_out
from longshot.study.losses import LOSSES, Array
from longshot.study.newton import Vector

NORMAL = 1.959963984540054
"""Half the width of a normal 95% interval, in standard errors."""


@dataclass(frozen=True)
class CellScore:
    """What one method is worth in one cell.

    The per-target arrays are those of the judged targets, in their order; `judged` says which of
    the given ones they are. A mean is None where it has nothing to average.
    """

    targets: int
    unjudged: int
    """Targets whose truth is zero; they are in none of the numbers below."""
    is_loss: float | None
    """Itakura-Saito, leave-one-out, after the fit; None with fewer than two targets."""
    is_loss_raw: float | None
    """Without a fit, over the estimates that are not zero."""
    log_mse: float | None
    """Squared log error, leave-one-out, after a fit of its own."""
    log_mse_raw: float | None
    zeros: float | None
    """Share of estimates that are zero."""
    noise_floor: float | None
    """mean((se/p)²)/2: about what the truth's error costs a perfect estimate in `is_loss`."""
    noise_floor_log: float | None
    """mean((se/p)²): the same in `log_mse`."""
    coverage: float | None
    """Share of the given intervals that cover the truth, widened for its error."""
    intervals: float | None
    """Share of targets that were given an interval."""
    is_fit: Fit | None
    """To all targets; None if there are none."""
    log_fit: Fit | None
    is_left_out: LeaveOneOut
    log_left_out: LeaveOneOut
    judged: Bool[Array, " given"]
    log_p: Vector
    log_fitted: Vector
    """ln q of each target by `is_fit`, for plots after the fit."""


def score_cell(
    estimates: Sequence[Estimate],
    probability: Float64[Array, " given"],
    standard_error: Float64[Array, " given"],
) -> CellScore:
    """Fit and judge one method's estimates of one cell by the truth and its standard error.

    Estimates of GLD take its own form of fit, all others a·x^c + b.
    """
    if not len(estimates) == len(probability) == len(standard_error):
        raise ValueError(
            f"{len(estimates)} estimates, {len(probability)} truths, {len(standard_error)} errors"
        )
    methods = sorted({estimate.method for estimate in estimates})
    if len(methods) > 1:
        raise ValueError(f"one fit cannot serve several methods: {', '.join(methods)}")
    judged = _judged(probability)
    kept = [estimate for estimate, keep in zip(estimates, judged, strict=True) if keep]
    p, error = probability[judged], standard_error[judged]
    log_x = np.array([estimate.log_probability for estimate in kept], dtype=np.float64)
    if methods == ["gld"]:
        form, features = "gld", _moments(kept)
    else:
        form, features = "power", log_x[:, None]
    hit = log_x > -math.inf
    covered = [
        covers(estimate, truth, its_error)
        for estimate, truth, its_error in zip(kept, p.tolist(), error.tolist(), strict=True)
        if estimate.interval is not None
    ]
    return _score(
        form,
        features,
        p,
        error,
        judged,
        raw={name: _mean(loss(np.log(p[hit]), log_x[hit])) for name, loss in LOSSES.items()},
        zeros=_mean(~hit),
        coverage=_mean(covered),
        intervals=len(covered) / len(kept) if kept else None,
    )


def score_constant(
    probability: Float64[Array, " given"], standard_error: Float64[Array, " given"]
) -> CellScore:
    """The baseline that every method must beat: the best constant, leave-one-out."""
    judged = _judged(probability)
    p, error = probability[judged], standard_error[judged]
    return _score("constant", np.empty((len(p), 0)), p, error, judged, raw={})


def covers(estimate: Estimate, probability: float, standard_error: float) -> bool:
    """Does the estimate's interval cover a truth that has noise of its own?

    The truth is known to within ±1.96·se/p on the log scale, and the interval speaks of the exact
    probability: each of its arms, from the estimate to its end on the log scale, is widened in
    quadrature by that much. An estimate of zero has no arm to widen; its upper end is moved up.
    """
    assert estimate.interval is not None
    low, high = (math.log(end) if end > 0 else -math.inf for end in estimate.interval)
    reach, log_p = NORMAL * standard_error / probability, math.log(probability)
    centre = min(max(estimate.log_probability, low), high)
    if centre == -math.inf:
        return log_p <= high + reach
    if log_p < centre:
        return centre - log_p <= math.hypot(centre - low, reach)
    return log_p - centre <= math.hypot(high - centre, reach)


def average(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Mean over cells and its standard error, without the cells that have no value.

    One cell has no standard error.
    """
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if not len(known):
        return None, None
    if len(known) == 1 or not np.isfinite(known).all():
        return float(known.mean()), None
    return float(known.mean()), float(known.std(ddof=1)) / math.sqrt(len(known))


def _score(
    form: str,
    features: Features,
    p: Vector,
    error: Vector,
    judged: Bool[Array, " given"],
    *,
    raw: Mapping[str, float | None],
    zeros: float | None = None,
    coverage: float | None = None,
    intervals: float | None = None,
) -> CellScore:
    log_p = np.log(p)
    names = ("itakura_saito", "squared_log")
    is_fit: Fit | None = None
    log_fit: Fit | None = None
    is_left_out = log_left_out = LeaveOneOut(log_p, log_p, log_p > 0)
    if len(p):
        (is_fit, is_left_out), (log_fit, log_left_out) = (
            fit_and_leave_out(form, features, log_p, name) for name in names
        )
    square = _mean((error / p) ** 2)
    return CellScore(
        targets=len(p),
        unjudged=len(judged) - len(p),
        is_loss=_mean(is_left_out.losses) if len(p) > 1 else None,
        is_loss_raw=raw.get("itakura_saito"),
        log_mse=_mean(log_left_out.losses) if len(p) > 1 else None,
        log_mse_raw=raw.get("squared_log"),
        zeros=zeros,
        noise_floor=None if square is None else square / 2,
        noise_floor_log=square,
        coverage=coverage,
        intervals=intervals,
        is_fit=is_fit,
        log_fit=log_fit,
        is_left_out=is_left_out,
        log_left_out=log_left_out,
        judged=judged,
        log_p=log_p,
        log_fitted=log_p if is_fit is None else is_fit.predict(features),
    )


def _judged(probability: Float64[Array, " given"]) -> Bool[Array, " given"]:
    if not ((probability >= 0) & (probability <= 1)).all():
        raise FloatingPointError("a truth is not a probability")
    return probability > 0


def _moments(estimates: Sequence[Estimate]) -> Features:
    rows = [(e.statistics["mu"], e.statistics["sigma"]) for e in estimates]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def _mean(values: Sequence[bool] | Array) -> float | None:
    return float(np.mean(values)) if len(values) else None
