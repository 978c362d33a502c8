"""The temperature of a tuned method on a cell: the one whose estimates fit the truth best.

As in the paper's appendix on temperature tuning: a sweep on tokens that are never evaluation
targets, judged by the Itakura-Saito loss after an in-sample fit. Ties go to the larger temperature,
which tilts less.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from longshot.study.fits import FORMS, fit
from longshot.study.scores import form_of
from longshot.study.store import Row, Target, Tuned

DEFAULT = 1.0
TIE = 1e-6


def pick_temperature(
    rows: Sequence[Row], targets: Sequence[Target], sweep: Sequence[float]
) -> Tuned:
    """The best of the sweep with its curve; without any targets the default and no curve."""
    truth = {target.token: target.probability for target in targets if target.probability > 0}
    if not truth:
        return Tuned(DEFAULT, ())
    curve = [(temperature, sweep_loss(rows, truth, temperature)) for temperature in sorted(sweep)]
    least = min(loss for _, loss in curve)
    return Tuned(max(t for t, loss in curve if loss <= least + TIE), tuple(curve))


def sweep_loss(rows: Sequence[Row], truth: dict[int, float], temperature: float) -> float:
    """What the estimates at one temperature lose after a fit to them all."""
    found = [
        (row.estimate, truth[row.key.token])
        for row in rows
        if row.key.temperature == temperature and row.estimate and row.key.token in truth
    ]
    estimates, p = zip(*found, strict=True)
    form = form_of(estimates[0].method)
    return fit(form, FORMS[form].features(estimates), np.log(p), "itakura_saito").in_sample
