from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longshot.errors import LongshotError
from longshot.events import TokenIn, TokenIs, _as_token, as_event, member_table
from longshot.models import Model

unhurried = settings(deadline=None)  # a shared machine stalls now and then
VOCAB = 7
logit_rows = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.floats(-1e4, 1e4, width=32)),
    min_size=VOCAB,
    max_size=VOCAB,
)
token_sets = st.sets(st.integers(0, VOCAB - 1), min_size=1, max_size=VOCAB - 1).map(frozenset)


@unhurried
@given(st.lists(logit_rows, min_size=1, max_size=5), token_sets)
def test_an_event_is_what_its_definition_says(
    rows: list[list[float]], tokens: frozenset[int]
) -> None:
    """Small whole numbers make ties common."""
    event, logits = TokenIn(tokens), torch.tensor(rows, dtype=torch.float64)
    before = logits.clone()
    inside = [max(row[t] for t in tokens) for row in rows]
    outside = [max(x for t, x in enumerate(row) if t not in tokens) for row in rows]
    assert event.logit(logits).tolist() == inside
    gaps = [a - b for a, b in zip(inside, outside, strict=True)]
    assert event.score(logits).tolist() == gaps
    assert event.grade(logits).tolist() == [
        float(a > b) for a, b in zip(inside, outside, strict=True)
    ]
    assert torch.equal(logits, before)


def test_a_tie_with_a_rival_is_no_win_and_a_tie_within_the_set_is() -> None:
    logits = torch.tensor([1.0, 5.0, 5.0, 0.0])
    assert not TokenIs(1).grade(logits)
    assert not TokenIs(2).grade(logits)
    assert float(TokenIs(1).score(logits)) == 0
    assert TokenIn(frozenset({1, 2})).grade(logits)
    above = torch.tensor([1.0, math.nextafter(5.0, 6.0), 5.0, 0.0], dtype=torch.float64)
    assert TokenIs(1).grade(above)
    assert not TokenIs(2).grade(above)


@unhurried
@given(logit_rows)
def test_at_most_one_token_occurs(row: list[float]) -> None:
    logits = torch.tensor(row, dtype=torch.float64)
    occurring = [t for t in range(VOCAB) if TokenIs(t).grade(logits)]
    ties = row.count(max(row)) > 1
    assert occurring == ([] if ties else [row.index(max(row))])


def test_equal_events_are_one() -> None:
    assert TokenIs(3) == TokenIn(frozenset({3}))
    assert TokenIn(frozenset({5, 2})).key == TokenIn(frozenset({2, 5})).key == "token:2,5"
    assert TokenIs(25).key != TokenIn(frozenset({2, 5})).key
    assert TokenIn(frozenset({5, 2})).members == (2, 5)


def test_the_score_of_a_batch_keeps_its_shape() -> None:
    logits = torch.randn(2, 3, VOCAB, generator=torch.Generator().manual_seed(0))
    event = TokenIn(frozenset({0, 4}))
    assert event.score(logits).shape == (2, 3)
    assert torch.equal(event.score(logits)[1], event.score(logits[1]))


# --- what a user may give


def test_texts_ids_and_collections_are_events(toy: Model) -> None:
    assert as_event("b", toy) == as_event(2, toy) == TokenIs(2)
    assert as_event(0, toy) == TokenIs(0)
    assert as_event(TokenIs(4), toy) == TokenIs(4)
    for several in (["b", 4], ("b", 4), {"b", 4}, iter([4, "b", 2]), range(2, 5, 2)):
        assert as_event(several, toy) == TokenIn(frozenset({2, 4}))


def test_whole_numbers_of_other_packages_are_ids(toy: Model) -> None:
    assert as_event(np.array([3, 1]).tolist(), toy) == TokenIn(frozenset({1, 3}))
    assert _as_token(np.int64(3), toy) == 3
    assert _as_token(torch.tensor(3), toy) == 3


def test_several_tokens_are_shown_with_the_ways_out(toy: Model) -> None:
    with pytest.raises(LongshotError) as error:
        as_event("abc", toy)
    message = str(error.value)
    assert "3 tokens: 'a' + 'b' + 'c'" in message
    assert "the first is 'a'" in message
    assert "a set of tokens" in message


@pytest.mark.parametrize("token", [-1, 8, 10**9])
def test_an_id_outside_the_vocabulary_is_named(toy: Model, token: int) -> None:
    for value in (token, [1, token], TokenIs(token)):
        with pytest.raises(LongshotError, match=rf"Token {token} .*toy-0's vocabulary of 8"):
            as_event(value, toy)


@pytest.mark.parametrize("value", [True, 1.0, 2.5, None, b"a", math.nan, [1], torch.ones(2)])
def test_what_is_no_token_is_refused(toy: Model, value: object) -> None:
    with pytest.raises(LongshotError, match="a text or a whole number"):
        _as_token(value, toy)


def test_true_is_not_token_one(toy: Model) -> None:
    for value in (True, [True, 2]):
        with pytest.raises(LongshotError, match="not True"):
            as_event(value, toy)


def test_empty_and_full_sets_are_refused(toy: Model) -> None:
    with pytest.raises(LongshotError, match="at least one token"):
        as_event([], toy)
    with pytest.raises(LongshotError, match="always occurs"):
        as_event(range(8), toy)
    with pytest.raises(LongshotError, match="empty text"):
        as_event("", toy)


@unhurried
@given(st.one_of(st.text(max_size=5), st.integers(), st.lists(st.integers(-2, 9), max_size=9)))
def test_anything_of_the_right_type_is_an_event_or_one_error(toy: Model, value: object) -> None:
    try:
        event = as_event(value, toy)
    except LongshotError:
        return
    assert all(0 <= token < 8 for token in event.tokens)


def test_events_are_shown_as_text(toy: Model) -> None:
    assert TokenIs(1).show(toy) == "'a'"
    assert TokenIn(frozenset({2, 1})).show(toy) == "any of 'a', 'b'"


def test_the_member_table_repeats_a_member_rather_than_inventing_one() -> None:
    table = member_table([TokenIs(4), TokenIn(frozenset({3, 1, 2}))])
    assert table.tolist() == [[4, 4, 4], [1, 2, 3]]
