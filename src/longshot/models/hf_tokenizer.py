"""A `transformers` tokenizer as ours: every text spelt exactly, with nothing put before it.

Tokenizers that mark a word's start by `▁` (Llama 2, Mistral, Gemma) put one before any text they
are given. Ours are given pieces of an input, so that mark is taken out of the definition, and
`" but"` is the token ` but` for every model.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any

import tokenizers

from longshot.errors import LongshotError, first_line
from longshot.models.tokenizer import Chat, Tokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class SpacedTokenizer(Tokenizer):
    """A tokenizer whose tokens are plain text with `▁` for a space, and `<0x0A>` for a byte."""

    @cached_property
    def texts(self) -> tuple[str | None, ...]:
        """The exact text of every token; None for special tokens and for broken characters."""
        names = (self.backend.id_to_token(token) for token in range(self.vocab_size))
        return tuple(
            None if name is None or token in self.special_ids else _plain(name)
            for token, name in enumerate(names)
        )


def _plain(name: str) -> str | None:
    if byte := _BYTE.fullmatch(name):
        code = int(byte[1], 16)
        return chr(code) if code < 0x80 else None
    return name.replace("▁", " ")


def exact_tokenizer(theirs: Any) -> Tokenizer:
    """Our tokenizer from one of `transformers`, which is left as it is."""
    backend = getattr(theirs, "backend_tokenizer", theirs)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise LongshotError(
            f"{type(theirs).__name__} is not a fast tokenizer: longshot needs one that the "
            "tokenizers package runs (a tokenizer.json)."
        )
    definition = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        definition[part] = _without_prefix(definition[part], part == "pre_tokenizer")
    exact = tokenizers.Tokenizer.from_str(json.dumps(definition))
    is_bytes = '"ByteLevel"' in json.dumps([definition["pre_tokenizer"], definition["decoder"]])
    kind = Tokenizer if is_bytes else SpacedTokenizer
    return kind(exact, getattr(theirs, "bos_token_id", None), _chat(theirs))


def _chat(theirs: Any) -> Chat | None:
    """The tokenizer's own chat template, up to where the assistant speaks."""
    if not getattr(theirs, "chat_template", None):
        return None

    def chat(messages: list[dict[str, str]]) -> str:
        goes_on = messages[-1]["role"] == "assistant"
        try:
            text: str = theirs.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=not goes_on,
                continue_final_message=goes_on,
            )
        except Exception as error:  # a template raises what it likes
            raise LongshotError(
                f"The model's chat template refuses these messages: {first_line(error)}."
            ) from error
        return text

    return chat


def _without_prefix(part: Any, splits: bool) -> Any:
    """One part of a tokenizer's definition that neither adds a first space nor takes one off."""
    if not isinstance(part, dict):
        return part
    changed = dict(part)
    for key in ("normalizers", "pretokenizers", "decoders"):
        if key in part:
            inner = [_without_prefix(item, splits) for item in part[key]]
            changed[key] = [item for item in inner if item is not None]
    match part["type"]:
        case "Prepend":
            return None
        case "Strip" if "start" in part:  # the decoder's; a normaliser's has other keys
            changed["start"] = 0
        case "Metaspace":
            changed["prepend_scheme"] = "never"
        case "ByteLevel" if splits:  # a decoder's does nothing
            changed["add_prefix_space"] = False
    return changed
