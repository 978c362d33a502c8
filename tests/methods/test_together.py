"""Splitting and leafwise together: the bridge on known laws, the rounds against enumeration."""

from __future__ import annotations

import math
import re

import pytest
import torch
from jaxtyping import Float64
from torch import Tensor

import longshot as ls
from longshot.estimate import Job
from longshot.events import TokenIs
from longshot.methods.leafwise import favoured_last
from longshot.methods.together import (
    Claim,
    Hits,
    TogetherRun,
    combined,
    joined,
    of_draws,
)
from tests.methods.enumerable import Enumerated, enumerated
from tests.toys import toy_model

RARE, BUDGET = 8, 4096


def run_of(problem: Enumerated, seed: int = 0, budget: int = BUDGET) -> TogetherRun:
    return TogetherRun(Job(problem.model, problem.inputs, (TokenIs(RARE),), budget, seed), 0.3)


def draws(
    generator: torch.Generator, missed: float
) -> tuple[Float64[Tensor, " draw"], list[Hits], float]:
    """Draws that reach one of two kinds of hit, populations that find both in their shares.

    The kind that is reached has the probability 1e-5, its draws weights of 2e-4 times a log-normal
    one of mean 1; the other is e^`missed` times as heavy a draw as ever comes.
    """
    p, other = 1e-5, 1e-5
    noise = 0.5 * torch.randn(4000, generator=generator, dtype=torch.float64) - 0.125
    hit = torch.rand(4000, generator=generator, dtype=torch.float64) < 0.05
    log_w = torch.where(hit, noise + math.log(p / 0.05), -math.inf)
    populations = []
    for _ in range(8):
        # a hit's weight has the law of a draw's, tilted by itself
        reached = 0.5 * torch.randn(50, generator=generator, dtype=torch.float64) + 0.125
        share = 0.4 + 0.2 * torch.rand(1, generator=generator, dtype=torch.float64)
        log_mass = torch.cat([(1 - share).log().expand(50), share.log().expand(50)])
        far = torch.full((50,), missed, dtype=torch.float64)
        seen = torch.cat([reached + math.log(p / 0.05), far + math.log(p / 0.05)])
        populations.append(Hits(log_mass, seen))
    return log_w, populations, p + other


@pytest.mark.parametrize("missed", [8.0, math.inf])
def test_hits_that_no_draw_reaches_are_made_up_for(missed: float) -> None:
    """Draws alone see half; with the populations' hits the whole comes out, within its interval."""
    generator, held, alone = torch.Generator().manual_seed(1), 0, 0
    for _ in range(40):
        log_w, populations, p = draws(generator, missed)
        found, half = joined(log_w, populations), of_draws(log_w)
        assert isinstance(found, Claim)
        assert isinstance(half, Claim)
        held += found.interval[0] <= p <= found.interval[1]
        alone += half.interval[0] <= p <= half.interval[1]
        assert found.error < 0.4
    assert held >= 36
    assert alone <= 4


def test_what_draws_reach_whole_is_theirs_alone() -> None:
    log_w, populations, _ = draws(torch.Generator().manual_seed(2), 0.0)
    found, alone = joined(log_w, populations), of_draws(log_w)
    assert isinstance(found, Claim)
    assert isinstance(alone, Claim)
    assert found.log_probability == pytest.approx(alone.log_probability, abs=0.02)


def test_draws_that_reach_hardly_any_hit_say_nothing() -> None:
    log_w, populations, _ = draws(torch.Generator().manual_seed(3), math.inf)
    far = [Hits(hits.log_mass, hits.log_w + 12) for hits in populations]
    assert "reach only" in str(joined(log_w, far))


@pytest.mark.parametrize("populations", [0, 1, 2])
def test_few_populations_do_not_vouch_for_the_draws(populations: int) -> None:
    """Draws that see half: their own interval ends below the whole, the longer one does not."""
    generator, held, alone = torch.Generator().manual_seed(4), 0, 0
    for _ in range(40):
        log_w, hits, p = draws(generator, math.inf)
        found, half = joined(log_w, hits[:populations]), of_draws(log_w)
        assert isinstance(found, Claim)
        assert isinstance(half, Claim)
        assert found.log_probability == half.log_probability
        assert found.interval[0] == pytest.approx(half.interval[0])
        assert found.error > 0.6  # rounds go on
        held += found.interval[0] <= p <= found.interval[1]
        alone += half.interval[1] >= p
    assert held == 40
    assert alone <= 4


def test_opinions_that_do_not_meet() -> None:
    low, high = Claim(math.log(1e-8), (5e-9, 2e-8)), Claim(math.log(1e-6), (5e-7, 2e-6))
    apart = combined([low, high])
    assert apart == Claim(high.log_probability, (5e-9, 2e-6))
    near = combined([low, Claim(math.log(1.5e-8), (1e-8, 4e-8))])
    assert low.log_probability < near.log_probability < math.log(1.5e-8)
    assert near.interval[0] > low.interval[0]


def test_draws_have_the_density_that_weights_take_them_to_have() -> None:
    """Σ_x p(x)/w(x) = Σ_x q(x) = 1 over all inputs, and w is that of the draws themselves."""
    problem = enumerated(6)
    run = run_of(problem)
    run.splitting.round(1000)
    drawn = run.leafwise.draws(favoured_last(run.splitting, run.leafwise.last), 1500)
    log_w = run.leafwise.log_weights(drawn, problem.tokens)
    log_p = run.leafwise.inputs.log_prob(problem.tokens)
    assert float((log_p - log_w).exp().sum()) == pytest.approx(1, abs=1e-9)
    n = sum(len(stratum.log_value) for stratum in drawn.strata)
    for stratum in drawn.strata:
        hit = stratum.log_value > -math.inf
        again = run.leafwise.log_weights(drawn, stratum.tokens)[hit]
        own = stratum.log_value[hit] + math.log(n / len(hit))
        torch.testing.assert_close(again, own)


def test_rounds_hold_the_exact_probability() -> None:
    problem, given, held = enumerated(6), 0, 0
    exact = problem.exact(RARE)
    for seed in range(8):
        *_, answer = run_of(problem, seed).rounds()
        given += answer.is_two_sided
        held += answer.interval[0] <= exact <= answer.interval[1]
        assert answer.cost.forwards <= BUDGET
    assert given >= 7
    assert held >= 7


def test_more_rounds_for_a_smaller_error() -> None:
    """The trace has a round for each, and at least two are made where the budget has them."""
    problem, budget = enumerated(6), 2**15
    run = run_of(problem, budget=budget)
    few = list(run.rounds())
    run = run_of(problem, budget=budget)
    run.wanted = 1e-3
    many = list(run.rounds())
    assert 2 <= len(few) <= len(many)
    assert [len(answer.trace) for answer in many] == list(range(1, len(many) + 1))
    assert many[-1].cost.forwards <= budget
    assert many[-1].cost.forwards > 0.8 * budget


def test_auto_takes_both_where_it_can_and_says_so() -> None:
    """Eight positions cannot be listed; a smaller budget, or two tokens, leave splitting alone."""
    model = toy_model(2, context=12)
    weights = range(1, model.vocab_size + 1)
    wide = ls.TokenDistribution.from_weights(range(model.vocab_size), weights)
    inputs = ls.ProductInputs("wide", [wide] * 8)
    answer = ls.estimate(model, inputs, 6, budget=4000)
    plain = ls.estimate(model, inputs, 6, method="naive", budget=20_000)
    assert answer.explanation.endswith("so splitting and leafwise went on.")
    assert {"splitting", "leafwise"} <= answer.statistics.keys()
    assert answer.is_two_sided
    assert plain.interval[0] < answer.interval[1]
    assert answer.interval[0] < plain.interval[1]
    few = ls.estimate(model, inputs, 6, budget=500)
    path = ls.estimate(model, inputs, ls.Continuation((6, 6)), budget=4000)
    assert few.explanation.endswith("so splitting went on.")
    assert path.explanation.endswith("so splitting went on.")
    others = ls.TokenIn(frozenset(range(model.vocab_size)) - {6})
    often = ls.estimate(model, inputs, others, budget=2**16)
    assert re.match(r"1024 plain draws hit 10\d\d times, so plain sampling", often.explanation)
