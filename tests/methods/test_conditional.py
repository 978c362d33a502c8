"""Conditional sampling as a method: right by enumeration, honest in its error and its price."""

from __future__ import annotations

import math

import pytest
import torch

import longshot as ls
from longshot.errors import LongshotError
from longshot.estimate import Job
from longshot.inputs import ProductInputs, TokenDistribution, Tree
from longshot.methods.conditional import Conditional
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
    given = [run.interval for run in found if run.is_two_sided]
    covered = sum(low <= exact <= high for low, high in given)
    assert len(given) > 60
    assert 0.88 <= covered / len(given) <= 0.99


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
        unembedding = problem.model.unembedding.numel()
        call = problem.model.network.macs(problem.inputs.length) + unembedding
        assert answer.samples == BUDGET * call // tree.price()
        assert answer.shared_cost.forwards <= BUDGET
        leaves = answer.statistics["leaves"]
        assert leaves == answer.samples * tree.leaf.size
        stem = problem.model.network.macs(tree.prefix_length)
        grown = problem.model.network.extend_macs(tree.leaf.size, 1, tree.prefix_length)
        total = answer.samples * (stem + grown) + leaves * unembedding
        assert answer.shared_cost.macs == total
        assert answer.shared_cost.macs <= BUDGET * call
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
    assert not answer.is_two_sided
    assert len(answer.warnings) == 1


def test_few_hits_give_no_interval_but_a_reason() -> None:
    problem = enumerated(1)
    (target,) = problem.targets(1e-3, 0.01)
    once = [run for run in runs(target, 20, 2**5) if run.hits == 1]
    assert once
    for answer in once:
        assert not answer.is_two_sided
        assert "an interval needs 2" in str(answer.no_interval)


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
