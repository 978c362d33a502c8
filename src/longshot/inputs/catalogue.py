"""The paper's eight distributions of inputs (its table 1 and appendix A), for any tokenizer.

Each is a fixed BOS followed by fixed text and random tokens: a class of tokens, weighted by
their frequency in a language. How many documents of the paper's own text were counted, and how
many of the most frequent tokens were kept, is part of each definition; a tokenizer with fewer
tokens in a class keeps them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_uppercase

import torch

from longshot.errors import LongshotError, unknown_name
from longshot.inputs.classes import CLASSES, class_tokens
from longshot.inputs.counts import Counts
from longshot.inputs.product import ProductInputs
from longshot.inputs.tokens import TokenDistribution
from longshot.models.tokenizer import Tokenizer

Positions = list[TokenDistribution]


@dataclass(frozen=True)
class Workshop:
    """What a distribution is made from, and the three kinds of position it is made of."""

    name: str
    tokenizer: Tokenizer
    counts: Counts

    def fixed(self, text: str) -> Positions:
        """The tokens of a fixed text, however many there are."""
        return [TokenDistribution.fixed(token) for token in self.tokenizer.encode(text)]

    def uniform(self, texts: list[str]) -> TokenDistribution:
        """One of several tokens, all equally likely."""
        return TokenDistribution.from_weights(
            [self._single(text) for text in texts], [1.0] * len(texts)
        )

    def frequent(
        self, rule: str, language: str, *, documents: int, top: int | None = None, first: str = ""
    ) -> TokenDistribution:
        """The `top` most frequent tokens of a class, as likely as they are frequent.

        `first` asks for the first letter of a spaced word, in either case.
        """
        tokens = class_tokens(self.tokenizer, rule)
        if first:
            starts = (f" {first.upper()}", f" {first.lower()}")
            texts = self.tokenizer.texts
            begins = [str(texts[token]).startswith(starts) for token in tokens.tolist()]
            tokens = tokens[torch.tensor(begins, dtype=torch.bool)]
        counts = self.counts.of(language, documents)[tokens]
        order = counts.argsort(descending=True, stable=True)[:top]  # of equals the lower id
        if not counts.sum():
            asked = CLASSES[rule].summary + (f", beginning with {first}" if first else "")
            raise LongshotError(
                f"The inputs {self.name!r} cannot be built for this tokenizer: no token of the "
                f"class {rule!r} ({asked}) occurs in the {language} text."
            )
        return TokenDistribution.from_weights(tokens[order], counts[order])

    def _single(self, text: str) -> int:
        ids = self.tokenizer.encode(text)
        if len(ids) != 1:
            spelt = " + ".join(self.tokenizer.show(token) for token in ids)
            raise LongshotError(
                f"The inputs {self.name!r} cannot be built for this tokenizer: they need {text!r} "
                f"as one token, and here it is {spelt}."
            )
        return ids[0]


def _hex(make: Workshop) -> Positions:
    return [make.frequent("hexadecimal", "hexadecimal", documents=1)] * 32


def _camel(make: Workshop) -> Positions:
    return [make.frequent("camel-case", "python", documents=2**10)] * 32


def _colon(make: Workshop) -> Positions:
    return [make.frequent("any", "python", documents=2**10, top=1024)] * 32 + make.fixed(":")


def _if(make: Workshop) -> Positions:
    code = make.frequent("any", "python", documents=2**10, top=1024)
    return make.fixed(" if") + [code] * 32


def _caps(make: Workshop) -> Positions:
    who = make.uniform(["He", "She"])
    shout = make.frequent("capitals", "english", documents=2**10, top=1024)
    return [who, *make.fixed(' screamed: "'), *[shout] * 16]


def _english(make: Workshop) -> Positions:
    first = make.frequent("letters", "english", documents=2**14, top=16384)
    later = make.frequent("words-and-punctuation", "english", documents=2**14, top=16384)
    return [first, *[later] * 24]


def _spanish(make: Workshop) -> Positions:
    return [make.frequent("letters-and-spaces", "spanish", documents=2**14, top=1024)] * 24


def _icl(make: Workshop) -> Positions:
    words = {
        letter: make.frequent("long-words", "english", documents=2**14, first=letter)
        for letter in "ARCTHEORY"
    }
    positions: Positions = []
    for letter in "ARCTHEORY":
        positions += make.fixed(f" {letter} for" if positions else f"{letter} for")
        positions.append(words[letter])
    query = make.uniform([f" {letter}" for letter in ascii_uppercase])
    return [*positions, query, *make.fixed(" for")]


@dataclass(frozen=True)
class CatalogueEntry:
    """One distribution of the catalogue."""

    summary: str
    positions: Callable[[Workshop], Positions]


CATALOGUE = {
    "hex": CatalogueEntry("hexadecimal characters", _hex),
    "camel": CatalogueEntry("CamelCase Python tokens", _camel),
    "colon": CatalogueEntry("Python tokens, ending with ':'", _colon),
    "if": CatalogueEntry("Python tokens, starting with ' if'", _if),
    "caps": CatalogueEntry("'He/She screamed: \"', then capitals and punctuation", _caps),
    "english": CatalogueEntry("English words", _english),
    "spanish": CatalogueEntry("Spanish tokens", _spanish),
    "icl": CatalogueEntry("'A for … R for … C for …', then a random letter and ' for'", _icl),
}


def build(name: str, tokenizer: Tokenizer, frequencies: Counts) -> ProductInputs:
    """One of the eight, for a tokenizer and its token frequencies."""
    if name not in CATALOGUE:
        raise unknown_name("distribution of inputs", name, CATALOGUE)
    positions = CATALOGUE[name].positions(Workshop(name, tokenizer, frequencies))
    return ProductInputs(name, [TokenDistribution.fixed(tokenizer.bos), *positions])
