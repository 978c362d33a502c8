"""The bridge normaliser: exact on all inputs of a toy, and what breaks it; sizes and R-hats."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.estimate import Job
from longshot.methods.bridge import bridged, log_normaliser
from longshot.methods.mhis import MHIS
from longshot.methods.walk import Walk
from longshot.numerics import autocorrelation_size, r_hat, rank_r_hat
from tests.methods.enumerable import Enumerated, enumerated
from tests.methods.replicas import replicate, summarise


def scores(problem: Enumerated, target: int, temperature: float) -> Tensor:
    """u of every input, by the real evaluator."""
    job = Job(problem.model, problem.inputs, (ls.TokenIs(target),), 1)
    walk = Walk(job, MHIS(temperature=temperature), len(problem.tokens))
    return walk.at(problem.tokens[None]).score[0] / temperature


@pytest.mark.parametrize(("n", "m"), [(1.0, 1.0), (2048.0, 17.0), (3.0, 4000.0)])
@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_means_over_all_inputs_give_the_normaliser(n: float, m: float, temperature: float) -> None:
    """Z = E_p e^u to rounding whatever n and m; chains that stayed in p give another number."""
    problem = enumerated(6)
    u, p = scores(problem, 8, temperature), problem.probability
    q = (p.log() + u).softmax(0)
    exact = float((p.log() + u).logsumexp(0))
    assert log_normaliser(u, u, n, m, (p, q)) == pytest.approx(exact, abs=1e-9)
    assert abs(log_normaliser(u, u, n, m, (p, p)) - exact) > 1e-3
    hit = problem.output == 8
    share = float((q * (-u).exp())[hit].sum())
    assert math.exp(exact) * share == pytest.approx(problem.exact(8), rel=1e-9)


def test_independent_draws_give_the_probability_with_its_error() -> None:
    """Draws of p and q themselves, 200 times: the mean is right, the errors are those there are."""
    problem, generator = enumerated(6), torch.Generator().manual_seed(0)
    u, p = scores(problem, 8, 1.0), problem.probability
    q, hit = (p.log() + u).softmax(0), (problem.output == 8).double()
    ratios, errors = [], []
    for _ in range(200):
        walked = torch.multinomial(q, 8 * 100, True, generator=generator).view(8, 100)
        plain = u[torch.multinomial(p, 300, True, generator=generator)]
        found = bridged(u[walked], hit[walked], plain)
        ratios.append(math.exp(found.log_probability) / problem.exact(8))
        assert found.relative_error is not None
        errors.append(found.relative_error)
    spread = torch.tensor(ratios, dtype=torch.float64)
    assert abs(float(spread.mean()) - 1) < 4 * float(spread.std()) / math.sqrt(200) + 0.01
    assert sum(errors) / len(errors) == pytest.approx(float(spread.std()), rel=0.2)


def test_targets_share_the_plain_draws_and_do_not_depend_on_each_other() -> None:
    problem = enumerated(6)
    settings = {"method": "mhis", "budget": 800, "chains": 4, "normaliser": "bridge"}
    both = ls.estimate_many(problem.model, problem.inputs, [8, 11], **settings)
    assert both[0].shared_cost.forwards == 100
    assert both[0].cost.forwards + 100 <= 800
    alone = ls.estimate(problem.model, problem.inputs, 11, **settings)
    assert alone.log_probability == both[1].log_probability
    assert both[1].statistics["plain_draws"] == 100


@pytest.mark.long
def test_intervals_by_the_bridge_hold() -> None:
    """Toys and temperatures, 40 runs each: of the intervals given 88% or more hold."""
    given, covered = 0, 0
    for seed, target, temperature in ((6, 11, 1.0), (8, 5, 2.0), (6, 8, 1.0)):
        problem = enumerated(seed)
        method = MHIS(temperature=temperature, chains=8, normaliser="bridge")
        runs = replicate(problem, target, method, budget=8 * 320, count=40)
        found = summarise(runs, problem.exact(target))
        given, covered = given + found.given, covered + found.covered
    assert given >= 60
    assert covered >= 0.88 * given


def autoregression(rho: float, chains: int = 8, n: int = 4000) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(chains, n, generator=generator, dtype=torch.float64)
    x = noise[:, :1]
    columns = [x]
    for t in range(1, n):
        x = rho * x + math.sqrt(1 - rho**2) * noise[:, t : t + 1]
        columns.append(x)
    return torch.cat(columns, 1)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_size_of_chains_is_that_of_their_autocorrelation(rho: float) -> None:
    """An autoregression of ρ is worth (1 − ρ)/(1 + ρ) of its draws."""
    draws = autoregression(rho)
    assert autocorrelation_size(draws) == pytest.approx(
        draws.numel() * (1 - rho) / (1 + rho), rel=0.2
    )


def test_chains_that_stay_apart_are_worth_little() -> None:
    draws = autoregression(0.0) + torch.arange(8, dtype=torch.float64)[:, None]
    assert autocorrelation_size(draws) < 50


def test_ranks_see_what_moments_do_not() -> None:
    """One chain of another scale, or another place under Cauchy's tails; agreeing chains pass."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(4, 500, generator=generator, dtype=torch.float64)
    wider = draws * torch.tensor([[1.0], [1.0], [1.0], [4.0]], dtype=torch.float64)
    assert rank_r_hat(draws) < 1.02
    assert r_hat(wider) < 1.02 < 1.1 < rank_r_hat(wider)
    cauchy = torch.tan(math.pi * (torch.rand(4, 500, generator=generator).double() - 0.5))
    cauchy[3] += 3
    assert r_hat(cauchy) < 1.05 < 1.1 < rank_r_hat(cauchy)
    assert rank_r_hat(torch.zeros(4, 10, dtype=torch.float64)) == 1.0
