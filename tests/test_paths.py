"""Scores along forced paths: right on every input of a toy, with the right gradient."""

from __future__ import annotations

import math
import re

import pytest
import torch

from longshot.errors import LongshotError
from longshot.evaluate import Evaluator
from longshot.events import (
    Continuation,
    Matches,
    TokenIn,
    TokenIs,
    as_event,
)
from longshot.models import Model
from tests.methods.greedy import all_logits, greedy

PATHS = [(7,), (1, 8), (4, 7), (7, 5, 1), (4, 7, 5), (3, 3)]


def forced_score(path: tuple[int, ...]) -> torch.Tensor:
    """The smallest gap along a path on every input, by its definition."""
    problem = greedy().problem
    gaps = []
    for j, token in enumerate(path):
        forced = torch.tensor(path[:j], dtype=torch.int64).expand(len(problem.tokens), -1)
        logits = all_logits(problem, torch.cat([problem.tokens, forced], 1))
        gaps.append(TokenIs(token).score(logits))
    return torch.stack(gaps).amin(0)


@pytest.mark.parametrize("path", PATHS)
def test_the_score_is_the_smallest_gap_and_positive_exactly_on_hits(path: tuple[int, ...]) -> None:
    known = greedy()
    problem = known.problem
    evaluator = Evaluator(problem.model, [Continuation(path)], "gap", problem.inputs)
    owner = torch.zeros(len(problem.tokens), dtype=torch.int64)
    found = evaluator(problem.tokens, owner)
    torch.testing.assert_close(found.score, forced_score(path))
    assert torch.equal(found.score > 0, known.is_path(*path))
    gap = evaluator.decide(problem.tokens, found.activation, owner).gap
    assert torch.equal(gap > 0, known.is_path(*path))
    torch.testing.assert_close(gap[gap > 0], found.score[gap > 0])
    forwards, backwards, _ = evaluator.cost(0)
    assert (forwards, backwards) == (len(path) * len(owner), 0)


def test_of_several_texts_the_best_counts_and_shared_steps_run_once() -> None:
    known = greedy()
    problem = known.problem
    texts = [(7, 5, 1), (7, 5, 7), (1, 8), (4,)]
    event = Matches("x", within=3, climb=[Continuation(text) for text in texts])
    assert event.calls == 4 + 1 + 2
    evaluator = Evaluator(problem.model, [event], "gap", problem.inputs)
    assert [tuple(one.forced.tolist()) for one in evaluator.passes] == [(), (1,), (7,), (7, 5)]
    owner = torch.zeros(len(problem.tokens), dtype=torch.int64)
    score = evaluator(problem.tokens, owner).score
    torch.testing.assert_close(score, torch.stack([forced_score(t) for t in texts]).amax(0))
    assert evaluator.cost(0).forwards == 4 * len(owner)


@pytest.mark.parametrize("texts", [[(7,)], [(1, 8)], [(7, 5, 1)], [(7, 5, 1), (1, 8), (4,)]])
def test_the_gradient_equals_finite_differences(texts: list[tuple[int, ...]]) -> None:
    problem = greedy().problem
    model, some = problem.model, problem.tokens[::97]
    event = Matches("x", within=1, climb=[Continuation(text) for text in texts])
    evaluator = Evaluator(model, [event], "gap", None)
    owner = torch.zeros(len(some), dtype=torch.int64)
    gradient = evaluator(some, owner, gradient=True).gradient
    assert gradient is not None
    assert gradient.shape == (len(some), 6, 8)

    def score(embedded: torch.Tensor) -> torch.Tensor:
        """From embeddings, which tokens cannot reach."""
        best = []
        for text in texts:
            gaps = []
            for j, token in enumerate(text):
                forced = model.embed(torch.tensor([text[:j]], dtype=torch.int64))
                whole = torch.cat([embedded, forced.expand(len(embedded), -1, -1)], 1)
                v = model.network.activation(whole)
                gaps.append(TokenIs(token).score(v @ model.unembedding + model.unembedding_bias))
            best.append(torch.stack(gaps).amin(0))
        return torch.stack(best).amax(0)

    embedded = model.embed(some)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        way = torch.randn(embedded.shape, generator=generator, dtype=torch.float64)
        slope = (score(embedded + 1e-6 * way) - score(embedded - 1e-6 * way)) / 2e-6
        torch.testing.assert_close((gradient * way).sum((1, 2)), slope, rtol=1e-6, atol=1e-6)


def test_a_known_beginning_changes_only_what_is_left_out() -> None:
    problem = greedy().problem
    some, event = problem.tokens[::31], Continuation((7, 5, 1))
    owner = torch.zeros(len(some), dtype=torch.int64)
    whole = Evaluator(problem.model, [event], "gap", None)(some, owner, gradient=True)
    begun = Evaluator(problem.model, [event], "gap", problem.inputs)(some, owner, gradient=True)
    assert whole.gradient is not None
    assert begun.gradient is not None
    torch.testing.assert_close(begun.score, whole.score)
    torch.testing.assert_close(begun.gradient[:, 1:], whole.gradient[:, 1:])


def test_a_token_is_a_path_of_length_one() -> None:
    problem = greedy().problem
    tokens, owner = problem.tokens[::7], torch.zeros(len(problem.tokens[::7]), dtype=torch.int64)
    found = [
        Evaluator(problem.model, [event], "gap", problem.inputs)(tokens, owner, gradient=True)
        for event in (TokenIs(7), Continuation([7]))
    ]
    assert torch.equal(found[0].score, found[1].score)
    torch.testing.assert_close(found[0].gradient, found[1].gradient, equal_nan=True, rtol=0, atol=0)


# --- what a user may give


def long_enough(text: str) -> bool:
    return len(text) > 1


def test_texts_are_tokenised_once_and_shown(toy: Model) -> None:
    event = as_event(Continuation("abc"), toy)
    assert event == as_event(Continuation([1, 2, 3]), toy) == Continuation(iter((1, 2, 3)))
    assert event.key == "continuation:1,2,3"
    assert event.show(toy) == "'abc' ('a' + 'b' + 'c')"
    with pytest.raises(LongshotError, match="as_event"):
        _ = Continuation("abc").tokens
    climbing = as_event(Matches("b+", within=2, climb=["ab", Continuation([2])]), toy)
    assert climbing.key == "matches:2:b+ climbing 1,2;2"
    assert climbing == as_event(climbing, toy)
    assert climbing.show(toy) == "'b+' within 2 tokens"
    assert as_event(Matches("b", 1, climb="ab"), toy).key == "matches:1:b climbing 1,2"


def test_a_functions_name_is_its_key(toy: Model) -> None:
    assert Matches(long_enough, 2).key.endswith("test_paths.long_enough")
    assert Matches(lambda text: True, 2, name="any").key == "matches:2:any"
    flagged = Matches(re.compile("b", re.IGNORECASE), 2)
    assert flagged.key != Matches(re.compile("b"), 2).key == Matches("b", 2).key
    assert flagged.accepts("B")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Continuation(""), "at least one token"),
        (lambda: Continuation([]), "at least one token"),
        (lambda: Continuation(iter([1.5])), "token ids"),
        (lambda: Matches("(", within=2), "no regular expression"),
        (lambda: Matches("a", within=0), "within=0"),
        (lambda: Matches(lambda text: True, within=2), "name="),
        (lambda: Continuation([1, 8]), "Token 8"),
        (lambda: Matches("a", 2, climb=[Continuation([9])]), "Token 9"),
        (lambda: Matches("a", 2, climb=[""]), "at least one token"),
        (lambda: "abc", r"Continuation\('abc'\)"),
    ],
)
def test_a_mistake_is_one_sentence(toy: Model, make: object, sentence: str) -> None:
    with pytest.raises(LongshotError, match=sentence) as error:
        as_event(make(), toy)  # type: ignore[operator]
    assert len(str(error.value).splitlines()) == 1


def test_a_tie_ends_a_continuation() -> None:
    """Two equal columns: whoever begins with one of them has no greedy continuation."""
    problem = greedy().problem
    twin = greedy.__wrapped__(1).problem.model  # the same object: copy before writing
    network = type(twin.network)(twin.network.config).to(torch.float64)
    network.load_state_dict(twin.network.state_dict())
    network.requires_grad_(False)
    model = Model("twin", network, twin.tokenizer, twin.context)
    model.unembedding[:, 8] = model.unembedding[:, 5]
    model.network.unembedding_bias[8] = model.network.unembedding_bias[5]
    event = Matches("", within=2, climb=[Continuation([7, 5])])
    evaluator = Evaluator(model, [event], "gap", problem.inputs)
    owner = torch.zeros(len(problem.tokens), dtype=torch.int64)
    seen = evaluator(problem.tokens, owner)
    gap = evaluator.decide(problem.tokens, seen.activation, owner).gap
    assert (gap > 0).any()
    tied = greedy().is_path(7, 5) | greedy().is_path(5)
    assert (gap[tied] == -math.inf).all()
    with pytest.raises(LongshotError, match="evaluated alone"):
        Evaluator(model, [TokenIn(frozenset({1})), event], "gap", problem.inputs)
