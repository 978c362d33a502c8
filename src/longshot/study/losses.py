"""How far an estimate q is from the truth p (Wu and Hilton 2024, section 4.1 and appendix H).

    Itakura-Saito:   p/q − ln(p/q) − 1
    squared log:     (ln p − ln q)²

Both depend on r = ln p − ln q alone, are convex in it and 0 at r = 0. An estimate of zero costs
+inf. A truth of zero has no loss: what was never seen can not judge an estimate, so it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from longshot.errors import unknown_name

Array = np.ndarray


@dataclass(frozen=True)
class Loss:
    """A loss as a function of r = ln p − ln q, and its first two derivatives by ln q.

    `log_constant` is the logarithm of the one q that suits given ln p best, for each row of them;
    a NaN among them is a truth that does not count.
    """

    name: str
    of: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    curvature: Callable[[Array], Array]
    log_constant: Callable[[Array], Array]

    def __call__(
        self, log_p: Float64[Array, " target"], log_q: Float64[Array, " target"]
    ) -> Float64[Array, " target"]:
        if not np.isfinite(log_p).all() or np.isnan(log_q).any():
            raise FloatingPointError("a loss needs a truth above zero and an estimate")
        with np.errstate(over="ignore"):  # beyond e^709 it is +inf, as at q = 0
            return np.where(log_q > -np.inf, self.of(log_p - np.maximum(log_q, -1e300)), np.inf)


def _log_mean(log_p: Array) -> Array:
    known = ~np.isnan(log_p)
    total = np.logaddexp.reduce(np.where(known, log_p, -np.inf), axis=-1)
    return np.asarray(total - np.log(known.sum(-1)))


ITAKURA_SAITO = Loss(
    "itakura_saito",
    of=lambda r: np.expm1(r) - r,
    slope=lambda r: -np.expm1(r),
    curvature=np.exp,
    log_constant=_log_mean,
)

SQUARED_LOG = Loss(
    "squared_log",
    of=np.square,
    slope=lambda r: -2 * r,
    curvature=lambda r: np.full_like(r, 2.0),
    log_constant=lambda log_p: np.nanmean(log_p, axis=-1),
)

LOSSES: Mapping[str, Loss] = {loss.name: loss for loss in (ITAKURA_SAITO, SQUARED_LOG)}


def find_loss(name: str) -> Loss:
    """The loss of this name."""
    if name not in LOSSES:
        raise unknown_name("loss", name, LOSSES)
    return LOSSES[name]
