"""Splitting against enumeration: the law, the steps, the estimate; and what breaks when they do."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.estimate import Job
from longshot.inputs import ChangedInputs, UnchangedInputs
from longshot.methods import Splitting, populations, splitting
from longshot.methods.populations import Chains, Population, States, draw_evenly
from longshot.numerics import Replicates
from tests.methods.enumerable import Enumerated, enumerated

RARE = 8


def changed_law(problem: Enumerated) -> ChangedInputs:
    """The toy's inputs under a law with a lopsided last token."""
    last = problem.inputs.positions[problem.inputs.free_positions[-1]]
    weights = torch.linspace(1, 3, last.size, dtype=torch.float64)
    r = 0.7 * weights / weights.sum() + 0.3 * last.probabilities
    return ChangedInputs(problem.inputs, ls.TokenDistribution(last.support, r.log()))


def log_law(law: ChangedInputs, problem: Enumerated) -> Tensor:
    """log p̃ of every input of the toy."""
    return problem.inputs.log_prob(problem.tokens) - law.log_weight(problem.tokens)


def test_the_changed_law_sums_to_one_and_is_the_one_that_is_sampled() -> None:
    problem = enumerated(6)
    law = changed_law(problem)
    probability = log_law(law, problem).exp()
    assert float(probability.sum()) == pytest.approx(1, abs=1e-12)
    n = 40_000
    drawn = law.sample(n, torch.Generator().manual_seed(0))
    counts = (drawn[:, None] == problem.tokens).all(2).sum(0).double()
    expected = n * probability
    chi = float(((counts - expected).square() / expected).sum())
    assert abs(chi - len(expected)) < 4 * math.sqrt(2 * len(expected))
    assert float(law.log_weight(problem.tokens).max()) <= law.log_largest_weight + 1e-12


def steps_of(
    law: ChangedInputs, x: Tensor, start: int, share: float
) -> dict[tuple[int, ...], float]:
    """The probability of every proposal from x by redrawing positions from `start` on."""
    positions = list(law.inputs.positions)
    positions[law.k] = law.last
    free = [i for i in law.free_positions if i >= start]
    found: dict[tuple[int, ...], float] = {}
    for mask in itertools.product((False, True), repeat=len(free)):
        chosen = [i for i, redrawn in zip(free, mask, strict=True) if redrawn]
        chance = share ** len(chosen) * (1 - share) ** (len(free) - len(chosen))
        for values in itertools.product(*(range(positions[i].size) for i in chosen)):
            y, p = x.clone(), chance
            for i, value in zip(chosen, values, strict=True):
                y[i] = positions[i].support[value]
                p *= float(positions[i].probabilities[value])
            found[tuple(y.tolist())] = found.get(tuple(y.tolist()), 0.0) + p
    return found


@pytest.mark.parametrize("coin", [True, False])
def test_a_step_leaves_the_law_as_it_is(coin: bool) -> None:
    """Detailed balance of the real proposal and coin on all pairs; without the coin it fails."""
    problem = enumerated(6)
    law, start, share = changed_law(problem), problem.inputs.free_positions[1], 0.4
    log_p, factor = log_law(law, problem), law.log_factor(problem.tokens)
    place = {tuple(row.tolist()): i for i, row in enumerate(problem.tokens)}
    flow = torch.zeros(len(place), len(place), dtype=torch.float64)
    for i, x in enumerate(problem.tokens[:300]):
        for y, chance in steps_of(law, x, start, share).items():
            j = place[y]
            accepted = min(1.0, math.exp(float(factor[j] - factor[i]))) if coin else 1.0
            flow[i, j] = math.exp(float(log_p[i])) * chance * accepted
    flow = flow[:300, :300]
    off = (flow - flow.T).abs().max() / flow.max()
    assert (off < 1e-12) == coin


def test_a_redraw_proposes_with_the_probabilities_that_detailed_balance_was_shown_for() -> None:
    problem = enumerated(6)
    law, start, share, n = changed_law(problem), problem.inputs.free_positions[1], 0.4, 40_000
    x = problem.tokens[7]
    expected = steps_of(law, x, start, share)
    drawn = law.redraw(x.expand(n, -1), torch.Generator().manual_seed(1), start, share)
    rows, counts = drawn.unique(dim=0, return_counts=True)
    seen = {tuple(row.tolist()): int(count) for row, count in zip(rows, counts, strict=True)}
    assert seen.keys() <= expected.keys()
    chi = sum((seen.get(y, 0) - n * p) ** 2 / (n * p) for y, p in expected.items())
    assert abs(chi - len(expected)) < 4 * math.sqrt(2 * len(expected))


def test_real_steps_keep_the_changed_law() -> None:
    """Below every level the walk keeps p̃: the mean of g stays what it was, within four errors."""
    problem = enumerated(6)
    job = Job(problem.model, problem.inputs, (ls.TokenIs(RARE),), 10**6)
    run, n = splitting.SplittingRun(job, Splitting()), 8000
    run.law = law = changed_law(problem)
    tokens = law.sample(n, run.generator)
    zeros = torch.zeros(n, dtype=torch.float64)
    x = Chains.of([States(tokens, zeros, zeros, zeros)], [-math.inf], law)
    tails = splitting.Tails(run.evaluator, torch.zeros(n, dtype=torch.int64), tokens.shape[1])
    tails.remember(tokens)
    for _ in range(6):
        x = run.step(x, tails)
    exact = float(log_law(law, problem).exp() @ law.log_factor(problem.tokens).exp())
    g = x.log_factor.exp()
    assert abs(float(g.mean()) - exact) < 4 * float(g.std()) / math.sqrt(n)


def replicates(problem: Enumerated, event: int, count: int, **settings: object) -> Tensor:
    """Independent estimates, as shares of the exact probability."""
    found = [
        ls.estimate(
            problem.model, problem.inputs, event, method="splitting", budget=1500, seed=seed,
            **{"relative_error": 1e-6, **settings},
        ).probability
        for seed in range(count)
    ]  # fmt: skip
    return torch.tensor(found, dtype=torch.float64) / problem.exact(event)


def off_by(ratios: Tensor) -> float:
    """How far the mean is from 1, in its own standard errors."""
    return float((ratios.mean() - 1) / (ratios.std() / math.sqrt(len(ratios))))


def test_frozen_levels_are_unbiased(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 estimates average to the exact probability: a false alarm in a hundred seeds, fixed."""
    monkeypatch.setattr(splitting, "CHAINS", 20)
    assert abs(off_by(replicates(enumerated(6), RARE, 30, frozen=True))) < 2.8


@pytest.mark.parametrize("broken", ["weight", "gamma"])
def test_what_is_left_out_is_seen(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: without p/p̃, or without the share of a population that reaches a level."""
    monkeypatch.setattr(splitting, "CHAINS", 20)
    if broken == "weight":
        monkeypatch.setattr(
            ChangedInputs, "log_weight", lambda self, tokens: torch.zeros(len(tokens)).double()
        )
    else:
        monkeypatch.setattr(Population, "rise", _careless_rise)
    assert abs(off_by(replicates(enumerated(6), RARE, 24, frozen=True))) > 4


def _careless_rise(self: Population, level: float, above: Tensor) -> None:
    self.states = self.states.at(above)
    self.levels.append(level)


def test_drawing_evenly_keeps_every_mean() -> None:
    """Systematic draws with their weights: the weighted mean of anything is unbiased."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(4, (50, 2), generator=generator)
    weight = torch.rand(50, generator=generator, dtype=torch.float64)
    value = torch.rand(50, generator=generator, dtype=torch.float64)
    states = States(tokens, value, value, weight.log())
    exact = float((weight * value).sum() / weight.sum())
    found = []
    for _ in range(2000):
        drawn = draw_evenly(states, 12, 1, generator)
        share = drawn.log_weight.exp()
        found.append(float((share * drawn.score).mean()))
    total = torch.tensor(found, dtype=torch.float64)
    ones = _normaliser(states)
    assert abs(total.mean() / ones - exact) < 4 * total.std() / ones / math.sqrt(len(found))


def _normaliser(states: States) -> float:
    """What the drawn weights average to: Σ W^(1 − EVENNESS)·W^EVENNESS over Σ W^(1 − EVENNESS)."""
    weight = states.log_weight.softmax(0)
    _, kind = states.tokens[:, 1].unique(return_inverse=True)
    share = torch.zeros(int(kind.max()) + 1, dtype=torch.float64).index_add(0, kind, weight)
    return float(1 / share.pow(1 - populations.EVENNESS).sum())


def test_inputs_that_are_no_product_need_only_a_redraw() -> None:
    """The law of any inputs stays unchanged, with weights of one."""
    problem = enumerated(6)
    law = UnchangedInputs(problem.inputs, problem.inputs.free_positions)
    assert not law.log_weight(problem.tokens).any()
    assert law.learned(problem.tokens, law.log_weight(problem.tokens)) is law


def test_a_rare_target_of_a_shipped_model_is_answered() -> None:
    """One in 400,000 on mini-1l: a number, an interval that holds the shipped truth, witnesses."""
    model = ls.load_model("mini-1l")
    inputs = ls.load_inputs("english", model)
    truth = ls.load_truth(model, inputs)
    token = ls.pick_targets(truth, 1e-6, 1e-5, 1).tokens[0]
    answer = ls.estimate(model, inputs, token, method="splitting")
    low, high = answer.interval
    assert 0 < low < float(truth.probability[token]) < high < 10 * low
    assert answer.cost.forwards <= 2**16
    assert answer.witnesses
    assert [round.forwards for round in answer.trace] == sorted(r.forwards for r in answer.trace)
    assert answer.trace[-1].log_probability == answer.log_probability


def test_populations_count_by_their_calls() -> None:
    logs = torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64).log()
    mean = Replicates.of(logs, torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64))
    assert math.exp(mean.log_mean) == pytest.approx(0.275)
    assert mean.size == pytest.approx(1 / (2 / 16 + 1 / 4))
    assert mean.student_error > (mean.relative_error or 0)
    none = Replicates.of(torch.full((3,), -math.inf).double(), torch.ones(3).double())
    assert none.relative_error is None
    assert none.student_error == math.inf


def test_a_budget_below_one_population_is_one_sentence() -> None:
    problem = enumerated(6)
    with pytest.raises(ls.LongshotError, match="too few"):
        Splitting().check(Job(problem.model, problem.inputs, (ls.TokenIs(8),), 8))


def test_chains_move_only_where_they_are_told_to() -> None:
    problem = enumerated(6)
    law = UnchangedInputs(problem.inputs, problem.inputs.free_positions)
    zeros = torch.zeros(4, dtype=torch.float64)
    x = Chains.of([States(problem.tokens[:4], zeros, zeros, zeros)], [-1.0], law)
    rows = torch.tensor([2])
    y = x.moved(rows, problem.tokens[9:10], zeros[:1] + 5, zeros[:1], zeros[:1])
    assert y.score.tolist() == [0, 0, 5, 0]
    assert torch.equal(y.tokens[[0, 1, 3]], x.tokens[[0, 1, 3]])
    assert x.score.tolist() == [0, 0, 0, 0]
