from __future__ import annotations

import pytest

from longshot.errors import LongshotError
from longshot.inputs.classes import CLASSES, class_tokens
from longshot.models import Tokenizer


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        ("any", ["", "a", " if", None], []),
        ("hexadecimal", ["0", "a", "ff", "9e"], ["A", "g", " a", "", None]),
        ("letters", ["a", "Word", "ñandú"], [" a", "a1", "", None]),
        ("camel-case", ["Er", "Error", "Él"], ["E", "ERror", "error", " Er", "None", "E1", None]),
        ("capitals", ["AB", "!!", "A.", "..."], ["A", "!", "Ab", " AB", "A1", None]),
        ("starts-with-space-letters", [" a", " The", " é"], ["a", " ", "  a", " a.", None]),
        (
            "words-and-punctuation",
            [" a", " The", " ,", " a.", ",", ".", "!", "?", ";"],
            [":", "a", " ", ".,", " a1", "", None],
        ),
        ("long-words", [" four", " Longer"], [" ten", "four", " it's", None]),
        ("letters-and-spaces", ["de", " la", " ", "\n", "á b"], ["a,", "1", "", None]),
    ],
)
def test_rules(name: str, accepted: list[str | None], refused: list[str | None]) -> None:
    accepts = CLASSES[name].accepts
    assert [text for text in accepted if not accepts(text)] == []
    assert [text for text in refused if accepts(text)] == []


def test_every_class_finds_tokens(shipped: Tokenizer) -> None:
    for name in CLASSES:
        tokens = class_tokens(shipped, name).tolist()
        assert tokens == sorted(set(tokens))
        assert tokens
    assert len(class_tokens(shipped, "any")) == shipped.vocab_size


def test_an_unknown_class_gets_the_nearest(shipped: Tokenizer) -> None:
    with pytest.raises(LongshotError, match="did you mean 'capitals'"):
        class_tokens(shipped, "capital")
