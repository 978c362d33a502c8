"""What every registered method promises, whatever its mathematics."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import longshot as ls
from longshot.methods import METHODS, make_method, settings_of
from longshot.models.gelu import GeluConfig, GeluTransformer
from tests.methods.enumerable import Enumerated, enumerated
from tests.toys import toy_model, toy_tokenizer

EXTRAPOLATING = {"gld", "qld"}
SAMPLING = sorted(set(METHODS) - EXTRAPOLATING)
BUDGET = 768
OPTIONS: dict[str, dict[str, int]] = {"mhis": {"chains": 8}}  # fewer, wider steps are quicker
every_method = pytest.mark.parametrize("name", sorted(METHODS))


def ask(name: str, problem: Enumerated, event: int, **options: object) -> ls.Estimate:
    settings = {"budget": BUDGET, **OPTIONS.get(name, {}), **options}
    return ls.estimate(problem.model, problem.inputs, event, method=name, **settings)


def timeless(answer: ls.Estimate) -> ls.Estimate:
    """An estimate without its cost: seconds vary, and what is shared depends on the neighbours."""
    return dataclasses.replace(answer, cost=ls.Cost(), shared_cost=ls.Cost())


@every_method
def test_the_same_seed_gives_the_same_estimate(name: str) -> None:
    problem = enumerated(6)
    first, second, other = (ask(name, problem, 8, seed=seed) for seed in (3, 3, 4))
    assert timeless(first) == timeless(second)
    assert first.cost.macs == second.cost.macs
    assert timeless(first) != timeless(other)


@every_method
def test_neighbours_do_not_matter(name: str) -> None:
    """To the last bit, in a model whose widths are multiples of 16 as real ones' are."""
    network = GeluTransformer(GeluConfig(2, 32, 2, 16, 64, 8, 32))
    network.initialise(torch.Generator().manual_seed(0))
    model = ls.Model("small", network.requires_grad_(False), toy_tokenizer(32), context=8)
    inputs, events = enumerated(6).inputs, [11, 8, 4, 6, 0, 30]
    options = {"method": name, "budget": BUDGET, **OPTIONS.get(name, {})}
    together = ls.estimate_many(model, inputs, events, **options)
    assert sum(answer.probability > 0 for answer in together) > 1
    for event, answer in zip(events, together, strict=True):
        alone = ls.estimate(model, inputs, event, **options)
        assert timeless(answer) == timeless(alone)


@every_method
def test_the_budget_is_kept_and_the_cost_is_counted(name: str) -> None:
    answer = ask(name, enumerated(6), 8)
    spent = answer.cost + answer.shared_cost
    assert 0 < spent.forwards <= BUDGET
    assert spent.backwards == (spent.forwards if METHODS[name].needs == "score" else 0)
    assert spent.seconds > 0


@every_method
def test_multiply_accumulates_are_those_that_torch_counts(name: str) -> None:
    """Of a whole run; what is no product of matrices (gathers, a solver) is a few percent."""
    model = ls.load_model("mini-2l")
    inputs = ls.load_inputs("camel", model)
    settings = {"method": name, "budget": 1024, **OPTIONS.get(name, {})}
    with FlopCounterMode(display=False) as counter:
        answer = ls.estimate(model, inputs, " but", **settings)
    spent = answer.cost + answer.shared_cost
    assert spent.macs == pytest.approx(counter.get_total_flops() / 2, rel=0.05)


@every_method
def test_the_global_random_state_is_untouched(name: str) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    ask(name, enumerated(6), 8)
    assert torch.equal(before, torch.get_rng_state())


@every_method
def test_settings_and_estimates_survive_a_round_trip(name: str) -> None:
    method = make_method(name)
    plain = json.loads(json.dumps(settings_of(method)))
    assert make_method(name, **plain) == method
    for event in (8, 1):  # one that occurs and one that never does
        answer = ask(name, enumerated(6), event)
        again = ls.Estimate.from_dict(json.loads(json.dumps(answer.to_dict(), allow_nan=False)))
        assert again == answer


@every_method
def test_every_probability_has_an_error_or_a_reason(name: str) -> None:
    for event in (11, 8, 4, 1):
        answer = ask(name, enumerated(6), event)
        assert (answer.interval is None) == (answer.no_interval is not None)
        assert answer.standard_error is None or answer.standard_error > 0
        if answer.interval is not None:
            low, high = answer.interval
            assert 0 <= low <= answer.probability <= high <= 1


@pytest.mark.parametrize("name", SAMPLING)
def test_a_target_that_never_occurs(name: str) -> None:
    problem = enumerated(6)
    assert problem.exact(1) == 0
    answer = ask(name, problem, 1)
    assert answer.log_probability == -math.inf
    assert answer.standard_error is None
    assert len(answer.warnings) == 1
    assert answer.witnesses == ()
    if name == "naive":
        assert answer.interval == (0.0, pytest.approx(1 - 0.025 ** (1 / BUDGET)))
    else:
        assert answer.interval is None


@pytest.mark.parametrize("name", sorted(EXTRAPOLATING & set(METHODS)))
def test_an_extrapolation_says_that_it_is_one(name: str) -> None:
    for event in (8, 1):
        answer = ask(name, enumerated(6), event)
        assert answer.interval is None
        assert "bias" in (answer.no_interval or "")


@every_method
def test_an_event_of_probability_one(name: str) -> None:
    """An unembedding bias so large that one token always wins."""
    certain = toy_model(6, vocab=12)
    assert isinstance(certain.network, GeluTransformer)
    certain.network.unembedding_bias[5] = 1e4
    answer = ls.estimate(certain, enumerated(6).inputs, 5, method=name, budget=BUDGET)
    assert 1 - answer.probability <= 4 * (answer.standard_error or 1e-6)
    assert answer.probability <= 1
    never = ls.estimate(certain, enumerated(6).inputs, 4, method=name, budget=BUDGET)
    assert never.log_probability < math.log(1e-6)


@every_method
def test_a_distribution_with_every_position_fixed(name: str) -> None:
    """The right answer or one clear sentence."""
    problem = enumerated(6)
    tokens = [0, 1, 4, 3, 5, 6]
    inputs = ls.ProductInputs("one", [ls.TokenDistribution.fixed(t) for t in tokens])
    activation = problem.model.network.activation(problem.model.embed(torch.tensor([tokens])))
    logits = activation @ problem.model.unembedding + problem.model.unembedding_bias
    winner = int(logits.argmax())
    try:
        certain = ls.estimate(problem.model, inputs, winner, method=name, budget=BUDGET)
        never = ls.estimate(problem.model, inputs, (winner + 1) % 12, method=name, budget=BUDGET)
    except ls.LongshotError as error:
        sentence = str(error)
    else:
        sentence = ""
        assert certain.probability == pytest.approx(1)
        assert never.probability == 0
    assert len(sentence.splitlines()) <= 1


@every_method
def test_witnesses_are_inputs_that_hit(name: str) -> None:
    problem = enumerated(6)
    answer = ask(name, problem, 11)
    for witness in answer.witnesses:
        row = (problem.tokens == torch.tensor(witness.tokens)).all(1)
        assert problem.output[row].tolist() == [11]
        assert witness.log_prob == pytest.approx(math.log(float(problem.probability[row])))
    probable = [witness.log_prob for witness in answer.witnesses]
    assert probable == sorted(probable, reverse=True)
    assert len({witness.tokens for witness in answer.witnesses}) == len(answer.witnesses)


@pytest.mark.parametrize("name", ["itgis", "mhis"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_temperature_is_one_sentence(name: str, value: float) -> None:
    with pytest.raises(ls.LongshotError, match="temperature"):
        ask(name, enumerated(6), 8, temperature=value)
