"""When samplers give no interval: one row for each sentence, on both sides of its threshold."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.methods import chains
from tests.methods.enumerable import enumerated

NONE = None


def hits(of: int = 8, count: int = 8) -> Tensor:
    """Of so many chains of 400 states, where some never hit and the others every other time."""
    hit = (torch.arange(400) >= 200).expand(count, -1).clone()
    hit[of:] = False
    return hit[:, torch.randperm(400, generator=torch.Generator().manual_seed(0))]


@pytest.mark.parametrize(
    ("hit", "reached", "worst", "error", "sentence"),
    [
        (hits(), 8, 1.0, 0.1, NONE),
        (hits(of=0), 8, 1.0, NONE, "No sample hit"),
        (hits(count=2), 2, 1.0, 0.1, "needs 3 independent runs, not 2"),
        (hits(of=2), 8, 1.0, 0.1, "Only 2 of 8 chains found"),
        (hits(of=3), 8, 1.0, 0.1, NONE),
        (torch.ones(8, 400, dtype=torch.bool), 8, 1.0, NONE, "Every state hits"),
        (hits(), 8, 1.42, 0.1, "stay apart (R-hat = 1.42"),
        (hits(), 8, math.nan, 0.1, "stay apart"),  # too short to be compared
        (hits(), 8, 1.41, 0.1, NONE),
        (hits(), 0, 1.0, 0.1, "never came back to scores as low"),
        (hits(), 1, 1.0, 0.1, NONE),
        (hits(), 8, 1.0, 1.0, NONE),  # chains that differ have a long interval
        (hits(), 8, 1.0, NONE, "All runs agree"),
    ],
)
def test_mhis(
    hit: Tensor, reached: int, worst: float, error: float | None, sentence: str | None
) -> None:
    log_p = -1.0 if hit.any() else -math.inf
    found = chains.interval(log_p, error, hit, reached, worst)
    assert not isinstance(found, str) if sentence is None else sentence in str(found)


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


def test_slow_chains_have_a_long_interval_or_none() -> None:
    """At a low temperature chains stay where they found the target, each at its own place."""
    problem, settings = enumerated(6), {"budget": 8 * 80, "chains": 8, "temperature": 0.2}
    answer = ls.estimate(problem.model, problem.inputs, 11, method="mhis", seed=1, **settings)
    assert answer.statistics["r_hat"] > 1.5
    assert not answer.is_two_sided or answer.interval[1] > 2 * answer.interval[0]


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
