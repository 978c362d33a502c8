"""Tokenizers of `transformers` as ours: exact texts in both spellings of a space."""

from __future__ import annotations

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from longshot.models.hf_tokenizer import exact_tokenizer
from tests.toys import toy_tokenizer

WORDS = ["<s>", "▁", "b", "u", "t", "bu", "but", "▁but", "<0x0A>", "<0xC3>", "é"]
MERGES = [("b", "u"), ("bu", "t"), ("▁", "but")]


def llama_like(metaspace: bool) -> tokenizers.Tokenizer:
    """Both ways in which tokenizers put `▁` before a text."""
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, MERGES, byte_fallback=True))
    if metaspace:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        backend.decoder = decoders.Metaspace(prepend_scheme="first")
    else:
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        backend.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
    backend.add_special_tokens(["<s>"])
    return backend


def test_a_space_is_written_only_where_the_text_has_one() -> None:
    for metaspace in (False, True):
        theirs = llama_like(metaspace)
        assert theirs.encode("but").tokens == ["▁but"]
        ours = exact_tokenizer(theirs)
        assert ours.encode("but") == [6]
        assert ours.encode(" but") == [7]
        assert ours.single(" but") == 7
        assert ours.decode([7, 6]) == " butbut"
        assert theirs.encode("but").tokens == ["▁but"]  # left as it is


def test_texts_of_every_token() -> None:
    ours = exact_tokenizer(llama_like(False))
    assert ours.texts == (
        *(None, " ", "b", "u", "t", "bu", "but", " but", "\n"),
        *(None, "é"),
    )
    assert ours.show(7) == "' but'"
    assert ours.show(9) == "<0xC3>"
    assert ours.bos == 0


def test_a_byte_level_tokenizer_is_itself() -> None:
    theirs = toy_tokenizer()
    ours = exact_tokenizer(theirs.backend)
    assert ours.texts == theirs.texts
    assert ours.fingerprint == theirs.fingerprint
    theirs.backend.enable_truncation(2)
    assert exact_tokenizer(theirs.backend).encode("abc") == [1, 2, 3]


def test_parts_in_a_sequence() -> None:
    backend = toy_tokenizer().backend
    split = pre_tokenizers.Split(Regex(r"\d"), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    assert exact_tokenizer(backend).encode("abc") == [1, 2, 3]
