"""GLD: μ, σ and the Gaussian tail, with its sampling noise."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from scipy import stats

import longshot as ls
from longshot.estimate import Estimate
from longshot.events import TokenIn, TokenIs
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.methods.gld import EXTRAPOLATED, NO_SPREAD, gaussian_tail, logit_differences
from longshot.models import Model
from tests.methods.enumerable import enumerated
from tests.toys import toy_model


def test_mu_and_sigma_are_those_of_the_differences() -> None:
    problem = enumerated(6)
    answers = ls.estimate_many(problem.model, problem.inputs, range(12), method="gld", budget=500)
    v = problem.model.network.activation(problem.model.embed(problem.tokens))
    logits = v @ problem.model.unembedding + problem.model.unembedding_bias
    for target, answer in enumerate(answers):
        delta = logits[:, target] - logits.max(1).values
        mu = float((problem.probability * delta).sum())
        sigma = math.sqrt(float((problem.probability * (delta - mu).square()).sum()))
        assert answer.statistics["mu"] == pytest.approx(mu, abs=4 * sigma / math.sqrt(500))
        assert answer.statistics["sigma"] == pytest.approx(sigma, rel=0.2)
        z = answer.statistics["mu"] / answer.statistics["sigma"]
        assert answer.log_probability == pytest.approx(float(stats.norm.logcdf(z)), abs=1e-9)
        assert not answer.is_two_sided
        assert "bias has no error bar" in str(answer.no_interval)


def test_the_maximum_includes_the_target(toy: Model) -> None:
    """Δ ≤ 0, with an atom at 0 exactly where the target wins; the gap would be positive there."""
    v = torch.randn(100, toy.width, generator=torch.Generator().manual_seed(0))
    logits = v @ toy.unembedding + toy.unembedding_bias
    events = (*map(TokenIs, range(8)), TokenIn(frozenset((1, 2, 5))))
    delta, leaders = logit_differences(toy, v, events)
    assert torch.equal(leaders, logits.argmax(1).unique())
    assert float(delta.max()) == 0
    assert torch.equal(delta[:8].argmax(0), logits.argmax(1))
    assert torch.allclose(delta[:8].mT, logits - logits.amax(1, keepdim=True), atol=1e-5)
    assert torch.equal(delta[8], delta[[1, 2, 5]].amax(0))


def test_a_suppressed_token_does_not_hide_the_others() -> None:
    """Spread is judged by the logits that matter, not by the largest bias. (The samples differ.)"""
    answers = []
    for bias in (-1e4, -1e6):
        model = ls.load_model("mini-1l")
        changed = Model("changed", copy.deepcopy(model.network), model.tokenizer, model.context)
        changed.unembedding_bias[0] = bias
        inputs = ls.load_inputs("camel", changed)
        answers.append(ls.estimate(changed, inputs, 10, method="gld", budget=256))
    usual, suppressed = answers
    assert suppressed.statistics["sigma"] == pytest.approx(usual.statistics["sigma"], rel=0.3)
    assert NO_SPREAD not in suppressed.warnings
    assert suppressed.probability > 0


def test_far_tails_stay_in_log_space() -> None:
    delta = torch.linspace(-1001, -999, 50, dtype=torch.float64)
    mu, sigma, log_p, error = gaussian_tail(delta)
    assert log_p == pytest.approx(float(stats.norm.logcdf(mu / sigma)), rel=1e-12)
    assert log_p < -1e5
    assert error is None  # below the smallest number: unknown, never 0


def test_the_standard_error_matches_the_spread_over_seeds() -> None:
    """On a skewed Δ; 400 seeds give a standard deviation to 3.5%."""
    generator = torch.Generator().manual_seed(0)
    delta = -torch.empty(400, 300, dtype=torch.float64).exponential_(generator=generator) - 1
    tails = [gaussian_tail(row) for row in delta]
    spread = float(torch.tensor([math.exp(t[2]) for t in tails], dtype=torch.float64).std())
    typical = math.sqrt(sum((t[3] or 0) ** 2 for t in tails) / len(tails))
    assert typical == pytest.approx(spread, rel=0.15)
    # The negative control: an error that forgets the noise of σ is far too small.
    assert float(stats.norm.pdf(tails[0][0] / tails[0][1])) / math.sqrt(300) < 0.6 * spread


def test_hits_witnesses_and_labels() -> None:
    problem = enumerated(6)
    answers = ls.estimate_many(problem.model, problem.inputs, range(12), method="gld", budget=400)
    plain = ls.estimate_many(problem.model, problem.inputs, range(12), method="naive", budget=400)
    assert [a.hits for a in answers] == [a.hits for a in plain]
    assert [a.witnesses for a in answers] == [a.witnesses for a in plain]
    for answer in answers:
        assert (EXTRAPOLATED in answer.warnings) == (answer.hits == 0)
        assert math.isfinite(answer.log_probability)
        assert answer.standard_error != 0
        assert answer.shared_cost.forwards == 400
        assert Estimate.from_dict(answer.to_dict()) == answer
    assert any(a.hits == 0 for a in answers)


def test_neighbours_and_seeds() -> None:
    problem = enumerated(6, torch.float32)
    state = torch.get_rng_state()
    together = ls.estimate_many(problem.model, problem.inputs, [[1, 2], 3], method="gld", budget=99)
    for event, answer in zip([[1, 2], 3], together, strict=True):
        alone = ls.estimate(problem.model, problem.inputs, event, method="gld", budget=99)
        assert replace(alone, cost=answer.cost, shared_cost=answer.shared_cost) == answer
    other = ls.estimate(problem.model, problem.inputs, 3, method="gld", budget=99, seed=1)
    assert other.log_probability != together[1].log_probability
    assert torch.equal(torch.get_rng_state(), state)


def test_fixed_inputs_are_certain() -> None:
    model = toy_model(3, vocab=20)
    inputs = ProductInputs("fixed", [TokenDistribution.fixed(t) for t in (0, 4, 9)])
    answers = ls.estimate_many(model, inputs, range(20), method="gld", budget=70)
    assert all(NO_SPREAD in a.warnings for a in answers)
    assert [a.hits for a in answers if a.log_probability == 0] == [70]
    assert sum(a.log_probability == -math.inf for a in answers) == 19


def test_logits_of_ten_thousand() -> None:
    model = toy_model(3, vocab=20)
    model.unembedding.mul_(4096)
    wide = TokenDistribution.from_weights(range(1, 20), torch.ones(19))
    inputs = ProductInputs("wide", [TokenDistribution.fixed(0), wide, wide])
    answers = ls.estimate_many(model, inputs, range(20), method="gld", budget=100)
    assert all(a.log_probability < 0 for a in answers)
    assert max(abs(a.statistics["mu"]) for a in answers) > 1e4


def test_an_exact_tie_is_no_win() -> None:
    """All weights zero: every token has the same logit on every input, and none wins."""
    model = toy_model(9)
    for tensor in model.network.parameters():
        tensor.zero_()
    inputs = ProductInputs("toy", [TokenDistribution.from_weights([1, 2, 3], [1, 1, 1])] * 3)
    answer = ls.estimate(model, inputs, 3, method="gld", budget=64)
    assert (answer.log_probability, answer.hits) == (-math.inf, 0)
    assert NO_SPREAD in answer.warnings
