"""A user's own distribution: fixed text with random slots, in a TOML file.

    [inputs]
    name = "bank-transfer"
    text = "Transfer {amount} dollars to {name} now{end}"
    [slots.amount]
    choices = { " ten" = 3, " fifty" = 1 }   # weighted strings; a list has equal weights
    [slots.name]
    tokens = "starts-with-space-letters"     # a token class
    weights = "english"                      # a frequency table; without it all equal
    repeat = 2                               # two independent positions
    [slots.end]
    choices = [".", "!", "?"]

BOS comes first, each stretch of fixed text is tokenised by itself, and every choice is one
token. Tokens that begin with a space bring their own: where all of a slot's do, one space
before the slot in the text is theirs and not written twice. `{{` and `}}` are plain braces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from longshot.errors import LongshotError, unknown_name, visible
from longshot.files import read_text
from longshot.inputs.classes import CLASSES, class_tokens
from longshot.inputs.corpus import LANGUAGES
from longshot.inputs.counts import Counts
from longshot.inputs.product import ProductInputs
from longshot.inputs.tokens import TokenDistribution
from longshot.models.tokenizer import Tokenizer
from longshot.toml import KeyPath, TomlFile

_LONGEST = 2**16  # no model reads more, and a slip of the keyboard should not fill the memory
_PIECE = re.compile(r"\{\{|\}\}|\{(?P<slot>[^{}]*)\}|(?P<lone>[{}])|[^{}]+")


def read_template(path: Path, tokenizer: Tokenizer, counts: Counts) -> ProductInputs:
    """The distribution that a template file describes."""
    return parse_template(read_text("template", path), str(path), tokenizer, counts)


def parse_template(source: str, where: str, tokenizer: Tokenizer, counts: Counts) -> ProductInputs:
    """The same from the file's text; `where` names it in errors."""
    return _Template(TomlFile.parse(source, where), tokenizer, counts).build()


@dataclass(frozen=True)
class _Slot:
    distribution: TokenDistribution
    repeat: int
    brings_space: bool


@dataclass(frozen=True)
class _Template:
    """A parsed file on its way to a distribution; every refusal names a key and its line."""

    file: TomlFile
    tokenizer: Tokenizer
    counts: Counts

    def build(self) -> ProductInputs:
        self._known((), self.file.parsed, ("inputs", "slots"))
        inputs = self._table(("inputs",), self.file.parsed.get("inputs"))
        self._known(("inputs",), inputs, ("name", "text"))
        name = self._string(("inputs", "name"), inputs.get("name"))
        if name != visible(name):
            self.file.refuse(("inputs", "name"), "has characters that do not print")
        text = self._string(("inputs", "text"), inputs.get("text"))
        tables = self._table(("slots",), self.file.parsed.get("slots", {}))
        slots = {key: self._slot(("slots", key), table) for key, table in tables.items()}

        positions = [TokenDistribution.fixed(self.tokenizer.bos)]
        for piece in self._pieces(text, slots):
            if isinstance(piece, _Slot):
                positions += [piece.distribution] * piece.repeat
            else:
                positions += map(TokenDistribution.fixed, self.tokenizer.encode(piece))
        return ProductInputs(name, positions)

    def _pieces(self, text: str, slots: dict[str, _Slot]) -> list[str | _Slot]:
        """Fixed stretches and slots in order, the space before a spaced slot taken off."""
        key = ("inputs", "text")
        pieces: list[str | _Slot] = []
        fixed = ""
        unused = set(slots)
        for match in _PIECE.finditer(text):
            name = match["slot"]
            if match["lone"]:
                self.file.refuse(
                    key, f"has a lone {match[0]!r}; write {match[0] * 2!r} for the brace"
                )
            if name is None:
                fixed += match[0][0] if match[0] in ("{{", "}}") else match[0]
                continue
            if name not in slots:
                known = ", ".join(slots) or "none"
                self.file.refuse(
                    key, f"uses a slot {name!r} that has no [slots] table (known: {known})"
                )
            slot = slots[name]
            pieces += [fixed.removesuffix(" ") if slot.brings_space else fixed, slot]
            fixed = ""
            unused.discard(name)
        if unused:
            first = min(unused)
            self.file.refuse(("slots", first), f"is not used: the text has no {{{first}}}")
        return [*pieces, fixed]

    def _slot(self, path: KeyPath, raw: object) -> _Slot:
        table = self._table(path, raw)
        self._known(path, table, ("choices", "tokens", "weights", "repeat"))
        if ("choices" in table) == ("tokens" in table):
            self.file.refuse(path, "needs either choices or tokens")
        if "choices" in table:
            if "weights" in table:
                self.file.refuse(
                    (*path, "weights"), 'goes with tokens; write choices = { "text" = weight, … }'
                )
            distribution = self._choices((*path, "choices"), table["choices"])
        else:
            distribution = self._class(path, table)
        repeat = table.get("repeat", 1)
        if type(repeat) is not int or not 1 <= repeat <= _LONGEST:
            self.file.refuse((*path, "repeat"), f"must be a whole number from 1 to {_LONGEST}")
        texts = (self.tokenizer.texts[token] for token in distribution.support.tolist())
        return _Slot(distribution, repeat, all(text and text[0] == " " for text in texts))

    def _choices(self, path: KeyPath, raw: object) -> TokenDistribution:
        weights = raw
        if isinstance(raw, list) and all(isinstance(choice, str) for choice in raw):
            weights = dict.fromkeys(raw, 1)
            if len(weights) < len(raw):
                self.file.refuse(path, "has the same string twice; give weights in a table instead")
        if not isinstance(weights, dict) or not weights:
            self.file.refuse(path, "must be a list of strings or a table of weights, and not empty")
        seen: dict[int, str] = {}
        for choice, weight in weights.items():
            token = self._single((*path, choice), choice)
            if token in seen:
                self.file.refuse((*path, choice), f"is the same token as {seen[token]!r}")
            seen[token] = choice
            if type(weight) not in (int, float) or not 0 < weight <= 1e300:
                self.file.refuse((*path, choice), "must have a positive number as its weight")
        return TokenDistribution.from_weights(list(seen), [float(w) for w in weights.values()])

    def _single(self, path: KeyPath, choice: str) -> int:
        tokens = self.tokenizer.encode(choice)
        if len(tokens) != 1:
            spelt = " + ".join(self.tokenizer.show(token) for token in tokens) or "none"
            self.file.refuse(
                path,
                f"is {len(tokens)} tokens ({spelt}), but a choice is one token; spell it "
                f"otherwise (with or without a leading space), or make a slot for each token",
            )
        return tokens[0]

    def _class(self, path: KeyPath, table: dict[str, Any]) -> TokenDistribution:
        rule = self._string((*path, "tokens"), table["tokens"])
        if rule not in CLASSES:
            self.file.refuse((*path, "tokens"), str(unknown_name("token class", rule, CLASSES)))
        tokens = class_tokens(self.tokenizer, rule)
        weights = torch.ones(len(tokens), dtype=torch.float64)
        if "weights" in table:
            weights = self._frequencies((*path, "weights"), table["weights"])[tokens]
        if not weights.sum():
            self.file.refuse((*path, "tokens"), f"finds no token of the class {rule!r}")
        return TokenDistribution.from_weights(tokens, weights)

    def _frequencies(self, path: KeyPath, raw: object) -> Int64[Tensor, " vocab"]:
        language = self._string(path, raw)
        if language not in LANGUAGES:
            self.file.refuse(path, str(unknown_name("frequency table", language, LANGUAGES)))
        try:
            return self.counts.of(language)
        except LongshotError as error:
            self.file.refuse(path, str(error))

    def _table(self, path: KeyPath, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.file.refuse(path, "must be a table" if value is not None else "is missing")
        return value

    def _string(self, path: KeyPath, value: object) -> str:
        if not isinstance(value, str) or not value:
            wrong = "is missing" if value is None else "must be a string that is not empty"
            self.file.refuse(path, wrong)
        return value

    def _known(self, path: KeyPath, table: dict[str, Any], keys: tuple[str, ...]) -> None:
        for key in table:
            if key not in keys:
                self.file.refuse((*path, key), str(unknown_name("key", key, keys)))
