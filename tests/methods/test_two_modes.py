"""Two kinds of input that hit, one of them far from the other and narrow: is it found?"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.models import Model
from tests.toys import toy_model

LENGTH, BROAD, NARROW = 8, 1, 2  # positions; the tokens that the two modes are made of
P = {0: 0.72, BROAD: 0.2, NARROW: 0.08}


class TwoModes:
    """A network without a memory or a hidden layer: the target leads by one of two counts.

    Many broad tokens bring it ahead step by step. Five narrow ones do so at once, and until then
    they lead nowhere: the way there is a valley.
    """

    embedding = torch.eye(3, dtype=torch.float64)
    unembedding = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    unembedding_bias = None

    def activation(self, embedded: Tensor) -> Tensor:
        counts = embedded.sum(1)
        broad, narrow = counts[:, BROAD] - 6.5, counts[:, NARROW]
        return torch.maximum(broad, torch.where(narrow >= 5, 1.0, narrow / 10 - 6))[:, None]

    def macs(self, positions: int) -> int:
        return 3 * positions

    def backward_macs(self, positions: int) -> int:
        return 3 * positions


def two_modes() -> tuple[Model, ls.ProductInputs, float, float]:
    """The problem, its exact probability and the narrow mode's share of it."""
    model = Model("two modes", TwoModes(), toy_model(1).tokenizer, LENGTH)
    law = ls.TokenDistribution.from_weights(list(P), list(P.values()))
    inputs = ls.ProductInputs("two modes", [law] * LENGTH)
    total = narrow = 0.0
    for row in itertools.product(P, repeat=LENGTH):
        chance = math.prod(P[token] for token in row)
        is_narrow = row.count(NARROW) >= 5
        if is_narrow or row.count(BROAD) >= 7:
            total, narrow = total + chance, narrow + chance * is_narrow
    return model, inputs, total, narrow / total


@pytest.mark.long
def test_the_frozen_variant_is_unbiased_and_its_interval_knows_what_it_may_miss() -> None:
    """500 runs: their mean is exact; those without the narrow mode say how little they know."""
    model, inputs, exact, share = two_modes()
    assert 1e-4 < exact < 1e-3
    assert 0.3 < share < 0.8
    runs = [
        ls.estimate(
            model, inputs, 0, method="splitting", budget=2000, seed=seed,
            frozen=True, relative_error=1e-6,
        )
        for seed in range(500)
    ]  # fmt: skip
    found = torch.tensor([run.probability for run in runs], dtype=torch.float64)
    error = float(found.std() / math.sqrt(len(runs)))
    missed = [r for r in runs if not any(w.tokens.count(NARROW) >= 5 for w in r.witnesses)]
    given = [run for run in runs if run.is_two_sided]
    held = sum(run.interval[0] <= exact <= run.interval[1] for run in given)
    print(
        f"exact {exact:.2e}, mean {found.mean():.2e} ± {error:.1e}; {len(missed)} of 500 runs show "
        f"no narrow witness; {len(given)} give an interval, {held} hold, "
        f"{sum(r.interval[0] <= exact <= r.interval[1] for r in missed)} of those that missed"
    )
    assert abs(float(found.mean()) - exact) < 3.5 * error
    assert held >= 0.88 * len(given)
