"""Events beyond one token under every method, against full enumeration."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

import longshot as ls
from longshot.estimate import Job
from longshot.inputs import Tree
from longshot.methods import METHODS, make_method
from longshot.methods.conditional import _enumerate
from tests.methods.greedy import Greedy, greedy

SERVING = ["conditional", "itgis", "mhis", "naive"]
BUDGET = 600
OPTIONS: dict[str, dict[str, object]] = {"mhis": {"chains": 8}}
PATHS = [(1, 8), (7, 5, 1)]
EVENTS = [ls.Continuation((7,)), ls.Continuation((1, 8)), ls.Continuation((7, 5, 1))]


def starts_like_it_ends(text: str) -> bool:
    return text[0] == text[-1]


def matches(*, climb: bool) -> list[ls.Matches]:
    """Of the toy's letters: a is token 1, b is 2, …"""
    texts = ["ge", "eg"] if climb else []
    return [
        ls.Matches("^g|e$", within=2, climb=texts),
        ls.Matches(starts_like_it_ends, within=3, climb=["geg", "ege"] if climb else []),
    ]


def ask(name: str, event: ls.Event | list[ls.Event], **options: object) -> list[ls.Estimate]:
    problem, settings = greedy().problem, {"budget": BUDGET, **OPTIONS.get(name, {}), **options}
    events = event if isinstance(event, list) else [event]
    return ls.estimate_many(problem.model, problem.inputs, events, method=name, **settings)


def occurs(known: Greedy, event: ls.Event) -> torch.Tensor:
    """On every input, by its greedy continuation."""
    if isinstance(event, ls.Continuation):
        return known.is_path(*event.tokens)
    assert isinstance(event, ls.Matches)
    return torch.tensor([event.accepts(text) for text in known.texts[event.within - 1]])


def spread(name: str, event: ls.Event, seeds: int) -> tuple[float, float]:
    """The mean over seeds and its error; many warm chains have a small bias after few steps."""
    warm = {"budget": 4 * BUDGET, "chains": 32, "temperature": 3.0} if name == "mhis" else {}
    runs = [ask(name, event, seed=s, **warm)[0].probability for s in range(seeds)]
    values = torch.tensor(runs, dtype=torch.float64)
    return float(values.mean()), float(values.std()) / math.sqrt(seeds)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", SERVING)
def test_the_mean_is_that_of_enumeration(name: str, path: tuple[int, ...]) -> None:
    """10 seeds: 5 errors off at 9 degrees of freedom is below 1e-3."""
    exact = greedy().exact(greedy().is_path(*path))
    mean, error = spread(name, ls.Continuation(path), 10)
    print(f"{name} {path}: exact {exact:.4f}, found {mean:.4f} ± {error:.4f}")
    assert 0 < error < 0.4 * exact
    assert abs(mean - exact) < 5 * error


@pytest.mark.parametrize("event", matches(climb=True), ids=["regex", "function"])
@pytest.mark.parametrize("name", ["itgis", "mhis"])
def test_climbing_a_match_is_right_too(name: str, event: ls.Matches) -> None:
    exact = greedy().exact(occurs(greedy(), event))
    mean, error = spread(name, event, 10)
    print(f"{name} {event.called}: exact {exact:.4f}, found {mean:.4f} ± {error:.4f}")
    assert 0 < error < 0.4 * exact
    assert abs(mean - exact) < 5 * error


@pytest.mark.parametrize("event", [*EVENTS, *matches(climb=False)], ids=lambda e: e.key)
def test_naive_counts_exactly_the_samples_that_hit(event: ls.Event) -> None:
    known = greedy()
    problem = known.problem
    job = Job(problem.model, problem.inputs, (event,), BUDGET, 3)
    (answer,) = make_method("naive").estimate(job)
    drawn = problem.inputs.sample(BUDGET, job.shared_generator("activations"))
    drawn = drawn[: BUDGET // event.steps]
    hit, weights = occurs(known, event), torch.tensor([12**i for i in range(6)])
    hitting = torch.isin(drawn @ weights, (problem.tokens @ weights)[hit])
    assert answer.samples == len(drawn)
    assert answer.hits == int(hitting.sum()) > 0


@pytest.mark.parametrize("event", [*EVENTS, *matches(climb=False)], ids=lambda e: e.key)
def test_conditional_is_exact_over_all_prefixes(event: ls.Event) -> None:
    """Σ over prefixes of p(prefix)·mass(prefix) is the probability itself."""
    known = greedy()
    problem = known.problem
    tree = Tree(problem.model, problem.inputs)
    prefixes = problem.tokens[:: tree.leaf.size, : tree.prefix_length]
    chance = problem.probability.view(len(prefixes), -1).sum(1)
    job = Job(problem.model, problem.inputs, (event,), 10**4)
    (tally,) = _enumerate(tree, prefixes, job)
    total = float(tally.mass[: len(prefixes)] @ chance)
    assert total == pytest.approx(known.exact(occurs(known, event)), rel=1e-12)
    assert tally.macs <= len(prefixes) * (tree.price(event.steps) - tree.price(1))
    assert (tally.gaps > 0).all()


@pytest.mark.parametrize("name", SERVING)
def test_a_pattern_that_is_a_text_is_the_continuation(name: str) -> None:
    """The same inputs hit: naive's samples are the same, the others' probability agrees."""
    text = ls.Matches("^gea$", within=3, climb=["gea"])
    pair = [ask(name, event)[0] for event in (text, ls.Continuation("gea"))]
    hits = [occurs(greedy(), event) for event in (text, ls.Continuation((7, 5, 1)))]
    assert torch.equal(*hits)
    if name in ("naive", "conditional"):
        found = [[witness.tokens for witness in answer.witnesses] for answer in pair]
        assert (pair[0].hits, found[0]) == (pair[1].hits, found[1])
    for answer in pair:
        assert answer.probability > 0
        for witness in answer.witnesses:
            row = (greedy().problem.tokens == torch.tensor(witness.tokens)).all(1)
            assert hits[0][row].all()
            assert witness.gap > 0


@pytest.mark.parametrize("name", ["naive", "conditional"])
def test_one_token_is_a_continuation_of_one(name: str) -> None:
    one, token = ask(name, [ls.Continuation((7,)), ls.TokenIs(7)])
    assert dataclasses.replace(one, event=token.event, cost=token.cost) == token


@pytest.mark.parametrize("name", SERVING)
def test_budgets_and_costs_add_up(name: str) -> None:
    events: list[ls.Event] = [*EVENTS, *matches(climb=True), ls.TokenIs(7)]
    for answer in ask(name, events):
        spent = answer.cost + answer.shared_cost
        assert 0 < spent.forwards <= BUDGET
        assert 0 <= spent.backwards <= spent.forwards
        assert spent.macs >= spent.forwards * 1000
    if name == "itgis":
        two = ask(name, EVENTS[1])[0]
        assert two.settings["score"] == "gap"
        assert (two.cost.forwards, two.cost.backwards) == (3 * two.samples, two.samples)


@pytest.mark.parametrize("name", SERVING)
def test_neighbours_do_not_matter(name: str) -> None:
    """In float64 and away from ties the toy's odd widths change nothing that is counted."""
    events: list[ls.Event] = [ls.TokenIs(1), *EVENTS[1:], *matches(climb=True), ls.TokenIs(7)]
    for event, answer in zip(events, ask(name, events), strict=True):
        (alone,) = ask(name, event)
        assert answer.log_probability == pytest.approx(alone.log_probability, rel=1e-9)
        assert (answer.hits, answer.samples) == (alone.hits, alone.samples)
        both = (answer.cost + answer.shared_cost, alone.cost + alone.shared_cost)
        assert both[0].forwards == both[1].forwards


# --- what a method cannot do


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_serves_an_event_or_says_why_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence, and before the model runs."""
    events = [ls.Continuation("ah"), *matches(climb=True), *matches(climb=False)]
    can = [isinstance(event, ls.Continuation) or bool(event.climb) for event in events]
    needs = METHODS[name].needs
    served = [False] * 5 if "token" in needs else can if "score" in needs else [True] * 5
    for event, serves in zip(events, served, strict=True):
        if serves:
            assert ask(name, event, budget=300)[0].samples > 0
            continue
        with monkeypatch.context() as patch:
            patch.setattr(type(greedy().problem.model.network), "activation", None)
            with pytest.raises(ls.LongshotError) as error:
                ask(name, [ls.TokenIs(1), event])
        assert len(str(error.value).splitlines()) == 1
        assert ("single token" if "token" in needs else "climb") in str(error.value)


@pytest.mark.parametrize("name", SERVING)
def test_the_context_and_the_budget_are_checked_first(name: str) -> None:
    with pytest.raises(ls.LongshotError, match="reads 8 tokens, not the 9 of 'abcd'"):
        ask(name, ls.Continuation("abcd"))
    with pytest.raises(ls.LongshotError, match=r"budget|too few"):
        ask(name, ls.Continuation("abc"), budget=2)


@pytest.mark.parametrize("name", SERVING)
def test_on_a_shipped_model(name: str) -> None:
    model = ls.load_model("mini-1l")
    inputs = ls.load_inputs("hex", model)
    events = [ls.Continuation("0x"), ls.Matches(r"\d", within=2, climb=["00"])]
    for answer in ls.estimate_many(model, inputs, events, method=name, budget=256):
        assert (answer.cost + answer.shared_cost).forwards <= 256
        assert answer.hits is not None
        for witness in answer.witnesses:
            assert witness.gap > 0
