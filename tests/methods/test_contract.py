"""What every registered method promises, whatever its mathematics."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from torch.utils.flop_counter import FlopCounterMode

import longshot as ls
from longshot.methods import METHODS, Method, make_method
from longshot.models.gelu import GeluTransformer
from longshot.testing import CHECKS
from tests.methods.enumerable import Enumerated, enumerated
from tests.toys import toy_model

EXTRAPOLATING = {"gld", "given_last", "qld"}
ENUMERATING = {"auto", "exact"}  # on a toy: a target that never occurs is known not to
GRADIENTS = {"itgis", "mhis"}
SAMPLING = sorted(set(METHODS) - EXTRAPOLATING)
BUDGET = 768
OPTIONS: dict[str, dict[str, int]] = {"mhis": {"chains": 8}}  # fewer, wider steps are quicker
every_method = pytest.mark.parametrize("name", sorted(METHODS))


def ask(name: str, problem: Enumerated, event: int, **options: object) -> ls.Estimate:
    settings = {"budget": BUDGET, **OPTIONS.get(name, {}), **options}
    return ls.estimate(problem.model, problem.inputs, event, method=name, **settings)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@every_method
def test_every_promise_is_kept(name: str, check: Callable[[Method], None]) -> None:
    check(make_method(name, **OPTIONS.get(name, {})))


@every_method
def test_gradients_are_counted_where_they_are_taken(name: str) -> None:
    answer = ask(name, enumerated(6), 8)
    assert answer.cost.backwards == (answer.cost.forwards if name in GRADIENTS else 0)
    assert answer.shared_cost.backwards == 0


@every_method
def test_multiply_accumulates_are_those_that_torch_counts(name: str) -> None:
    """Of a whole run; what is no product of matrices (gathers, a solver) is a few percent.

    So are the zeros that the last layer's heads multiply in their common product (`to_width`),
    which are not counted.
    """
    model = ls.load_model("mini-2l")
    inputs = ls.load_inputs("camel", model)
    if name == "exact":
        few = [ls.TokenDistribution.from_weights(range(20, 20 + n), [1.0] * n) for n in (3, 5, 40)]
        fixed = [ls.TokenDistribution.fixed(token) for token in range(30)]
        inputs = ls.ProductInputs("few", [*fixed, *few])
    settings = {"method": name, "budget": 1024, **OPTIONS.get(name, {})}
    with FlopCounterMode(display=False) as counter:
        answer = ls.estimate(model, inputs, " but", **settings)
    spent = answer.cost + answer.shared_cost
    assert spent.macs == pytest.approx(counter.get_total_flops() / 2, rel=0.08)


@pytest.mark.parametrize("name", SAMPLING)
def test_a_target_that_never_occurs(name: str) -> None:
    problem = enumerated(6)
    assert problem.exact(1) == 0
    answer = ask(name, problem, 1)
    assert answer.log_probability == -math.inf
    assert answer.standard_error == (0.0 if name in ENUMERATING else None)
    assert len(answer.warnings) == 1
    assert answer.witnesses == ()
    assert not answer.is_two_sided
    if name == "naive":
        assert answer.interval == (0.0, pytest.approx(1 - 0.025 ** (1 / BUDGET)))
    if name in ENUMERATING:
        assert answer.interval == (0.0, 0.0)


@pytest.mark.parametrize("name", sorted(EXTRAPOLATING & set(METHODS)))
def test_an_extrapolation_says_that_it_is_one(name: str) -> None:
    for event in (8, 1):
        answer = ask(name, enumerated(6), event)
        assert not answer.is_two_sided
        assert "bias" in (answer.no_interval or "")


@every_method
def test_an_event_of_probability_one(name: str) -> None:
    """An unembedding bias so large that one token always wins."""
    certain = toy_model(6, vocab=12)
    assert isinstance(certain.network, GeluTransformer)
    certain.network.unembedding_bias[5] = 1e4
    options = {"method": name, "budget": BUDGET, **OPTIONS.get(name, {})}
    answer = ls.estimate(certain, enumerated(6).inputs, 5, **options)
    assert 1 - answer.probability <= 4 * (answer.standard_error or 1e-6)
    assert answer.probability <= 1
    never = ls.estimate(certain, enumerated(6).inputs, 4, **options)
    assert never.log_probability < math.log(1e-6)


@pytest.mark.parametrize("name", ["itgis", "mhis"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_temperature_is_one_sentence(name: str, value: float) -> None:
    with pytest.raises(ls.LongshotError, match="temperature"):
        ask(name, enumerated(6), 8, temperature=value)
