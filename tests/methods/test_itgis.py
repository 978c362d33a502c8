"""ITGIS: unbiased for any scores by enumeration, then over seeds, with error bars that hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import longshot as ls
from longshot.estimate import Job
from longshot.evaluate import Evaluation
from longshot.inputs import draw, tilted, token_scores
from longshot.methods.itgis import ITGIS, Sampler
from tests.methods.enumerable import Enumerated, enumerated, midpoints
from tests.methods.replicas import replicate, summarise


def all_outcomes(problem: Enumerated, proposals: list[ls.TokenDistribution]) -> torch.Tensor:
    """The uniform numbers that make `draw` give every input in turn: [1, free, input]."""
    columns = []
    for position in problem.inputs.free_positions:
        for (p, positions), q in zip(problem.inputs.groups, proposals, strict=True):
            if position in positions:
                middle = midpoints(q)[0, positions.index(position)]
                columns.append(middle[p.index_of(problem.tokens[:, position])])
    return torch.stack(columns)[None]


def summed_over_outcomes(problem: Enumerated, target: int, slope: torch.Tensor, t: float) -> float:
    """Σ_x q(x)·w(x)·1[hit], with w from the step's own code."""
    rows = [problem.model.embedding[g.distribution.support] for g in problem.inputs.groups]
    scores = token_scores(problem.inputs, rows, slope)
    proposals = tilted(problem.inputs, scores, torch.tensor([t], dtype=torch.float64))
    batch = draw(problem.inputs, proposals, all_outcomes(problem, proposals))
    assert torch.equal(batch.tokens[0], problem.tokens)
    log_q = log_prob_of(problem, proposals)
    assert float(log_q.exp().sum()) == pytest.approx(1, abs=1e-12)
    hit = problem.output == target
    return float((log_q + batch.log_weight[0]).exp()[hit].sum())


def log_prob_of(problem: Enumerated, proposals: list[ls.TokenDistribution]) -> torch.Tensor:
    """log q of every input, position by position from the proposals alone."""
    log_q = torch.zeros(len(problem.tokens), dtype=torch.float64)
    for (p, positions), q in zip(problem.inputs.groups, proposals, strict=True):
        for i, position in enumerate(positions):
            log_q += q.log_probs[0, i, p.index_of(problem.tokens[:, position])]
    return log_q


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("seed", [5, 6, 8])
def test_a_step_is_unbiased_for_any_scores(seed: int, temperature: float) -> None:
    problem = enumerated(seed)
    generator = torch.Generator().manual_seed(seed)
    slope = torch.randn(1, 6, 8, generator=generator, dtype=torch.float64) * temperature / 2
    for target in problem.targets(1e-9, 1):
        estimate = summed_over_outcomes(problem, target, slope, temperature)
        assert estimate == pytest.approx(problem.exact(target), rel=1e-10)


def test_a_wrong_weight_would_be_seen() -> None:
    """The negative control: weights of another temperature do not average to the truth."""
    problem = enumerated(6)
    slope = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = [problem.model.embedding[g.distribution.support] for g in problem.inputs.groups]
    scores = token_scores(problem.inputs, rows, slope)
    proposals, others = (
        tilted(problem.inputs, scores, torch.tensor([t], dtype=torch.float64)) for t in (1.0, 1.2)
    )
    batch = draw(problem.inputs, proposals, all_outcomes(problem, proposals))
    other = draw(problem.inputs, others, all_outcomes(problem, others))
    assert torch.equal(batch.tokens, other.tokens)
    hit = problem.output == 8
    wrong = float((log_prob_of(problem, proposals) + other.log_weight[0]).exp()[hit].sum())
    assert abs(wrong / problem.exact(8) - 1) > 0.01


def test_scores_are_averaged_with_fading_weights() -> None:
    """After three batches: (g3 + α·g2 + α²·g1)/(1 + α + α²), g the mean gradient of a batch."""
    problem, alpha = enumerated(6), 0.6
    run = Sampler(Job(problem.model, problem.inputs, (ls.TokenIs(8),), 1), ITGIS(alpha=alpha), 32)
    seen, evaluator = [], run.evaluator

    def watched(*arguments: Any, **options: Any) -> Evaluation:
        seen.append(evaluator(*arguments, **options))
        return seen[-1]

    watched.decide = evaluator.decide  # type: ignore[attr-defined]
    run.evaluator = watched  # type: ignore[assignment]
    for _ in range(3):
        run.step()
    g1, g2, g3 = (found.gradient.mean(0)[1:] for found in seen)  # the first position is fixed
    expected = (g3 + alpha * g2 + alpha**2 * g1) / (1 + alpha + alpha**2)
    assert torch.allclose((run.numerator / run.denominator)[0, 1:], expected, atol=1e-12)
    assert not torch.allclose(g3, expected, atol=1e-3)


@pytest.mark.parametrize("batch", [8, 64, 512])
def test_the_mean_is_the_truth_whatever_the_size_of_a_batch(batch: int) -> None:
    """The error must be small for that to say something: a bias of 40% would be seen."""
    problem = enumerated(6)
    exact = problem.exact(8)
    found = summarise(replicate(problem, 8, ITGIS(batch=batch), 512, 100), exact)
    assert found.error < 0.1 * exact
    assert abs(found.mean - exact) < 4 * found.error


def test_the_first_batch_comes_from_the_inputs_themselves() -> None:
    problem = enumerated(6)
    answer = ls.estimate(problem.model, problem.inputs, 11, method="itgis", budget=64, batch=64)
    assert answer.effective_sample_size == pytest.approx(answer.hits)
    assert answer.statistics["mean_weight"] == pytest.approx(1)


@pytest.mark.parametrize(("seed", "target"), [(2, 0), (6, 11), (8, 5), (5, 0)])
def test_the_mean_over_seeds_is_the_truth_and_intervals_cover(seed: int, target: int) -> None:
    """200 runs: |z| < 4 (false alarm 6e-5), coverage of 88 to 99%, errors of the right size."""
    problem = enumerated(seed)
    exact = problem.exact(target)
    runs = summarise(replicate(problem, target, ITGIS(), budget=576, count=200), exact)
    assert abs(runs.mean - exact) < 4 * runs.error
    assert 0.88 <= runs.covered / runs.given <= 0.99
    assert runs.given >= 0.6 * runs.enough
    assert 0.8 < runs.claimed / runs.spread < 1.25  # of 200 runs, a spread is off by 5%


def test_tilting_finds_what_sampling_does_not() -> None:
    problem, rare = enumerated(5), 3
    exact = problem.exact(rare)
    answer = ls.estimate(
        problem.model, problem.inputs, rare, method="itgis", budget=2**10, temperature=0.3
    )
    assert exact * 2**10 < 0.2
    assert answer.hits
    assert answer.standard_error
    assert abs(answer.probability - exact) < 4 * answer.standard_error
    for witness in answer.witnesses:
        row = (problem.tokens == torch.tensor(witness.tokens)).all(1)
        assert problem.output[row].tolist() == [rare]
        assert witness.gap > 0


def test_the_gap_score_is_unbiased_too() -> None:
    problem = enumerated(6)
    runs = summarise(
        replicate(problem, 8, ITGIS(score="gap"), budget=256, count=100), problem.exact(8)
    )
    assert abs(runs.mean - problem.exact(8)) < 4 * runs.error
