"""A user's own distribution: fixed text with random slots, in a TOML file or from Python.

    [inputs]
    name = "bank-transfer"
    text = "Transfer {amount} dollars to {name} now{end}"
    [slots.amount]
    choices = { "ten" = 3, "a hundred" = 1 }   # weighted texts; a list has equal weights
    [slots.name]
    tokens = "starts-with-space-letters"       # a token class
    weights = "english"                        # a frequency table; without it all equal
    repeat = 2                                 # two independent ones in a row
    [slots.end]
    file = "ends.txt"                          # a file of texts, or rows.jsonl#COLUMN: see `rows`

BOS comes first and each stretch of fixed text is tokenised by itself. A choice may be several
tokens; one space before a slot in the text is tokenised with the choice, as in running text, and is
not written twice where all of them bring one. A slot that is named twice has the same value both
times. `{{` and `}}` are plain braces. In place of a text there may be messages,

    [[inputs.messages]]
    role = "system"
    content = "Never mention {topic}."

which the model's own chat template turns into one, up to where the assistant begins; a last message
of the assistant is left open, to be continued.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from longshot.errors import LongshotError, unknown_name, visible
from longshot.files import read_text
from longshot.inputs.chat import Messages, rendered
from longshot.inputs.classes import CLASSES, class_tokens
from longshot.inputs.corpus import LANGUAGES
from longshot.inputs.counts import Counts, load_counts
from longshot.inputs.layout import Layout, Slot
from longshot.inputs.product import ProductInputs
from longshot.inputs.rows import read_rows
from longshot.inputs.slots import SlotInputs
from longshot.inputs.tokens import TokenDistribution
from longshot.models import Model, load_model
from longshot.models.tokenizer import Tokenizer
from longshot.toml import KeyPath, TomlFile

_LONGEST = 2**16  # no model reads more, and a slip of the keyboard should not fill the memory
_PIECE = re.compile(r"\{\{|\}\}|\{(?P<slot>[^{}]*)\}|(?P<lone>[{}])|[^{}]+")
_OPEN, _CLOSE = "\ue000", "\ue001"  # a slot on its way through a chat template

Choices = Sequence[str] | Mapping[str, float] | Path


def read_template(path: Path, tokenizer: Tokenizer, counts: Counts) -> ProductInputs | SlotInputs:
    """The distribution that a template file describes."""
    file = TomlFile.parse(read_text("template", path), str(path))
    return _Template(file, tokenizer, counts, path.expanduser().parent).build()


def parse_template(
    source: str, where: str, tokenizer: Tokenizer, counts: Counts
) -> ProductInputs | SlotInputs:
    """The same from the file's text; `where` names it in errors."""
    return _Template(TomlFile.parse(source, where), tokenizer, counts).build()


def template(
    model: str | Path | Model,
    text: str | Messages,
    *,
    name: str = "template",
    **slots: Choices,
) -> ProductInputs | SlotInputs:
    """A text with slots, or messages as pairs of a role and a content, with each slot's choices.

    Choices are a list of texts, a dictionary of their weights, or the path of a file of them.
    """
    said: dict[str, Any] = {"text": text}
    if not isinstance(text, str):
        said = {"messages": [{"role": role, "content": content} for role, content in text]}
    tables = {
        slot: {"file": str(given)} if isinstance(given, Path) else {"choices": _plain(given)}
        for slot, given in slots.items()
    }
    parsed = {"inputs": {"name": name, **said}, "slots": tables}
    tokenizer = load_model(model).tokenizer
    return _Template(
        TomlFile("", "The template", parsed), tokenizer, load_counts(tokenizer)
    ).build()


def _plain(given: Sequence[str] | Mapping[str, float]) -> object:
    return dict(given) if isinstance(given, Mapping) else list(given)


@dataclass(frozen=True)
class _Template:
    """A parsed file on its way to a distribution; every refusal names a key and its line."""

    file: TomlFile
    tokenizer: Tokenizer
    counts: Counts
    folder: Path = Path()

    def build(self) -> ProductInputs | SlotInputs:
        self._known((), self.file.parsed, ("inputs", "slots"))
        inputs = self._table(("inputs",), self.file.parsed.get("inputs"))
        self._known(("inputs",), inputs, ("name", "text", "messages"))
        name = self._string(("inputs", "name"), inputs.get("name"))
        if name != visible(name):
            self.file.refuse(("inputs", "name"), "has characters that do not print")
        tables = self._table(("slots",), self.file.parsed.get("slots", {}))
        slots = {key: self._slot(key, table) for key, table in tables.items()}
        laid = Layout(self.tokenizer)
        if "messages" in inputs:
            text = self._chat(inputs)
        else:
            text = self._string(("inputs", "text"), inputs.get("text"))
            laid.fix([self.tokenizer.bos])
        for piece in self._pieces(text, slots):
            if isinstance(piece, str):
                laid.fix(self.tokenizer.encode(piece))
            else:
                laid.lay(*piece)
        return laid.inputs(name)

    def _pieces(self, text: str, slots: dict[str, Slot]) -> list[str | tuple[Slot, str]]:
        """Fixed stretches and slots in order, each slot with the space that was before it."""
        key = ("inputs", "text" if "text" in self.file.parsed["inputs"] else "messages")
        pieces: list[str | tuple[Slot, str]] = []
        fixed = ""
        matches = list(_PIECE.finditer(text))
        if lone := next((match["lone"] for match in matches if match["lone"]), None):
            self.file.refuse(key, f"has a lone {lone!r}; write {lone * 2!r} for the brace")
        named = [match["slot"] for match in matches if match["slot"] is not None]
        if unknown := [name for name in dict.fromkeys(named) if name not in slots]:
            known = ", ".join(slots) or "none"
            what = "a slot" if len(unknown) == 1 else "slots"
            words = ", ".join(map(repr, unknown))
            self.file.refuse(key, f"uses {what} {words} without a [slots] table (known: {known})")
        if unused := sorted(set(slots) - set(named)):
            first = unused[0]
            self.file.refuse(("slots", first), f"is not used: the text has no {{{first}}}")
        for match in matches:
            if match["slot"] is None:
                fixed += match[0][0] if match[0] in ("{{", "}}") else match[0]
                continue
            slot, space = slots[match["slot"]], ""
            if fixed.endswith(" ") and (slot.brings_space or slot.tokens is None):
                fixed, space = fixed[:-1], "" if slot.brings_space else " "
            pieces += [fixed, (slot, space)]
            fixed = ""
        return [*pieces, fixed]

    def _chat(self, inputs: dict[str, Any]) -> str:
        """The text that the model's chat template makes of the messages, slots in braces."""
        key = ("inputs", "messages")
        messages = inputs["messages"]
        if "text" in inputs:
            self.file.refuse(key, "and text are two ways to say it: give one of them")
        if not isinstance(messages, list) or not messages:
            self.file.refuse(key, "must be a list of messages, and not empty")
        for message in messages:
            said = self._table(key, message)
            self._known(key, said, ("role", "content"))
            self._string((*key, "role"), said.get("role"))
            self._string((*key, "content"), said.get("content"))
        marked = [
            (m["role"], re.sub(r"\{\{|\}\}|\{[^{}]*\}", _mark, m["content"])) for m in messages
        ]
        with self.file.errors_at(*key):
            text = rendered(self.tokenizer, marked)
        text = text.replace("{", "{{").replace("}", "}}")
        return text.replace(_OPEN, "{").replace(_CLOSE, "}")

    def _slot(self, name: str, raw: object) -> Slot:
        path: KeyPath = ("slots", name)
        table = self._table(path, raw)
        self._known(path, table, ("choices", "tokens", "file", "weights", "repeat"))
        if sum(key in table for key in ("choices", "tokens", "file")) != 1:
            self.file.refuse(path, "needs either choices or tokens or file")
        repeat = table.get("repeat", 1)
        if type(repeat) is not int or not 1 <= repeat <= _LONGEST:
            self.file.refuse((*path, "repeat"), f"must be a whole number from 1 to {_LONGEST}")
        if "tokens" in table:
            law = self._class(path, table)
            texts = [self.tokenizer.texts[token] or "" for token in law.support.tolist()]
            return Slot(name, {}, law, repeat, all(text[:1] == " " for text in texts))
        if "choices" in table:
            if "weights" in table:
                self.file.refuse(
                    (*path, "weights"), 'goes with tokens; write choices = { "text" = weight, … }'
                )
            weights = self._choices((*path, "choices"), table["choices"])
        else:
            source = self._string((*path, "file"), table["file"])
            column = table.get("weights")
            with self.file.errors_at(*path, "file"):
                weights = read_rows(source, column, self.folder)
        return Slot(name, weights, None, repeat, all(text[:1] == " " for text in weights))

    def _choices(self, path: KeyPath, raw: object) -> dict[str, float]:
        weights = raw
        if isinstance(raw, list) and all(isinstance(choice, str) for choice in raw):
            weights = dict.fromkeys(raw, 1)
            if twice := [word for word in weights if raw.count(word) > 1]:
                words = ", ".join(map(repr, twice))
                self.file.refuse(path, f"has {words} twice; give weights in a table instead")
        if not isinstance(weights, dict) or not weights:
            self.file.refuse(path, "must be a list of strings or a table of weights, and not empty")
        wrong = [
            choice
            for choice, weight in weights.items()
            if type(weight) not in (int, float) or not 0 < weight <= 1e300
        ]
        if wrong:
            words = ", ".join(map(repr, wrong))
            self.file.refuse((*path, wrong[0]), f"must have a positive number as weight: {words}")
        spelt: dict[tuple[int, ...], str] = {}
        for choice in weights:
            with self.file.errors_at(*path, choice):
                first = spelt.setdefault(tuple(self.tokenizer.encode(choice)), choice)
            if first != choice:
                self.file.refuse((*path, choice), f"is made of the same tokens as {first!r}")
        return {choice: float(weight) for choice, weight in weights.items()}

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


def _mark(match: re.Match[str]) -> str:
    """A slot between marks that no chat template knows; braces of their own as they are."""
    found = match[0]
    return found[0] if found in ("{{", "}}") else _OPEN + found[1:-1] + _CLOSE
