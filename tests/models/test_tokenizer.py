"""Text to ids and back, on the shipped tokenizer and on a toy."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from longshot.errors import LongshotError
from longshot.models import Tokenizer
from longshot.models.checkpoints import ZOO
from tests.toys import toy_tokenizer

SHIPPED = Tokenizer.from_file(ZOO / "tokenizer.json")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(text: str) -> None:
    ids = SHIPPED.encode(text)
    assert all(0 <= i < SHIPPED.vocab_size for i in ids)
    assert SHIPPED.decode(ids) == text


@given(st.text(alphabet="abcdefg"))
def test_a_toy_comes_back(text: str) -> None:
    toy = toy_tokenizer(8)
    assert toy.encode(text) == [" abcdefg".index(c) for c in text]
    assert toy.decode(toy.encode(text)) == text


def test_texts_join_to_the_text() -> None:
    text = 'He screamed: "No! 1234"\n\tif x'
    assert "".join(SHIPPED.texts[i] or "?" for i in SHIPPED.encode(text)) == text


def test_every_text_is_what_decoding_gives() -> None:
    whole = [(i, text) for i, text in enumerate(SHIPPED.texts) if text is not None]
    assert len(whole) > 0.9 * SHIPPED.vocab_size
    assert all(SHIPPED.decode([i]) == text for i, text in whole)


def test_digits_stand_alone() -> None:
    assert len(SHIPPED.encode("20241017")) == 8


def test_specials_have_names_but_no_text() -> None:
    assert SHIPPED.bos in SHIPPED.special_ids
    assert SHIPPED.texts[SHIPPED.bos] is None
    assert SHIPPED.show(SHIPPED.bos) == "<|BOS|>"
    assert SHIPPED.encode("<|BOS|>if") == [SHIPPED.bos, SHIPPED.single("if")]
    assert "<|BOS|>" in SHIPPED.decode([SHIPPED.bos])


def test_single() -> None:
    assert SHIPPED.texts[SHIPPED.single(" if")] == " if"
    with pytest.raises(LongshotError, match=r"2 tokens: 'a' \+ 'b'.*first is 'a'"):
        toy_tokenizer().single("ab")
    with pytest.raises(LongshotError, match="empty text"):
        toy_tokenizer().single("")
    with pytest.raises(LongshotError, match="not Unicode"):
        toy_tokenizer().single("\ud800")


def test_show_quotes_and_survives_ids_past_the_vocabulary() -> None:
    toy = toy_tokenizer(8)
    assert [toy.show(0), toy.show(1), toy.show(9)] == ["<|BOS|>", "'a'", "<token 9>"]


def test_bos_may_be_given_and_may_be_missing() -> None:
    bare = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    assert Tokenizer(bare, bos=1).bos == 1
    with pytest.raises(LongshotError, match="give its id as bos"):
        _ = Tokenizer(bare).bos


def test_fingerprints_tell_tokenizers_apart() -> None:
    assert toy_tokenizer(8).fingerprint == toy_tokenizer(8).fingerprint
    assert toy_tokenizer(8).fingerprint != toy_tokenizer(9).fingerprint


def test_broken_files(tmp_path: Path) -> None:
    """Cut and flipped at many places: a tokenizer that works, or one sentence."""
    text = toy_tokenizer(8).backend.to_str()
    for cut in range(0, len(text), 7):
        path = tmp_path / "tokenizer.json"
        path.write_text(text[:cut])
        with pytest.raises(LongshotError, match=r"is not a tokenizer file: [^\n]+\.$"):
            Tokenizer.from_file(path)
    with pytest.raises(LongshotError, match="cannot be read: No such file"):
        Tokenizer.from_file(tmp_path / "absent.json")
    for place in range(0, len(text), 3):
        path.write_text(text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :])
        try:
            Tokenizer.from_file(path).encode("abc")
        except LongshotError:
            continue
