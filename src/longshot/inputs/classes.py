"""Token classes: the rules by which the catalogue and the templates choose tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int64
from torch import Tensor

from longshot.errors import unknown_name
from longshot.models.tokenizer import Tokenizer

_HEXADECIMAL = frozenset("0123456789abcdef")
_PUNCTUATION = frozenset(",.?!:;")
_PYTHON_CONSTANTS = frozenset({"None", "True", "False"})


@dataclass(frozen=True)
class TokenClass:
    """A rule on a token's text; special tokens and broken characters have none (None)."""

    summary: str
    accepts: Callable[[str | None], bool]


def _of_text(summary: str, accepts: Callable[[str], bool]) -> TokenClass:
    """A rule that only a token with a text of its own can meet."""
    return TokenClass(summary, lambda text: bool(text) and accepts(str(text)))


def _is_hexadecimal(text: str) -> bool:
    return _HEXADECIMAL.issuperset(text)


def _is_camel_case(text: str) -> bool:
    capital, rest = text[0], text[1:]
    shaped = capital.isalpha() and capital.isupper() and rest.isalpha() and rest.islower()
    return shaped and text not in _PYTHON_CONSTANTS


def _is_capitals(text: str) -> bool:
    return len(text) >= 2 and all((c.isalpha() and c.isupper()) or c in _PUNCTUATION for c in text)


def _is_spaced_word(text: str) -> bool:
    return text[0] == " " and text[1:].isalpha()


def _is_spaced_or_punctuation(text: str) -> bool:
    if len(text) == 1:
        return text in ",.!?;"
    return text[0] == " " and all(c.isalpha() or c in _PUNCTUATION for c in text[1:])


def _is_long_word(text: str) -> bool:
    return _is_spaced_word(text) and len(text) >= 5


def _is_letters_and_spaces(text: str) -> bool:
    return all(c.isalpha() or c.isspace() for c in text)


CLASSES = {
    "any": TokenClass("every token, special ones included", lambda text: True),
    "hexadecimal": _of_text("only 0-9 and a-f", _is_hexadecimal),
    "letters": _of_text("only letters, no space", str.isalpha),
    "camel-case": _of_text("a capital, then lower case; not None, True, False", _is_camel_case),
    "capitals": _of_text("two or more, each a capital or one of ,.?!:;", _is_capitals),
    "starts-with-space-letters": _of_text("a space, then letters", _is_spaced_word),
    "words-and-punctuation": _of_text(
        "a space, then letters or ,.?!:; — or one of ,.!?; alone", _is_spaced_or_punctuation
    ),
    "long-words": _of_text("a space, then four or more letters", _is_long_word),
    "letters-and-spaces": _of_text("only letters and white space", _is_letters_and_spaces),
}


@lru_cache(maxsize=64)
def class_tokens(tokenizer: Tokenizer, name: str) -> Int64[Tensor, " size"]:
    """The tokens of a named class, in order of their ids; remembered, as one class serves often."""
    if name not in CLASSES:
        raise unknown_name("token class", name, CLASSES)
    accepts = CLASSES[name].accepts
    found = [token for token, text in enumerate(tokenizer.texts) if accepts(text)]
    return torch.tensor(found, dtype=torch.int64)
