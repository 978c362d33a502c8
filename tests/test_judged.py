"""Judged outputs: what a toy judge says, what it could not tell, and what its errors do."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import longshot as ls
from longshot.evaluate import Enumeration, Evaluator, outcomes
from longshot.evaluate.judged import Rates
from longshot.evaluate.texts import Said
from longshot.events import as_event
from longshot.numerics import binomial_interval
from longshot.testing import toy_model
from tests.inputs.laws import Table
from tests.inputs.test_slots import toy as slots

MODEL = toy_model(2, context=12, dtype=torch.float64)
JUDGE = toy_model(17, vocab=8, context=12, dtype=torch.float64)
JUDGE.embedding.mul_(3)  # it listens
ANSWERS = ("b", "f")
EVENT = ls.Judged("ab{output}c", within=2, judge=JUDGE, answers=ANSWERS)


def logits(model: ls.Model, tokens: list[int]) -> torch.Tensor:
    v = model.network.activation(model.embed(torch.tensor([tokens])))[0]
    return v @ model.unembedding + model.unembedding_bias


def said(row: torch.Tensor) -> str:
    words = row[row >= 0].tolist()
    for _ in range(2):
        words.append(int(logits(MODEL, words).argmax()))
    return MODEL.tokenizer.decode(words[-2:])


def verdict(output: str, event: ls.Judged = EVENT) -> tuple[float, bool]:
    """The judge's lead of YES over NO, and whether it answers either."""
    tokenizer = JUDGE.tokenizer
    found = logits(JUDGE, [0, *tokenizer.encode(event.prompt.replace("{output}", output))])
    yes, no = (tokenizer.single(answer) for answer in event.answers)
    return float(found[yes] - found[no]), int(found.argmax()) in (yes, no)


def table() -> tuple[Table, list[str]]:
    every = Table(slots())
    return every, [said(row) for row in every.tokens]


def test_the_judge_decides_by_its_answer() -> None:
    every, outputs = table()
    event = as_event(EVENT, MODEL)
    owner = torch.zeros(len(outputs), dtype=torch.int64)
    evaluator = Evaluator(MODEL, [event], "gap", slots())
    evaluation = evaluator(every.tokens, owner)
    decided = evaluator.decide(every.tokens, evaluation.activation, owner)
    unclear = 0
    for output, score, grade in zip(outputs, evaluation.score.tolist(), decided.grade, strict=True):
        lead, clear = verdict(output)
        unclear += not clear
        assert bool(grade) == (lead > 0 and clear) == (score > 0)
        if clear:
            assert score == pytest.approx(lead, abs=1e-9)
    assert event.tally.judged == len(outputs)
    assert 0 < event.tally.unclear < len(outputs)
    assert event.tally.unclear == unclear


def truth() -> float:
    every, outputs = table()
    event, total = as_event(EVENT, MODEL), 0.0
    for leaves in Enumeration(MODEL, slots(), more=1):
        found = outcomes(MODEL, event, leaves.activation, leaves.go_on)
        total += float(leaves.log_prob[found.rows].exp() @ found.grade)
    by_hand = sum(
        p
        for output, p in zip(outputs, every.probability.tolist(), strict=True)
        if verdict(output)[0] > 0 and verdict(output)[1]
    )
    assert total == pytest.approx(by_hand, abs=1e-9)
    return total


def test_naive_agrees_with_the_list_and_tells_what_the_judge_could_not() -> None:
    p = truth()
    assert 0.01 < p < 0.99
    answers = [
        ls.estimate(MODEL, slots(), EVENT, method="naive", budget=1000, seed=seed)
        for seed in range(6)
    ]
    held = [a.interval[0] <= p <= a.interval[1] for a in answers if a.interval]
    assert sum(held) >= 5
    assert 0 < answers[0].statistics["could_not_tell"] < 1
    assert "corrected" not in answers[0].statistics
    assert answers[0].cost.forwards + answers[0].shared_cost.forwards <= 1000


def test_sampled_outputs_are_judged_too() -> None:
    warm = as_event(ls.Sampled(EVENT, 0.7), MODEL)
    assert warm.temperature == 0.7
    assert warm.noise == 2
    answer = ls.estimate(MODEL, slots(), ls.Sampled(EVENT, 0.7), method="naive", budget=1000)
    assert 0 < answer.probability < 1
    cold = ls.estimate(MODEL, slots(), ls.Sampled(EVENT, 1e-5), method="naive", budget=2000)
    assert cold.interval is not None
    assert cold.interval[0] <= truth() <= cold.interval[1]


def test_corrected_intervals_cover() -> None:
    """Over judges with known errors, examples and samples drawn anew each time."""
    rng = np.random.default_rng(0)
    for p, found, accused in ((0.02, 0.8, 0.1), (0.3, 0.9, 0.3), (0.001, 0.95, 0.01)):
        covered = plain = 0
        q = p * found + (1 - p) * accused
        for _ in range(300):
            bad, good = rng.binomial(80, found), rng.binomial(120, accused)
            rates = Rates(
                bad / 80, binomial_interval(bad, 80), good / 120, binomial_interval(good, 120)
            )
            seen = rng.binomial(2000, q)
            interval = binomial_interval(seen, 2000)
            estimate, (low, high) = rates.corrected(seen / 2000, interval)
            assert low <= estimate <= high
            covered += low <= p <= high
            plain += interval[0] <= p <= interval[1]
        assert covered >= 0.95 * 300
        assert plain < 0.2 * 300  # what the judge says is another number


def test_the_corrected_answer_covers_on_a_toy_judge() -> None:
    """Bad is what another rule says; the judge's agreement with it is learned from examples."""
    every, outputs = table()
    judged = {o: verdict(o)[0] > 0 and verdict(o)[1] for o in sorted(set(outputs))}
    yes = [o for o in judged if judged[o]]
    bad = {*yes[1:], *[o for o in judged if not judged[o]][:1]}  # one missed, one accused
    share = dict.fromkeys(judged, 0.0)
    for output, p in zip(outputs, every.probability.tolist(), strict=True):
        share[output] += p
    p = sum(share[o] for o in bad)
    generator = torch.Generator().manual_seed(0)
    weights = torch.tensor([share[o] for o in judged], dtype=torch.float64)
    drawn = torch.multinomial(weights, 400, replacement=True, generator=generator).tolist()
    names = list(judged)
    examples = [(names[i], names[i] in bad) for i in drawn]
    event = ls.Judged("ab{output}c", 2, judge=JUDGE, answers=ANSWERS, examples=examples)
    answer = ls.estimate(MODEL, slots(), event, method="naive", budget=4000)
    told = answer.statistics
    assert told["corrected_low"] <= p <= told["corrected_high"]
    assert told["corrected_low"] <= told["corrected"] <= told["corrected_high"]
    assert 0 <= told["judge_accuses"] < told["judge_finds"] <= 1


def test_the_input_may_stand_in_the_prompt() -> None:
    event = as_event(ls.Judged("{input}{output}a", 1, judge=JUDGE, answers=ANSWERS), MODEL)
    one = event.judgement(["b", "b"], ["c", "d"]).gap.tolist()
    by_hand = [logits(JUDGE, [0, *JUDGE.tokenizer.encode(t)]) for t in ("cba", "dba")]
    leads = [float(found[2] - found[6]) for found in by_hand]
    clear = [int(found.argmax()) in (2, 6) for found in by_hand]
    for score, lead, told in zip(one, leads, clear, strict=True):
        assert score == pytest.approx(lead) or not told


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ls.Judged("no slot", 2), "prompt has {output} in it, once"),
        (lambda: ls.Judged([("user", "hello")], 2), "prompt has {output} in it, once"),
        (lambda: ls.Judged("{output}", 0), "one token or more, not within=0"),
        (lambda: ls.Judged("{output}", 2, temperature=-1), "0 or positive, which -1"),
        (lambda: as_event(ls.Judged("{output}", 2, answers=("a", "a")), MODEL), "the same token"),
        (
            lambda: as_event(
                ls.Judged([("user", "{output}")], 2, answers=ANSWERS), MODEL
            ).judgement(["a"], ["b"]),
            "needs? a chat template",
        ),
        (
            lambda: (
                as_event(
                    ls.Judged("{output}", 2, answers=ANSWERS, examples=[("a", True)]), MODEL
                ).rates
            ),
            "some that are bad and some that are not",
        ),
    ],
)
def test_mistakes_are_one_sentence(make: object, said: str) -> None:
    with pytest.raises(ls.LongshotError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_the_input_is_read_without_its_special_tokens() -> None:
    event = as_event(ls.Judged("{input}{output}a", 1, judge=JUDGE, answers=ANSWERS), MODEL)
    said = Said(torch.tensor([[2]]), torch.empty(1, 1, 0, dtype=torch.int64), torch.empty(1, 1, 0))
    assert MODEL.tokenizer.bos in MODEL.tokenizer.special_ids
    gap = event.read(MODEL, torch.tensor([[MODEL.tokenizer.bos, 3, 4, -1]]), said).gap
    words = [MODEL.tokenizer.decode([token]) for token in (3, 4, 2)]
    assert gap.tolist() == event.judgement([words[2]], [words[0] + words[1]]).gap.tolist()
    marked = event.judgement([words[2]], [MODEL.tokenizer.decode([0, 3, 4])])
    assert gap.tolist() != marked.gap.tolist()


def test_what_every_question_begins_with_is_run_once() -> None:
    """A long prompt costs its judge little more than a short one, and says the same."""
    long = as_event(ls.Judged("abcdefab{output}c", within=2, judge=JUDGE, answers=ANSWERS), MODEL)
    outputs = [f"{a}{b}" for a in "bcdef" for b in "abcde"]
    gaps = long.judgement(outputs, outputs).gap.tolist()
    assert gaps == pytest.approx([long.judgement([o], [o]).gap.item() for o in outputs])
    for output, gap in zip(outputs, gaps, strict=True):
        lead, clear = verdict(output, long)
        assert gap == pytest.approx(lead) or not clear
    whole = len(outputs) * JUDGE.network.macs(12)
    apart = as_event(replace(long, judge=JUDGE), MODEL)
    apart.judgement(outputs, outputs)
    assert apart.tally.macs - len(outputs) * JUDGE.unembedding.numel() < whole / 2


@pytest.mark.parametrize("method", ["itgis", "mhis"])
def test_methods_that_need_a_gradient_say_so(method: str) -> None:
    from longshot.testing import enumerated

    toy = enumerated(1)
    with pytest.raises(ls.LongshotError, match=f"{method} needs"):
        ls.estimate(toy.model, toy.inputs, EVENT, method=method, budget=500)
    answer = ls.estimate(toy.model, toy.inputs, EVENT, method="conditional", budget=2000)
    naive = ls.estimate(toy.model, toy.inputs, EVENT, method="naive", budget=2000)
    error = math.hypot(answer.standard_error or 0, naive.standard_error or 0)
    assert abs(answer.probability - naive.probability) < 4 * error
