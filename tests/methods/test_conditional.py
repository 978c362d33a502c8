"""Conditional sampling as a method: right by enumeration, honest in its error and its price."""

from __future__ import annotations

import math

import pytest
import torch

import longshot as ls
from longshot.errors import LongshotError
from longshot.estimate import Job
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.methods.conditional import Conditional, Tally, Tree
from longshot.numerics import log_interval
from tests.methods.enumerable import enumerated
from tests.toys import toy_model

BUDGET = 2**7


def runs(target: int, count: int, budget: int = BUDGET) -> list[ls.Estimate]:
    problem = enumerated(1)
    jobs = [
        Job(problem.model, problem.inputs, (ls.TokenIs(target),), budget, seed)
        for seed in range(count)
    ]
    return [Conditional().estimate(job)[0] for job in jobs]


def test_the_mean_is_right_and_the_intervals_cover() -> None:
    """200 runs: a mean within 5 errors, coverage of 88 to 99%."""
    problem = enumerated(1)
    (target,) = problem.targets(0.05, 0.1)
    exact, found = problem.exact(target), runs(target, 200, budget=4 * BUDGET)
    values = torch.tensor([run.probability for run in found], dtype=torch.float64)
    assert abs(float(values.mean()) - exact) < 5 * float(values.std()) / math.sqrt(len(found))
    claimed = math.sqrt(sum((run.standard_error or 0) ** 2 for run in found) / len(found))
    assert 0.75 < claimed / float(values.std()) < 1.3
    given = [run.interval for run in found if run.interval is not None]
    covered = sum(low <= exact <= high for low, high in given)
    assert len(given) > 60
    assert 0.88 <= covered / len(given) <= 0.99


def test_uneven_prefixes_need_the_stretch() -> None:
    """Log-normal masses, four prefixes of five without a hit: plain intervals cover 85% of 492."""
    problem, generator = enumerated(1), torch.Generator().manual_seed(0)
    tree, draw = Tree(problem.model, problem.inputs), {"generator": generator}
    given = covered = plainly = 0
    for _ in range(1000):
        tally = Tally(tree, ls.TokenIs(0), 200)
        tally.mass = (1.5 * torch.randn(200, dtype=torch.float64, **draw) - 1.5**2 / 2 - 10).exp()
        tally.mass[torch.rand(200, **draw) > 0.2] = 0
        found, exact = Conditional()._mean(tally), 0.2 * math.exp(-10)
        if "interval" in found:
            error = found["standard_error"] / math.exp(found["log_probability"])
            plain = log_interval(
                found["log_probability"], error, found["effective_sample_size"] - 1
            )
            given += 1
            covered += found["interval"][0] <= exact <= found["interval"][1]
            plainly += plain[0] <= exact <= plain[1]
    assert given > 400
    assert plainly < 0.88 * given < 0.92 * given < covered


def test_it_beats_plain_sampling_at_the_same_price() -> None:
    """The variance over 60 seeds, averaged over the leaf, is smaller by far more than chance."""
    problem = enumerated(1)
    (target,) = problem.targets(0.05, 0.1)
    ours = torch.tensor([run.probability for run in runs(target, 60)])
    plain = torch.tensor(
        [
            ls.estimate(
                problem.model, problem.inputs, target, method="naive", budget=BUDGET, seed=seed
            ).probability
            for seed in range(60)
        ]
    )
    assert float(ours.var()) < float(plain.var())


def test_one_set_of_leaves_serves_all_targets_and_stays_within_the_budget() -> None:
    problem = enumerated(1)
    targets = problem.targets(1e-3, 1)
    together = ls.estimate_many(
        problem.model, problem.inputs, targets, method="conditional", budget=BUDGET
    )
    for target, answer in zip(targets, together, strict=True):
        alone = ls.estimate(
            problem.model, problem.inputs, target, method="conditional", budget=BUDGET
        )
        assert alone.probability == answer.probability
        assert alone.witnesses == answer.witnesses
        tree = Tree(problem.model, problem.inputs)
        call = problem.model.network.macs(problem.inputs.length)
        assert answer.samples == BUDGET * call // tree.prefix_macs
        assert answer.shared_cost.forwards <= BUDGET
        leaves = answer.statistics["leaves"]
        assert leaves == answer.samples * tree.leaf.size
        unembedding = leaves * problem.model.unembedding.numel()
        assert answer.shared_cost.macs == answer.samples * tree.prefix_macs + unembedding
    assert sum(answer.probability for answer in together) <= 1 + 1e-12


def test_witnesses_do_produce_the_target() -> None:
    problem = enumerated(1)
    for target in problem.targets(1e-3, 1):
        answer = ls.estimate(
            problem.model, problem.inputs, target, method="conditional", budget=BUDGET
        )
        assert answer.witnesses
        for witness in answer.witnesses:
            row = (problem.tokens == torch.tensor(witness.tokens)).all(1)
            assert problem.output[row].tolist() == [target]
            assert witness.gap > 0


def test_a_target_that_never_occurs() -> None:
    problem = enumerated(1)
    target = next(t for t in range(12) if problem.exact(t) == 0)
    answer = ls.estimate(problem.model, problem.inputs, target, method="conditional", budget=64)
    assert answer.log_probability == -math.inf
    assert answer.standard_error is None
    assert answer.interval is None
    assert len(answer.warnings) == 1


def test_few_hits_give_no_interval_but_a_reason() -> None:
    problem = enumerated(1)
    (target,) = problem.targets(1e-3, 0.01)
    answer = runs(target, 1, 2**8)[0]
    assert answer.hits
    assert answer.interval is None
    assert "an interval needs 10" in str(answer.no_interval)


def test_where_only_the_leaf_is_free_the_answer_is_exact() -> None:
    model = toy_model(1)
    leaf = TokenDistribution.from_weights([1, 2, 3, 6], [1, 2, 3, 4])
    inputs = ProductInputs("leaf", [TokenDistribution.fixed(0), leaf, TokenDistribution.fixed(5)])
    tokens = torch.tensor([[0, t, 5] for t in (1, 2, 3, 6)])
    logits = model.network.activation(model.embed(tokens)) @ model.unembedding
    winner = (logits + model.unembedding_bias).argmax(1)
    target = int(winner[2])
    answer = ls.estimate(model, inputs, target, method="conditional", budget=64)
    expected = float(leaf.probabilities[winner == target].sum())
    assert answer.probability == pytest.approx(expected, abs=1e-12)
    assert answer.standard_error == 0
    assert answer.interval == (answer.probability, answer.probability)
    assert answer.samples == 1


def test_what_it_cannot_do_is_one_sentence() -> None:
    problem = enumerated(1)
    with pytest.raises(LongshotError, match="costs as much as"):
        ls.estimate(problem.model, problem.inputs, 5, method="conditional", budget=1)
    fixed = ProductInputs("still", [TokenDistribution.fixed(0)])
    with pytest.raises(LongshotError, match="nothing to enumerate"):
        ls.estimate(problem.model, fixed, 5, method="conditional", budget=9)
    with pytest.raises(LongshotError, match="least_effective must be positive"):
        Conditional(least_effective=0)
