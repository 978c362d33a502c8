"""Slots of several tokens: their law, their redraws, and what every method makes of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.evaluate import Enumeration, Evaluator, Tails, outcomes
from longshot.events import as_event
from longshot.inputs import Inputs, Piece, SlotInputs, TokenDistribution
from longshot.testing import toy_model
from tests.inputs.chi_square import FALSE_ALARM
from tests.inputs.laws import Table, worst_redraw

MODEL = toy_model(2, context=12, dtype=torch.float64)


def law(*weights: float) -> TokenDistribution:
    return TokenDistribution.from_weights(list(range(len(weights))), list(weights))


def toy() -> SlotInputs:
    """Choices of none to two tokens, a slot that comes again, and inputs with several spellings."""
    laws = [law(1), law(3, 2, 1), law(2, 1, 4), law(1), law(1, 2)]
    pieces = [
        Piece(0, ((0,),)),
        Piece(1, ((1,), (1, 2), ())),
        Piece(2, ((2,), (), (3,))),
        Piece(3, ((4,),)),
        Piece(4, ((5,), (6, 5))),
        Piece(2, ((), (2,), (7,))),
    ]
    return SlotInputs("slots", laws, pieces)


def ambiguous() -> SlotInputs:
    """Words that run into each other: a·bc is ab·c."""
    laws = [law(1), law(1, 4), law(3, 7), law(5, 1)]
    pieces = [
        Piece(0, ((0,),)),
        Piece(1, ((1,), (1, 2))),
        Piece(2, ((2, 3), (3,))),
        Piece(3, ((3,), (3, 3))),
    ]
    return SlotInputs("ambiguous", laws, pieces)


class FirstSpelling(SlotInputs):
    """A control: of several spellings always the first."""

    def _read(self, row: Sequence[int], choose: random.Random) -> list[int]:
        class First(random.Random):
            def choices(self, steps: list[object], weights: object) -> list[object]:
                return steps[:1]

        return super()._read(row, First())


class LooksAtValues(SlotInputs):
    """A control: a slot is kept if it has its likeliest value."""

    def redraw(
        self, tokens: Tensor, generator: torch.Generator, start: int = 0, share: float = 1.0
    ) -> Tensor:
        drawn = super().redraw(tokens, generator, start, share)
        likely = self.log_prob(tokens) > -2.5
        return torch.where(likely[:, None], tokens, drawn)


@pytest.mark.parametrize("make", [toy, ambiguous])
def test_the_law_is_the_sum_over_all_spellings(make: object, generator: torch.Generator) -> None:
    inputs = make()
    table = Table(inputs)
    assert float(table.probability.sum()) == pytest.approx(1)
    torch.testing.assert_close(inputs.log_prob(table.tokens).exp(), table.probability)
    assert table.fit(inputs.sample(20_000, generator)) > FALSE_ALARM
    if make is ambiguous:
        assert len(table.tokens) < inputs.count
    foreign = torch.full((1, inputs.length), 7)
    assert inputs.log_prob(foreign).tolist() == [-torch.inf]
    with pytest.raises(ls.LongshotError, match="is none of the inputs"):
        inputs.redraw(foreign, generator)


@pytest.mark.parametrize("make", [toy, ambiguous])
@pytest.mark.parametrize(("start", "share"), [(0, 1.0), (0, 0.4), (2, 1.0), (3, 0.5)])
def test_a_redraw_leaves_the_law_as_it_is(make: object, start: int, share: float) -> None:
    assert worst_redraw(make(), start, share) > FALSE_ALARM


def test_a_biased_redraw_is_found() -> None:
    one, other = ambiguous(), toy()
    assert worst_redraw(FirstSpelling(one.name, one.laws, one.pieces), 0, 0.4) < FALSE_ALARM
    assert worst_redraw(LooksAtValues(other.name, other.laws, other.pieces), 0, 1.0) < FALSE_ALARM


def test_the_fingerprint_is_of_law_and_spelling() -> None:
    one, same = toy(), toy()
    assert one.fingerprint == same.fingerprint
    laws = [*one.laws[:4], law(1, 3)]
    assert SlotInputs("slots", laws, one.pieces).fingerprint != one.fingerprint
    pieces = [*one.pieces[:5], Piece(2, ((), (2,), (6,)))]
    assert SlotInputs("slots", one.laws, pieces).fingerprint != one.fingerprint


def test_inputs_that_may_be_empty_are_refused() -> None:
    with pytest.raises(ls.LongshotError, match="may be empty"):
        SlotInputs("none", [law(1, 1)], [Piece(0, ((), (1,)))])


def alone(tokens: Tensor) -> Tensor:
    row = tokens[tokens >= 0]
    return MODEL.network.activation(MODEL.embed(row[None]))[0]


def exact(inputs: Inputs, event: ls.Event) -> float:
    """By plain passes over one input after the other."""
    total, table = 0.0, Table(inputs)
    for row, probability in zip(table.tokens, table.probability.tolist(), strict=True):
        tokens, path = row[row >= 0].tolist(), []
        for _ in range(event.steps):
            v = alone(torch.tensor(tokens + path))
            path.append(int((v @ MODEL.unembedding + MODEL.unembedding_bias).argmax()))
        if bool(event.allows(torch.tensor([path]), MODEL.tokenizer)):
            total += probability
    return min(total, 1.0)


EVENTS = [3, [2, 5], ls.Continuation([3, 3]), ls.Matches("b|c", within=2)]


@pytest.mark.parametrize("make", [toy, ambiguous])
@pytest.mark.parametrize("wanted", EVENTS, ids=str)
def test_methods_agree_with_enumeration(make: object, wanted: object) -> None:
    inputs, event = make(), as_event(wanted, MODEL)
    truth = exact(inputs, event)
    found = 0.0
    for leaves in Enumeration(MODEL, inputs, more=event.steps - 1):
        outcome = outcomes(MODEL, event, leaves.activation, leaves.go_on)
        found += float(leaves.log_prob[outcome.rows].exp() @ outcome.grade)
    assert found == pytest.approx(truth, abs=1e-12)
    answers = [
        ls.estimate(MODEL, inputs, event, method="naive", budget=2000, seed=seed)
        for seed in range(6)
    ]
    held = [a.interval[0] <= truth <= a.interval[1] for a in answers if a.interval]
    assert sum(held) >= 5
    for witness in answers[0].witnesses:
        assert min(witness.tokens) >= 0
        row = torch.tensor([*witness.tokens, *[-1] * (inputs.length - len(witness.tokens))])
        assert witness.log_prob == pytest.approx(float(inputs.log_prob(row[None])))


def test_the_toy_has_something_to_find() -> None:
    found = [exact(toy(), as_event(event, MODEL)) for event in EVENTS]
    assert sum(0.01 < p < 0.99 for p in found) >= 3


@pytest.mark.parametrize("method", ["gld", "qld"])
def test_methods_of_samples_take_inputs_of_several_lengths(method: str) -> None:
    assert 0 <= ls.estimate(MODEL, toy(), 3, method=method, budget=200).probability <= 1


@pytest.mark.parametrize("method", ["conditional", "itgis", "mhis"])
def test_a_method_that_needs_a_product_says_so(method: str) -> None:
    with pytest.raises(ls.LongshotError, match=f"{method} needs inputs whose tokens are indep"):
        ls.estimate(MODEL, toy(), 3, method=method, budget=200)


@pytest.mark.parametrize("event", [3, ls.Continuation([3, 3])], ids=str)
def test_rows_of_several_lengths_are_scored_one_as_the_other(event: object) -> None:
    inputs, event = toy(), as_event(event, MODEL)
    tokens = Table(inputs).tokens
    owner = torch.zeros(len(tokens), dtype=torch.int64)
    evaluator = Evaluator(MODEL, [event], "gap", inputs)
    together = evaluator(tokens, owner, gradient=True)
    decided = evaluator.decide(tokens, together.activation, owner)
    for i, row in enumerate(tokens):
        row = row[row >= 0][None]
        one = Evaluator(MODEL, [event], "gap")(row, owner[:1], gradient=True)
        torch.testing.assert_close(together.score[i], one.score[0])
        torch.testing.assert_close(together.activation[i], one.activation[0])
        n, known = row.shape[1], len(inputs.beginning)
        torch.testing.assert_close(together.gradient[i, known:n], one.gradient[0, known:])
        assert (decided.gap[i] > 0) == (one.score[0] > 0)


def test_tails_of_several_lengths_remember_what_came_before() -> None:
    inputs, generator = toy(), torch.Generator().manual_seed(1)
    event = as_event(3, MODEL)
    tokens = inputs.sample(24, generator)
    owner = torch.zeros(len(tokens), dtype=torch.int64)
    tails = Tails(Evaluator(MODEL, [event], "gap"), owner, inputs.length)
    tails.whole(tokens, gradient=False)
    for start in (3, 2, 4, 1):
        changed = inputs.redraw(tokens, generator, start)
        found = tails.changed(changed, start, gradient=False)
        plain = Evaluator(MODEL, [event], "gap")(changed, owner)
        torch.testing.assert_close(found.score, plain.score)
        back = torch.arange(0, len(tokens), 2)
        tails.put_back(back)
        tokens = torch.where(torch.arange(len(tokens))[:, None] % 2 == 0, tokens, changed)


def test_a_text_and_its_slots_from_python(tmp_path: Path) -> None:
    model = ls.load_model("mini-1l")
    (tmp_path / "who.csv").write_text("name,n\nAnn,3\nMary Jane,1\n")
    inputs = ls.template(
        model,
        "I am {who}, {mood}",
        who=tmp_path / "who.csv#name",
        mood={"glad": 2.0, "in two minds": 1.0},
    )
    assert inputs.count == 4
    rows = [[t for t in row if t >= 0] for row in inputs.listed(0, 4).tokens.tolist()]
    assert model.tokenizer.decode(rows[3]) == "<|BOS|>I am Mary Jane, in two minds"
    with pytest.raises(ls.LongshotError, match=r"The template, slots\.x: is not used") as caught:
        ls.template(model, "a", x=["b"])
    assert "line" not in str(caught.value)
    product = ls.template(model, "I am {mood}", mood=["glad", "sad"])
    assert isinstance(product, ls.ProductInputs) == (len(model.tokenizer.encode(" glad")) == 1)
