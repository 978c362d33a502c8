from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longshot.errors import LongshotError
from longshot.estimate import WITNESSES, Cost, Estimate, Job, Problem, Witness, best_witnesses
from longshot.events import TokenIn, TokenIs
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.models import Model

INF = math.inf
numbers = st.floats(allow_nan=True, allow_infinity=True)
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.one_of(st.text(max_size=6), st.sampled_from(["inf", "-inf", "nan", "None", "number"]))
costs = st.tuples(*(st.integers(0, 2**60),) * 3, st.floats(0, 1e9))
witnesses = st.tuples(st.lists(st.integers(0, 9), max_size=3).map(tuple), texts, numbers, numbers)
setting = st.one_of(st.none(), st.integers(), numbers, texts, st.tuples(numbers, texts))
maybe = st.one_of(st.none(), numbers)
fields = st.fixed_dictionaries(
    {
        "method": texts,
        "settings": st.dictionaries(texts, setting, max_size=3),
        "event": texts,
        "seed": st.integers(),
        "budget": st.integers(1),
        "log_probability": st.one_of(st.just(-INF), st.floats(-1e4, 0)),
        "standard_error": maybe,
        "interval": st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted).map(tuple),
        "samples": st.integers(0),
        "hits": st.one_of(st.none(), st.integers(0)),
        "effective_sample_size": maybe,
        "pareto_k": maybe,
        "acceptance_rate": maybe,
        "near_ties": st.integers(0),
        "statistics": st.dictionaries(texts, numbers, max_size=3),
        "warnings": st.lists(texts, max_size=3).map(tuple),
    }
)


def plain_estimate(**changed: Any) -> Estimate:
    values = {"method": "naive", "settings": {}, "event": "token:1", "seed": 0, "budget": 8}
    return Estimate(**values | {"log_probability": -INF, "no_interval": "no hit"} | changed)


@settings(max_examples=50, deadline=None)
@given(fields, texts, st.lists(witnesses, max_size=3), costs, costs)
def test_an_estimate_survives_any_json_without_loss(
    values: dict[str, Any], reason: str, seen: list[Any], own: Any, shared: Any
) -> None:
    """`repr` tells NaN, −0.0, tuples and types apart, which `==` does not."""
    estimate = Estimate(
        **values,
        no_interval=reason,
        witnesses=tuple(Witness(*w) for w in seen),
        cost=Cost(*own),
        shared_cost=Cost(*shared),
    )
    text = json.dumps(estimate.to_dict(), allow_nan=False)
    back = Estimate.from_dict(json.loads(text))
    assert repr(back) == repr(estimate)
    assert json.dumps(back.to_dict(), allow_nan=False) == text


def test_a_text_that_looks_like_a_number_stays_a_text() -> None:
    witness = Witness((1,), "-inf", -INF, INF)
    estimate = plain_estimate(witnesses=(witness,), statistics={"inf": math.nan, "mu": -INF})
    back = Estimate.from_dict(json.loads(json.dumps(estimate.to_dict(), allow_nan=False)))
    assert back.witnesses == (witness,)
    assert math.isnan(back.statistics["inf"])
    assert back.statistics["mu"] == -INF
    assert back.log_probability == -INF


def test_an_estimate_has_an_interval_or_the_reason_why_not() -> None:
    assert plain_estimate().probability == 0
    assert plain_estimate(log_probability=math.log(0.25)).probability == pytest.approx(0.25)
    for wrong in ({"no_interval": None}, {"interval": (0.2, 0.1)}, {"interval": (0.0, 1.5)}):
        with pytest.raises(ValueError, match="interval"):
            plain_estimate(**wrong)
    with pytest.raises(FloatingPointError, match="token:1"):
        plain_estimate(log_probability=math.nan)
    with pytest.raises(AttributeError):
        plain_estimate().seed = 3  # type: ignore[misc]


@settings(deadline=None)
@given(st.lists(costs, min_size=1, max_size=4))
def test_costs_add_up_field_by_field(given_parts: list[Any]) -> None:
    parts = [Cost(*part) for part in given_parts]
    total = sum(parts[1:], parts[0])
    assert total.forwards == sum(c.forwards for c in parts)
    assert total.backwards == sum(c.backwards for c in parts)
    assert total.macs == sum(c.macs for c in parts)
    assert total.seconds == pytest.approx(sum(c.seconds for c in parts))
    assert Cost() + parts[0] == parts[0]


# --- jobs


def some_inputs(name: str = "some", last: int = 7) -> ProductInputs:
    p = TokenDistribution.from_weights([1, 2, 5, last], [4, 3, 2, 1])
    return ProductInputs(name, [TokenDistribution.fixed(0), p, p])


def job(model: Model, *events: TokenIn, **changed: Any) -> Job:
    return Job(**{"model": model, "inputs": some_inputs(), "events": events, "budget": 9} | changed)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 12), most=st.integers(1, 15))
def test_parts_hold_every_event_once_and_share_the_progress(toy: Model, n: int, most: int) -> None:
    seen: list[float] = []
    events = tuple(TokenIs(i % 8) for i in range(n))
    whole = job(toy, *events, seed=4, progress=seen.append)
    parts = list(whole.parts(most))
    assert tuple(event for part in parts for event in part.events) == events
    assert all(len(part.events) <= most for part in parts)
    assert all((part.seed, part.budget, part.model) == (4, 9, toy) for part in parts)
    for part in parts:
        for share in (0.0, 0.5, 1.0):
            part.progress(share)
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)


def drawn(generator: torch.Generator) -> tuple[int, ...]:
    return tuple(torch.randint(2**62, (3,), generator=generator).tolist())


def test_randomness_depends_on_all_that_names_it_and_not_on_neighbours(toy: Model) -> None:
    usual = drawn(job(toy, TokenIs(1)).generator("itgis", TokenIs(1)))
    beside = job(toy, TokenIs(5), TokenIs(1), budget=77)
    assert drawn(beside.generator("itgis", TokenIs(1))) == usual
    (last,) = list(job(toy, TokenIs(3), TokenIs(1)).parts(1))[1:]
    assert drawn(last.generator("itgis", TokenIs(1))) == usual
    renamed = job(toy, inputs=some_inputs("other name"))
    assert drawn(renamed.generator("itgis", TokenIs(1))) == usual
    others = [
        job(toy).generator("mhis", TokenIs(1)),
        job(toy).generator("itgis", TokenIs(2)),
        job(toy).generator("itgis", TokenIn(frozenset({1, 2}))),
        job(toy, seed=1).generator("itgis", TokenIs(1)),
        job(toy, inputs=some_inputs(last=6)).generator("itgis", TokenIs(1)),
        job(toy).shared_generator("activations"),
        job(toy).shared_generator("itgis"),
    ]
    assert len({usual, *map(drawn, others)}) == 1 + len(others)


# --- witnesses


def test_witnesses_are_distinct_and_the_most_probable_come_first(toy: Model) -> None:
    inputs, generator = some_inputs(), torch.Generator().manual_seed(0)
    tokens = inputs.sample(300, generator)
    gaps = torch.arange(300, dtype=torch.float64)
    found = [(tokens[:100], gaps[:100]), (tokens[100:], gaps[100:])]
    best = best_witnesses(Problem(toy, inputs, TokenIs(1)), found)
    distinct = sorted({tuple(row) for row in tokens.tolist()})
    by_probability = inputs.log_prob(torch.tensor(distinct)).sort(descending=True).values
    assert len(best) == len({w.tokens for w in best}) == WITNESSES
    assert [w.log_prob for w in best] == by_probability[:WITNESSES].tolist()
    for w in best:
        assert tokens[int(w.gap)].tolist() == list(w.tokens)  # the gap is that input's own
        assert w.text == toy.tokenizer.decode(list(w.tokens))
        assert w.log_prob == float(inputs.log_prob(torch.tensor([w.tokens])))


def test_few_or_no_hits_give_few_or_no_witnesses(toy: Model) -> None:
    problem = Problem(toy, some_inputs(), TokenIs(1))
    assert best_witnesses(problem, []) == ()
    none = (torch.empty(0, 3, dtype=torch.int64), torch.empty(0, dtype=torch.float64))
    assert best_witnesses(problem, [none]) == ()
    one = (torch.tensor([[0, 1, 2]] * 4), torch.ones(4, dtype=torch.float64))
    assert [w.tokens for w in best_witnesses(problem, [one, none])] == [(0, 1, 2)]


def test_at_least_once_in_many_inputs() -> None:
    """1 − (1 − p)^n, where n·p is small as where it is large."""
    estimate = plain_estimate(log_probability=math.log(1e-9), interval=(1e-10, 1e-8))
    chance, (low, high) = estimate.at_least_once(10**6)
    assert (chance, low, high) == pytest.approx((1e-3, 1e-4, 1e-2), rel=6e-3)
    assert estimate.at_least_once(0) == (0.0, (0.0, 0.0))
    assert plain_estimate(log_probability=0.0).at_least_once(3)[0] == 1.0
    with pytest.raises(LongshotError, match="whole number"):
        estimate.at_least_once(-1)


def test_an_interval_from_zero_is_an_upper_bound() -> None:
    assert plain_estimate(interval=(0.0, 0.1)).interval_kind == "upper bound"
    assert plain_estimate(interval=(0.05, 0.1)).interval_kind == "two-sided"
