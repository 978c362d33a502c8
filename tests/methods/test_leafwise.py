"""ITGIS leaf by leaf against enumeration: the mixture, the strata, the estimate and its error."""

from __future__ import annotations

import math

import pytest
import torch

import longshot as ls
from longshot.estimate import Job
from longshot.events import TokenIs
from longshot.inputs import log_tilt
from longshot.methods import leafwise
from longshot.methods.leafwise import FewLeaves, LeafRun
from tests.methods.enumerable import Enumerated, enumerated

RARE = 8


def run_of(problem: Enumerated, budget: int = 4096, seed: int = 0) -> LeafRun:
    job = Job(problem.model, problem.inputs, (TokenIs(RARE),), budget, seed)
    return LeafRun(job, job.events[0], job.generator("leafwise", job.events[0]))


def leaves_of(run: LeafRun, *places: int) -> FewLeaves:
    place = torch.tensor(places)
    return FewLeaves(place, run.last.support[place], run.last.log_probs[place])


def test_tilts_have_the_density_that_weights_take_them_to_have() -> None:
    """Σ_x p(x)·q/p = 1 over all that may come before a leaf, for each product of the mixture."""
    problem = enumerated(6)
    run = run_of(problem)
    ways = run.climb(leaves_of(run, 0, 1), 1024.0)
    assert len(ways) == len(leafwise.WAYS)
    ends = problem.tokens[:, run.k] == run.last.support[0]
    tokens = problem.tokens[ends]
    log_p = run.before.log_prob(tokens.index_fill(1, torch.tensor([run.k]), int(tokens[0, run.k])))
    for scores in ways:
        for leaf in (0, 1):
            log_ratio = log_tilt(run.before, [s[leaf : leaf + 1] for s in scores], tokens)
            assert float((log_p + log_ratio).exp().sum()) == pytest.approx(1, abs=1e-10)
    warm, cold = (log_tilt(run.before, [s[:1] for s in ways[i]], tokens) for i in (-1, 0))
    assert float(cold.std()) >= float(warm.std())


@pytest.mark.parametrize("places", [(3,), (1, 3), (0,)])  # all that hits ends in the fourth
def test_strata_add_up_to_the_whole(places: tuple[int, ...]) -> None:
    """Whatever leaves are taken apart: 24 runs lie around the exact probability."""
    problem, means = enumerated(6), []
    for seed in range(24):
        run = run_of(problem, seed=seed)
        leaves = leaves_of(run, *places)
        ways = run.climb(leaves, 256.0)
        others = run.count_others(leaves, run.last.probabilities, 60)
        parts = run.count(leaves, ways, [60] * len(places)) + others
        means.append(sum(float(part.log_value.exp().mean()) for part in parts))
    mean, spread = torch.tensor(means).mean(), torch.tensor(means).std() / math.sqrt(len(means))
    assert abs(float(mean - problem.exact(RARE))) < 3.5 * float(spread)


def test_weights_that_forget_the_tilt_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control: draws that are counted as if they were plain hit too often."""
    monkeypatch.setattr(
        leafwise, "log_tilt", lambda _, tilts, tokens: torch.zeros(len(tokens), dtype=torch.float64)
    )
    problem, found = enumerated(6), []
    every = tuple(range(run_of(problem).last.size))
    for seed in range(20):
        run = run_of(problem, seed=seed)
        leaves = leaves_of(run, *every)
        parts = run.count(leaves, run.climb(leaves, 256.0), [60] * len(every))
        found.append(sum(float(part.log_value.exp().mean()) for part in parts))
    mean, spread = torch.tensor(found).mean(), torch.tensor(found).std() / math.sqrt(len(found))
    assert abs(float(mean - problem.exact(RARE))) > 4 * float(spread)


def test_estimates_are_unbiased_and_intervals_hold() -> None:
    problem, budget = enumerated(6), 2048
    exact = problem.exact(RARE)
    answers = [
        ls.estimate(problem.model, problem.inputs, RARE, method="leafwise", budget=budget, seed=s)
        for s in range(16)
    ]
    p = torch.tensor([answer.probability for answer in answers], dtype=torch.float64)
    assert abs(float(p.mean()) - exact) < 3.5 * float(p.std()) / math.sqrt(len(p))
    given = [answer for answer in answers if answer.is_two_sided]
    assert len(given) >= 12
    held = sum(low <= exact <= high for low, high in (answer.interval for answer in given))
    assert held / len(given) >= 0.88
    assert all(answer.cost.forwards <= budget for answer in answers)


def test_what_is_refused_is_refused_in_a_sentence() -> None:
    problem = enumerated(6)
    with pytest.raises(ls.LongshotError, match="too few; it needs"):
        ls.estimate(problem.model, problem.inputs, RARE, method="leafwise", budget=100)
    last = problem.inputs.positions[problem.inputs.free_positions[-1]]
    one = ls.ProductInputs("one", [ls.TokenDistribution.fixed(3), last])
    with pytest.raises(ls.LongshotError, match="one free position"):
        ls.estimate(problem.model, one, RARE, method="leafwise")
