"""From the estimates of one cell (method, inputs, model) to its numbers, and from cells to a mean.

Every estimate is judged by its truth p, which has a standard error of its own. A target that the
judging half of the truth never saw has p = 0: both losses are infinite there whatever the estimate,
and say nothing about it. Such targets are left out of fits and losses and counted in `unjudged`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from longshot.estimate import Estimate
from longshot.methods import METHODS
from longshot.study.fits import (
    FORMS,
    Features,
    Fit,
    LeaveOneOut,
    fit_and_leave_out,
    leave_one_out,
)
from longshot.study.losses import LOSSES, Array
from longshot.study.newton import Vector

NORMAL = 1.959963984540054
"""Half the width of a normal 95% interval, in standard errors."""

LossName = Literal["is", "log"]
LOSS_NAMES: Mapping[LossName, str] = {"is": "itakura_saito", "log": "squared_log"}


@dataclass(frozen=True)
class LossScore:
    """One loss of one method in one cell; a mean is None where it has nothing to average."""

    mean: float | None
    """After the fit, leave-one-out, each prediction kept within the truths that its fit has seen;
    None with fewer than two targets."""
    unclipped: float | None
    """The same with predictions left where the fit puts them, as in the paper."""
    clipped: int
    """How many predictions are not where the fit puts them."""
    raw: float | None
    """Without a fit, over the estimates that are not zero."""
    raw_zeros: float | None
    """Without a fit; a zero costs what the best constant, left out too, loses on its target."""
    noise_floor: float | None
    """About what the truth's error costs a perfect estimate: mean((se/p)²) of squared log error,
    half of that of Itakura-Saito."""
    fit: Fit | None
    """To all targets; None if there are none."""
    left_out: LeaveOneOut
    each_raw: Vector | None = None
    """What `raw_zeros` is the mean of; None for the constant."""


class Coverage(NamedTuple):
    """How many intervals were given, and how many of them cover the truth."""

    given: int
    covered: int

    @property
    def share(self) -> float | None:
        return self.covered / self.given if self.given else None


@dataclass(frozen=True)
class CellScore:
    """What one method is worth in one cell.

    The per-target arrays are those of the judged targets, in their order; `judged` says which of
    the given ones they are.
    """

    targets: int
    unjudged: int
    """Targets whose truth is zero; they are in none of the numbers below."""
    losses: Mapping[LossName, LossScore]
    zeros: int
    """Estimates that are zero."""
    coverage: Coverage
    judged: Bool[Array, " given"]
    log_p: Vector
    log_fitted: Vector
    """ln q of each target by the fit for Itakura-Saito, for plots after the fit."""


def form_of(method: str) -> str:
    """The fit of a method by its own word; a·x^c + b for one that is not installed here."""
    return METHODS[method].fit_form if method in METHODS else "power"


def score_cell(
    estimates: Sequence[Estimate],
    probability: Float64[Array, " given"],
    standard_error: Float64[Array, " given"],
) -> CellScore:
    """Fit and judge one method's estimates of one cell by the truth and its standard error."""
    if not len(estimates) == len(probability) == len(standard_error):
        raise ValueError(
            f"{len(estimates)} estimates, {len(probability)} truths, {len(standard_error)} errors"
        )
    methods = sorted({estimate.method for estimate in estimates})
    if len(methods) > 1:
        raise ValueError(f"one fit cannot serve several methods: {', '.join(methods)}")
    judged = _judged(probability)
    kept = [estimate for estimate, keep in zip(estimates, judged, strict=True) if keep]
    form = form_of(*methods) if methods else "power"
    return _score(form, kept, probability, standard_error, judged)


def score_constant(
    probability: Float64[Array, " given"], standard_error: Float64[Array, " given"]
) -> CellScore:
    """The baseline that every method must beat: the best constant, leave-one-out."""
    return _score("constant", None, probability, standard_error, _judged(probability))


def coverage(judged: Iterable[tuple[Estimate, float, float]]) -> Coverage:
    """Over estimates with their truth and its standard error, from one cell or many."""
    held = [covers(*each) for each in judged if each[0].is_two_sided]
    return Coverage(len(held), sum(held))


def pooled(parts: Iterable[Coverage]) -> Coverage:
    """The coverage of several cells: their intervals together, each counting once."""
    return Coverage(*map(sum, zip(Coverage(0, 0), *parts, strict=True)))


def covers(estimate: Estimate, probability: float, standard_error: float) -> bool:
    """Does the estimate's interval cover a truth that has noise of its own?

    The truth is known to within ±1.96·se/p on the log scale, and the interval speaks of the exact
    probability: each of its arms, from the estimate to its end on the log scale, is widened in
    quadrature by that much. An estimate of zero has no arm to widen; its upper end is moved up.
    This is the one meaning of coverage in tables, figures and benchmarks.
    """
    low, high = (math.log(end) if end > 0 else -math.inf for end in estimate.interval)
    reach, log_p = NORMAL * standard_error / probability, math.log(probability)
    centre = min(max(estimate.log_probability, low), high)
    if centre == -math.inf:
        return log_p <= high + reach
    if log_p < centre:
        return centre - log_p <= math.hypot(centre - low, reach)
    return log_p - centre <= math.hypot(high - centre, reach)


def average(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """The mean over cells and its standard error, without the cells that have no value.

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
    estimates: Sequence[Estimate] | None,
    probability: Float64[Array, " given"],
    standard_error: Float64[Array, " given"],
    judged: Bool[Array, " given"],
) -> CellScore:
    """Of the judged targets and their estimates, which the baseline has not."""
    p, error = probability[judged], standard_error[judged]
    log_p, log_x, features = np.log(p), None, np.empty((len(p), 0))
    triples: Iterable[tuple[Estimate, float, float]] = ()
    if estimates is not None:
        features = FORMS[form].features(estimates)
        log_x = np.array([e.log_probability for e in estimates], dtype=np.float64)
        triples = zip(estimates, p.tolist(), error.tolist(), strict=True)
    square = _mean((error / p) ** 2)
    floors = {"is": square and square / 2, "log": square}
    losses = {name: _loss(name, form, features, log_p, log_x, floors[name]) for name in LOSS_NAMES}
    fitted = losses["is"].fit
    return CellScore(
        targets=len(p),
        unjudged=len(judged) - len(p),
        losses=losses,
        zeros=0 if log_x is None else int((log_x == -math.inf).sum()),
        coverage=coverage(triples),
        judged=judged,
        log_p=log_p,
        log_fitted=log_p if fitted is None else fitted.predict(features),
    )


def _loss(
    name: LossName,
    form: str,
    features: Features,
    log_p: Vector,
    log_x: Vector | None,
    floor: float | None,
) -> LossScore:
    if not len(log_p):
        nothing = LeaveOneOut(log_p, log_p, log_p, log_p > 0)
        return LossScore(None, None, 0, None, None, floor, None, nothing)
    loss = LOSS_NAMES[name]
    fit, left_out = fit_and_leave_out(form, features, log_p, loss)
    raw = raw_zeros = each_raw = None
    if log_x is not None:
        losses, hit = LOSSES[loss](log_p, log_x), log_x > -math.inf
        raw = _mean(losses[hit])
        if not hit.all():
            losses = np.where(hit, losses, leave_one_out("constant", features, log_p, loss).losses)
        raw_zeros, each_raw = _mean(losses), losses
    return LossScore(
        mean=_mean(left_out.losses),
        unclipped=_mean(left_out.losses_unclipped),
        clipped=int(left_out.clipped.sum()),
        raw=raw,
        raw_zeros=raw_zeros,
        noise_floor=floor,
        fit=fit,
        left_out=left_out,
        each_raw=each_raw,
    )


def _judged(probability: Float64[Array, " given"]) -> Bool[Array, " given"]:
    if not ((probability >= 0) & (probability <= 1)).all():
        raise FloatingPointError("a truth is not a probability")
    return probability > 0


def _mean(values: Array) -> float | None:
    """None of nothing, and where a lone target was left out of its fit."""
    return None if not len(values) or np.isnan(values).any() else float(np.mean(values))
