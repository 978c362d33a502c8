"""Text to token ids and back, over any byte-level BPE tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import tokenizers

from longshot.errors import LongshotError, first_line, visible
from longshot.files import TEXT, read_text


def _byte_of_character() -> dict[str, int]:
    """The byte-level alphabet: printable bytes stand for themselves, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table |= {chr(0x100 + offset): byte for offset, byte in enumerate(rest)}
    return table


@contextmanager
def _sentence(what: str) -> Iterator[None]:
    """What the library raises for a fault of its file, a panic too, in one sentence."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if isinstance(error, LongshotError):
            raise
        raise LongshotError(f"{what}: {first_line(error)}.") from error


IDS = 2**24  # the library writes a tokenizer down by counting through all ids up to the largest
Chat = Callable[[list[dict[str, str]]], str]
"""Turns messages, each with its role and content, into the text that a chat model reads."""


class Tokenizer:
    """A byte-level BPE tokenizer; `bos` is the id of the token that starts every input."""

    def __init__(
        self, backend: tokenizers.Tokenizer, bos: int | None = None, chat: Chat | None = None
    ) -> None:
        self.backend, self.chat = backend, chat
        self.special_ids = frozenset(
            token for token, added in backend.get_added_tokens_decoder().items() if added.special
        )
        self._bos = bos

    @classmethod
    def from_file(cls, path: Path) -> Tokenizer:
        with _sentence(f"{path} is not a tokenizer file"):
            backend = tokenizers.Tokenizer.from_str(read_text("tokenizer", path, TEXT))
            backend.no_truncation()  # texts are read as they are, and a size in a file could
            backend.no_padding()  # ask for any amount of memory
            vocabularies = (backend.get_vocab(with_added_tokens=added) for added in (True, False))
            most = max((token for each in vocabularies for token in each.values()), default=0)
            if most >= IDS:
                raise LongshotError(f"{path} has a token {most:,}, which no model has.")
            return cls(backend)

    @property
    def vocab_size(self) -> int:
        return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def largest_id(self) -> int:
        """The largest id of an ordinary token; special ones may lie past a model's vocabulary."""
        ids = self.backend.get_vocab(with_added_tokens=True).values()
        return max((token for token in ids if token not in self.special_ids), default=-1)

    @property
    def bos(self) -> int:
        """The id of the beginning-of-sequence token."""
        if self._bos is not None:
            return self._bos
        for name in ("<|BOS|>", "<|begin_of_text|>", "<s>", "<bos>", "<|endoftext|>"):
            if (found := self.backend.token_to_id(name)) is not None:
                return found
        raise LongshotError("The tokenizer has no beginning-of-sequence token; give its id as bos.")

    @cached_property
    def fingerprint(self) -> str:
        """A short digest of the tokenizer's definition."""
        return hashlib.sha256(self.backend.to_str().encode()).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        """The token ids of `text`, with no special token added."""
        if any("\ud800" <= c <= "\udfff" for c in text):  # as from a command line not in UTF-8
            raise LongshotError(f"{text!r} is not Unicode text.")
        with _sentence(f"The tokenizer cannot read {text!r}"):
            ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`, special tokens shown by name."""
        with _sentence("The tokenizer cannot spell an input"):
            text: str = self.backend.decode(ids, skip_special_tokens=False)
        return text

    @cached_property
    def texts(self) -> tuple[str | None, ...]:
        """The exact text of every token; None for special tokens and for broken characters."""
        alphabet = _byte_of_character()
        found: list[str | None] = []
        for token in range(self.vocab_size):
            symbols = self.backend.id_to_token(token)
            if symbols is None or token in self.special_ids:
                found.append(None)
                continue
            try:
                found.append(bytes(alphabet[c] for c in symbols).decode())
            except (KeyError, UnicodeDecodeError):
                found.append(None)
        return tuple(found)

    def show(self, token: int) -> str:
        """A token as a person would read it in a table: its text quoted, or its raw name."""
        text = self.texts[token] if token < len(self.texts) else None
        if text is not None:
            return repr(text)
        return visible(self.backend.id_to_token(token) or f"<token {token}>")  # ids past its own

    def single(self, text: str) -> int:
        """The id of the one token that spells `text`."""
        ids = self.encode(text)
        if len(ids) == 1:
            return ids[0]
        if not ids:
            raise LongshotError("The empty text is no token.")
        spelt = " + ".join(self.show(i) for i in ids)
        raise LongshotError(
            f"{text!r} is {len(ids)} tokens: {spelt}. "
            f"Name one of them (the first is {self.show(ids[0])}), or give a set of tokens."
        )
