"""Do draws follow a table? One test for all, with its false-alarm rate."""

from __future__ import annotations

import torch
from scipy.stats import chi2
from torch import Tensor

FALSE_ALARM = 1e-6
"""Per comparison. Seeds are fixed, so a test that passes today passes always."""


def p_value(observed: Tensor, probabilities: Tensor) -> float:
    """Pearson's test of counts against probabilities; cells under 10 expected are pooled."""
    expected = probabilities * observed.sum()
    small = expected < 10
    cells = torch.cat([observed[~small].double(), observed[small].sum().double()[None]])
    means = torch.cat([expected[~small], expected[small].sum()[None]])
    if means[-1] < 10:  # too little even together: with the next cell
        cells = torch.cat([cells[:-2], (cells[-2] + cells[-1])[None]])
        means = torch.cat([means[:-2], (means[-2] + means[-1])[None]])
    statistic = ((cells - means) ** 2 / means).sum()
    return float(chi2.sf(float(statistic), len(cells) - 1))


def two_sample_p_value(first: Tensor, second: Tensor) -> float:
    """The same for two counts that may come from one law, both with sampling noise."""
    pooled = (first + second).double()
    keep = pooled >= 20
    rows = torch.stack([first, second]).double()
    rows = torch.cat([rows[:, keep], rows[:, ~keep].sum(1, keepdim=True)], dim=1)
    rows = rows[:, rows.sum(0) > 0]
    means = rows.sum(1, keepdim=True) * rows.sum(0) / rows.sum()
    statistic = ((rows - means) ** 2 / means).sum()
    return float(chi2.sf(float(statistic), rows.shape[1] - 1))
