"""When samplers give no interval: one row for each sentence, on both sides of its threshold."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.methods import chains, itgis
from tests.methods.enumerable import enumerated

NONE = None


@pytest.mark.parametrize(
    ("hits", "effective", "k", "error", "sentence"),
    [
        (0, 0.0, NONE, NONE, "No sample hit"),
        (50, 9.9, 0.1, 0.3, "worth only 9.9 equal ones"),
        (50, 10.0, 0.1, 0.3, NONE),
        (14, 12.0, NONE, 0.3, "14 hits are too few"),
        (50, 24.9, 0.71, 0.3, "heavy tail"),
        (50, 24.9, 0.70, 0.3, NONE),
        (50, 25.0, 0.71, 0.3, NONE),  # a tail that leaves half of the hits' worth does not matter
        (50, 30.0, 0.1, NONE, "no spread"),
    ],
)
def test_itgis(
    hits: int, effective: float, k: float | None, error: float | None, sentence: str | None
) -> None:
    found = itgis.no_interval(hits, effective, k, error)
    assert found is None if sentence is None else sentence in str(found)


@pytest.mark.parametrize(
    ("overlap", "found", "is_narrow"),
    [
        (0.5, 0.899, False),
        (0.5, 0.901, True),
        (0.51, 1.49, False),  # all may have been seen, and two errors of 0.2 account for it
        (0.51, 1.50, True),
    ],
)
def test_itgis_against_what_it_found(overlap: float, found: float, is_narrow: bool) -> None:
    log_p = math.log(1e-3)
    sentence = itgis.narrowed(log_p, 0.2, overlap, log_p + math.log(found))
    assert (sentence is not None) == is_narrow
    assert sentence is None or f"({found * 1e-3:.1e} together)" in sentence


def hits(of: int = 8, count: int = 8) -> Tensor:
    """Of so many chains of 400 states, where some never hit and the others every other time."""
    hit = (torch.arange(400) >= 200).expand(count, -1).clone()
    hit[of:] = False
    return hit[:, torch.randperm(400, generator=torch.Generator().manual_seed(0))]


@pytest.mark.parametrize(
    ("hit", "worst", "reached", "error", "sentence"),
    [
        (hits(), 1.0, 8, 0.1, NONE),
        (hits(of=0), 1.0, 8, NONE, "No sample hit"),
        (hits(count=2), 1.0, 2, 0.1, "needs 3 chains, not 2"),
        (hits(of=3), 1.0, 8, 0.1, "Only 3 of 8 chains found"),
        (hits(of=4), 1.0, 8, 0.1, NONE),
        (torch.ones(8, 400, dtype=torch.bool), 1.0, 8, NONE, "Every state hits"),
        (hits(), math.nan, 8, 0.1, "too short"),
        (hits(), 1.5, 8, 0.1, "disagree (R-hat = 1.50"),
        (hits(), 1.499, 8, 0.1, NONE),
        (hits(), 1.0, 3, 0.1, "as low as those of 5 of the 8"),
        (hits(), 1.0, 4, 0.1, NONE),
        (hits(count=32, of=32), 1.0, 15, 0.1, "as low as those of 17 of the 32"),
        (hits(count=32, of=32), 1.0, 16, 0.1, NONE),
        (hits(), 1.0, 8, 0.81, "differ too much"),
        (hits(), 1.0, 8, 0.8, NONE),
        (hits(), 1.0, 8, NONE, "differ too much"),
    ],
)
def test_mhis(
    hit: Tensor, worst: float, reached: int, error: float | None, sentence: str | None
) -> None:
    found = chains.no_interval(hit, error, worst, reached)
    assert found is None if sentence is None else sentence in str(found)


def test_starts_that_the_chains_came_back_to_are_counted() -> None:
    """By weight, which falls as the score rises; the noise of float32 is no difference."""
    log_weight = torch.tensor([[0.0, 2.0], *[[1.0, -3.0]] * 4], dtype=torch.float64)
    start = torch.tensor([-9.0, 2.0, 2.0001, 2.1, 5.0], dtype=torch.float64)
    assert chains.starts_reached(log_weight, start) == 3


@pytest.mark.parametrize("part", ["scores", "hits"])
def test_chains_that_stand_apart_disagree(part: str) -> None:
    """In where they are, or only in how often they hit."""
    generator = torch.Generator().manual_seed(1)
    log_weight, hit = torch.randn(8, 400, generator=generator, dtype=torch.float64), hits()
    assert chains.disagreement(log_weight, hit) < 1.02
    if part == "scores":
        log_weight[:4] += 1
    else:
        hit[:4] &= torch.rand(4, 400, generator=generator) < 0.1
    assert chains.disagreement(log_weight, hit) > 1.1


def test_slow_chains_are_refused_for_their_r_hat() -> None:
    """At a low temperature chains stay where they found the target, each at its own place."""
    problem, settings = enumerated(6), {"budget": 8 * 80, "chains": 8, "temperature": 0.2}
    answer = ls.estimate(problem.model, problem.inputs, 11, method="mhis", seed=1, **settings)
    assert answer.statistics["r_hat"] > 1.5
    assert "The chains disagree" in str(answer.no_interval)


@pytest.mark.parametrize("name", ["itgis", "mhis"])
def test_finding_nothing_is_not_called_rare(name: str) -> None:
    problem = enumerated(6)
    (warning,) = ls.estimate(problem.model, problem.inputs, 1, method=name, budget=96).warnings
    assert "says nothing of how small" in warning


def test_having_tried_everything_is_called_never() -> None:
    problem = enumerated(6)
    one_free = [
        position if i == 1 else ls.TokenDistribution.fixed(int(position.support[0]))
        for i, position in enumerate(problem.inputs.positions)
    ]
    inputs = ls.ProductInputs("one free", one_free)
    answers = ls.estimate_many(problem.model, inputs, range(12), method="conditional", budget=100)
    assert sum(answer.probability for answer in answers) == pytest.approx(1)
    never = [answer for answer in answers if not answer.hits]
    assert never
    assert all("Every input was tried" in answer.warnings[0] for answer in never)
