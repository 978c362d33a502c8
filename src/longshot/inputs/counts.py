"""How often each token occurs in English, Python, Spanish, or a random hexadecimal string.

The shipped tokenizer has its tables in `frequencies/`, the hexadecimal one too: truth and studies
hold for these very numbers. For any other the tokens of a text are counted once and kept under the
user's cache folder, filed by tokenizer and text.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.files import DIGEST, read_tensors, save_tensors, writing
from longshot.inputs.corpus import Corpus, RandomHexadecimal, Source, parse_corpus
from longshot.models.checkpoints import ZOO
from longshot.models.converted import cache_folder
from longshot.models.tokenizer import Tokenizer

_SHIPPED = Path(__file__).parent / "frequencies" / "mini.safetensors"
_BLOCK = 2**12  # characters; a tokenizer's time grows faster than the length of a string


class Counts:
    """Token counts of one tokenizer by language, each read or counted when first asked for."""

    def __init__(self, tokenizer: Tokenizer, corpus: Mapping[str, tuple[Source, ...]]) -> None:
        self.tokenizer = tokenizer
        self._corpus = corpus

    def of(self, language: str, documents: int = 2**14) -> Int64[Tensor, " vocab"]:
        """Counts in a language's text; of a streamed dataset, in that many documents."""
        if language in self._corpus:
            return _counted(self.tokenizer, self._corpus[language], documents)
        if language in (shipped := _shipped(self.tokenizer)):
            return shipped[language]
        if language == "hexadecimal":
            return _counted(self.tokenizer, (RandomHexadecimal(),), documents)
        raise LongshotError(
            f"No token frequencies of {language} are known for this tokenizer; name a text to "
            f"count them in (--corpus {language}=FILE, or corpus={{{language!r}: [FILE]}})."
        )


def load_counts(tokenizer: Tokenizer, corpus: Corpus | None = None) -> Counts:
    """The frequency tables for a tokenizer; a corpus takes the place of the shipped table."""
    return Counts(tokenizer, parse_corpus(corpus))


def _shipped(tokenizer: Tokenizer) -> Mapping[str, Int64[Tensor, " vocab"]]:
    """The shipped tables, which belong to the shipped tokenizer and to no other."""
    fingerprint, tables = _shipped_tables()
    return tables if tokenizer.fingerprint == fingerprint else {}


@cache
def _shipped_tables() -> tuple[str, Mapping[str, Tensor]]:
    return Tokenizer.from_file(ZOO / "tokenizer.json").fingerprint, read_tensors(_SHIPPED)[0]


def _counted(
    tokenizer: Tokenizer, sources: tuple[Source, ...], documents: int
) -> Int64[Tensor, " vocab"]:
    """The counts from the cache, or counted now and put there."""
    digests = [source.digest(documents) for source in sources]
    key = hashlib.sha256(" ".join([tokenizer.fingerprint, str(tokenizer.bos), *digests]).encode())
    path = cache_folder("counts") / f"{key.hexdigest()[:32]}.safetensors"
    with contextlib.suppress(LongshotError):  # absent or damaged: count again
        tables, metadata = read_tensors(path)
        if DIGEST in metadata and len(tables.get("counts", ())) == tokenizer.vocab_size:
            return tables["counts"]
    counts = torch.zeros(tokenizer.vocab_size, dtype=torch.int64)
    for source in sources:
        for text in source.documents(documents):
            counts += _count(tokenizer, text, source.longest)
    with contextlib.suppress(LongshotError), writing(path) as aside:  # a cache only saves time
        save_tensors(aside, {"counts": counts}, {})
    return counts


def _count(tokenizer: Tokenizer, text: str, longest: int | None) -> Int64[Tensor, " vocab"]:
    """Counts in one document: BOS, its tokens, EOS."""
    ids = [tokenizer.bos]
    for encoded in tokenizer.backend.encode_batch(list(_blocks(text)), add_special_tokens=False):
        ids += encoded.ids
    ids += _eos(tokenizer)
    return torch.bincount(torch.tensor(ids[:longest]), minlength=tokenizer.vocab_size)


def _blocks(text: str) -> Iterator[str]:
    """The text in pieces that begin at a line's end, where tokens hardly ever cross."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _BLOCK)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end


def _eos(tokenizer: Tokenizer) -> list[int]:
    """The end-of-sequence token, where the tokenizer has one."""
    names = ("<|EOS|>", "<|end_of_text|>", "</s>", "<eos>", "<|endoftext|>")
    found = (tokenizer.backend.token_to_id(name) for name in names)
    return [token for token in found if token is not None][:1]
