"""Sampled outputs and texts that an event reads, against every input and every output listed."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.evaluate import (
    Enumeration,
    Evaluator,
    PlainContinuations,
    Sayer,
    activations,
    outcomes,
)
from longshot.evaluate.sampled import SampledMatch, SampledPath, SampledToken
from longshot.events import as_event
from longshot.inputs import NOTHING, with_noise
from longshot.inputs.noisy import noise_of
from longshot.methods import make_method
from longshot.testing import enumerated, toy_model
from tests.inputs.chi_square import FALSE_ALARM, p_value
from tests.inputs.laws import Table
from tests.inputs.test_slots import toy as slots
from tests.methods.replicas import replicate

PRODUCT = enumerated(1)
SLOTS_MODEL = toy_model(2, context=12, dtype=torch.float64)
CELLS = {"product": (PRODUCT.model, PRODUCT.inputs), "slots": (SLOTS_MODEL, slots())}
TAU = 0.8


def probabilities(model: ls.Model, rows: list[list[int]], temperature: float) -> Tensor:
    """What comes next after each row, by plain passes over rows of one length."""
    found = torch.empty(len(rows), model.vocab_size, dtype=torch.float64)
    lengths = torch.tensor([len(row) for row in rows])
    for length in lengths.unique().tolist():
        here = (lengths == length).nonzero()[:, 0]
        tokens = torch.tensor([rows[i] for i in here.tolist()])
        v = model.network.activation(model.embed(tokens))
        logits = (v @ model.unembedding + model.unembedding_bias).double()
        found[here] = (logits / temperature).softmax(1)
    return found


def next_probabilities(model: ls.Model, tokens: list[int], temperature: float) -> Tensor:
    return probabilities(model, [tokens], temperature)[0]


@cache
def law(cell: str) -> tuple[Tensor, list[list[int]], Tensor]:
    """The law of the first output token and of the second after each first, for every input."""
    model, inputs = CELLS[cell]
    table, words = Table(inputs), range(model.vocab_size)
    rows = [row[row >= 0].tolist() for row in table.tokens]
    first = probabilities(model, rows, TAU)
    second = probabilities(model, [[*row, t] for row in rows for t in words], TAU)
    both = first[:, :, None] * second.view(len(rows), model.vocab_size, -1)
    return table.probability, rows, both


def exact(cell: str, bad: object, steps: int) -> float:
    """The sum over every input and every output of so many tokens."""
    probability, _, both = law(cell)
    words = range(both.shape[1])
    if steps == 1:
        hits = torch.tensor([bad((t,)) for t in words])
        return float(probability @ (both.sum(2) * hits).sum(1))
    hits = torch.tensor([[bad((t, u)) for u in words] for t in words])
    return float(probability @ (both * hits).sum((1, 2)))


def matching(model: ls.Model, pattern: str) -> object:
    event = ls.Matches(pattern, within=2)

    def bad(path: tuple[int, ...]) -> bool:
        return bool(event.allows(torch.tensor([path]), model.tokenizer))

    return bad


QUESTIONS = {
    "token": (2, lambda model: lambda path: path[0] == 2, 1),
    "set": ([2, 5], lambda model: lambda path: path[0] in (2, 5), 1),
    "path": (ls.Continuation([4, 3]), lambda model: lambda path: path == (4, 3), 2),
    "match": (ls.Matches("bb|c", within=2), lambda model: matching(model, "bb|c"), 2),
}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_naive_and_the_list_agree(cell: str, question: str) -> None:
    model, inputs = CELLS[cell]
    event, bad, steps = QUESTIONS[question]
    truth = exact(cell, bad(model), steps)
    assert 1e-4 < truth < 0.9
    resolved = as_event(ls.Sampled(event, TAU), model)
    if not resolved.noise:  # its grades are exact
        walked = 0.0
        for leaves in Enumeration(model, inputs, more=steps - 1):
            found = outcomes(model, resolved, leaves.activation, leaves.go_on)
            walked += float(leaves.log_prob[found.rows].exp() @ found.grade)
        assert walked == pytest.approx(truth, rel=1e-6)
    answers = [
        ls.estimate(model, inputs, ls.Sampled(event, TAU), method="naive", budget=3000, seed=seed)
        for seed in range(6)
    ]
    held = [a.interval[0] <= truth <= a.interval[1] for a in answers if a.interval]
    assert sum(held) >= 5
    errors = [abs(a.probability - truth) / (a.standard_error or math.inf) for a in answers]
    assert sum(error < 3 for error in errors) >= 5
    assert all(min(w.tokens) >= 0 for w in answers[0].witnesses)


@pytest.mark.parametrize("method", ["exact", "naive", "splitting", "auto"])
@pytest.mark.parametrize("question", ["token", "path"])
def test_witnesses_are_the_inputs_that_hold_most_of_the_probability(
    method: str, question: str
) -> None:
    model, inputs = CELLS["slots"]
    event = as_event(ls.Sampled(QUESTIONS[question][0], TAU), model)
    part: dict[tuple[int, ...], float] = {}
    likely: dict[tuple[int, ...], float] = {}
    for leaves in Enumeration(model, inputs, more=1):
        found = outcomes(model, event, leaves.activation, leaves.go_on)
        for row, g in zip(found.rows.tolist(), found.grade.tolist(), strict=True):
            tokens = tuple(t for t in leaves.tokens[row].tolist() if t >= 0)
            likely[tokens] = float(leaves.log_prob[row])
            part[tokens] = likely[tokens] + math.log(g)
    wanted, wrong = (sorted(of, key=of.__getitem__)[:-6:-1] for of in (part, likely))
    assert wanted != wrong
    answer = ls.estimate(model, inputs, event, method=method, budget=4000)
    assert [w.tokens for w in answer.witnesses] == wanted


@pytest.mark.parametrize("method", ["conditional", "itgis", "mhis"])
@pytest.mark.parametrize("question", ["token", "set", "path"])
def test_methods_of_products_take_exact_grades(method: str, question: str) -> None:
    model = PRODUCT.model
    event, bad, steps = QUESTIONS[question]
    truth = exact("product", bad(model), steps)
    chosen = make_method(method, **({"chains": 40} if method == "mhis" else {}))
    runs = replicate(PRODUCT, as_event(ls.Sampled(event, TAU), model), chosen, 4000, count=6)
    errors = [(run.probability - truth) / (run.standard_error or 0.0) for run in runs]
    assert sum(abs(error) < 3 for error in errors) >= 5


@pytest.mark.parametrize("method", ["conditional", "itgis", "mhis"])
def test_a_method_of_products_does_not_take_sampled_texts(method: str) -> None:
    model, inputs = CELLS["product"]
    event = ls.Sampled(ls.Matches("b", within=2), TAU)
    with pytest.raises(ls.LongshotError, match=f"^{method} needs"):
        ls.estimate(model, inputs, event, method=method, budget=500)


@pytest.mark.parametrize("question", QUESTIONS)
def test_as_the_temperature_falls_the_answer_is_the_greedy_one(question: str) -> None:
    model, inputs = CELLS["slots"]
    event = QUESTIONS[question][0]
    greedy = as_event(event, model)
    assert as_event(ls.Sampled(event, 0), model) == greedy
    cold = as_event(ls.Sampled(event, 1e-4), model)
    assert isinstance(cold, SampledToken | SampledPath | SampledMatch)
    tokens = Table(inputs).tokens
    tokens = torch.cat([tokens, NOTHING - 1 - torch.randint(2**53, (len(tokens), cold.noise))], 1)
    both = []
    for one in (greedy, cold):
        found = outcomes(model, one, activations(model, tokens), PlainContinuations(model, tokens))
        grade = torch.zeros(len(tokens), dtype=torch.float64)
        grade[found.rows] = found.grade
        both.append(grade)
    torch.testing.assert_close(*both, atol=1e-9, rtol=0)
    assert 0 < float(both[0].sum()) < len(tokens)


def test_the_score_is_the_soft_gap() -> None:
    """Positive where the token is likelier than not, and the gap as the temperature falls."""
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    event = as_event([2, 3], CELLS["product"][0])
    for tau in (1.0, 0.3):
        soft = SampledToken(event, tau)
        grade = soft.grade(logits)
        assert torch.equal(soft.score(logits) > 0, grade > 0.5)
        torch.testing.assert_close(torch.sigmoid(soft.score(logits) / tau), grade)
    torch.testing.assert_close(SampledToken(event, 1e-5).score(logits), event.score(logits))


def test_rows_carry_numbers_that_are_uniform_and_redrawn() -> None:
    inputs, generator = with_noise(slots(), 2), torch.Generator().manual_seed(0)
    rows = inputs.sample(20_000, generator)
    assert rows.shape[1] == inputs.length + 2

    def fit(rows: Tensor) -> float:
        cells = (noise_of(rows, 2) * 4).long() @ torch.tensor([4, 1])
        return p_value(cells.bincount(minlength=16), torch.full((16,), 1 / 16))

    again = inputs.redraw(rows, generator, 3, 0.5)
    assert min(fit(rows), fit(again)) > FALSE_ALARM
    same = (again[:, inputs.length :] == rows[:, inputs.length :]).double().mean(0)
    assert same.tolist() == pytest.approx([0.5, 0.5], abs=0.02)
    torch.testing.assert_close(inputs.log_prob(rows), slots().log_prob(rows[:, : inputs.length]))
    assert with_noise(slots(), 0).fingerprint != inputs.fingerprint
    with pytest.raises(ls.LongshotError, match="carry its randomness"):
        noise_of(slots().sample(2, generator), 2)


def test_what_is_said_is_what_plain_passes_say() -> None:
    model, inputs = CELLS["slots"]
    tokens = Table(inputs).tokens
    said = Sayer(model, inputs)(tokens, 3).path
    for row, path in zip(tokens, said.tolist(), strict=True):
        words = row[row >= 0].tolist()
        for token in path:
            assert int(next_probabilities(model, words, 1.0).argmax()) == token
            words.append(token)


def test_a_match_without_texts_to_climb_has_a_score() -> None:
    """Positive exactly where it occurs, and as far below as the nearest token that would match."""
    model, inputs = CELLS["slots"]
    event = as_event(ls.Matches("b", within=2), model)
    tokens = Table(inputs).tokens
    owner = torch.zeros(len(tokens), dtype=torch.int64)
    evaluator = Evaluator(model, [event], "gap", inputs)
    evaluation = evaluator(tokens, owner)
    decided = evaluator.decide(tokens, evaluation.activation, owner)
    b = model.tokenizer.single("b")
    for row, score, grade in zip(tokens, evaluation.score.tolist(), decided.grade, strict=True):
        words = row[row >= 0].tolist()
        gaps = []
        for _ in range(2):
            log_q = next_probabilities(model, words, 1.0).log()
            gaps.append(float(log_q[b] - log_q.max()))
            words.append(int(log_q.argmax()))
        occurs = b in words[-2:]
        assert (score > 0) == occurs == bool(grade)
        if not occurs:
            assert score == pytest.approx(max(gaps), abs=1e-6)
    assert 0 < int((evaluation.score > 0).sum()) < len(tokens)
    with pytest.raises(ls.LongshotError, match="no gradient"):
        evaluator(tokens, owner, gradient=True)


def test_an_output_ends_with_its_first_special_token() -> None:
    model = CELLS["slots"][0]
    event = ls.Matches("c", within=3)
    paths = torch.tensor([[2, 0, 3], [2, 3, 0], [0, 3, 3]])
    assert event.allows(paths, model.tokenizer).tolist() == [False, True, False]


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(ls.LongshotError, match="A temperature is 0 or positive, which -1 is not"):
        ls.Sampled(3, -1)
    with pytest.raises(ls.LongshotError, match="is 0 or positive, which nan"):
        ls.Sampled(3, math.nan)


def test_every_path_of_two_tokens_adds_up() -> None:
    """A control of the list itself: all outputs of one input have probability one."""
    _, _, both = law("slots")
    torch.testing.assert_close(both.sum((1, 2)), torch.ones(len(both), dtype=torch.float64))
