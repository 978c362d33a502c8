"""Where the text behind token frequencies comes from: files, hub datasets, random digits."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

from longshot.errors import LongshotError, first_line, needs, unknown_name
from longshot.files import TEXT, read_text

LANGUAGES = ("english", "python", "spanish")
PAPER = {
    "english": "hf-dataset:allenai/c4:en",
    "python": "hf-dataset:codeparrot/codeparrot-clean-train",
    "spanish": "hf-dataset:allenai/c4:es",
}
"""The paper's own texts; `corpus="paper"` stands for all of them."""

Corpus = str | Path | Sequence[str | Path] | Mapping[str, Sequence[str | Path]]
"""Files or `hf-dataset:REPOSITORY[:CONFIGURATION]`, for one language or for any."""


@dataclass(frozen=True)
class TextFile:
    """A file of UTF-8 text, one document, counted whole."""

    path: Path
    longest: ClassVar[int | None] = None

    def digest(self, documents: int) -> str:
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise LongshotError(
                f"The text {self.path} cannot be read: {error.strerror or error}."
            ) from error

    def documents(self, documents: int) -> Iterator[str]:
        yield read_text("text", self.path, TEXT)


@dataclass(frozen=True)
class HubDataset:
    """The last documents of a Hugging Face dataset, its files read in reverse as in the paper."""

    repository: str
    configuration: str | None
    longest: ClassVar[int | None] = 2**14

    def digest(self, documents: int) -> str:
        # The hub's text cannot be hashed without reading it all; its name has to do.
        named = f"hf-dataset {self.repository} {self.configuration} {documents}"
        return hashlib.sha256(named.encode()).hexdigest()

    def documents(self, documents: int) -> Iterator[str]:
        try:
            import datasets
        except ImportError:
            raise needs(f"Reading {self.repository}", "datasets", "paper") from None
        try:
            builder = datasets.load_dataset_builder(self.repository, self.configuration)
            builder.config.data_files["train"].reverse()
            rows = builder.as_streaming_dataset(split="train")
            for row in islice(rows, documents):
                yield row["text"] if "text" in row else row["content"]
        except Exception as error:  # the package's errors have no common base
            raise LongshotError(
                f"The dataset {self.repository} could not be read ({first_line(error)}); "
                f"connect to the network, or name text files instead."
            ) from error


@dataclass(frozen=True)
class RandomHexadecimal:
    """Uniformly random lower-case hexadecimal digits: 2^20 of them, in lines of 2^12.

    BPE merges greedily, so a token of n digits is not as frequent as 16^-n; how frequent it is
    in the long run has no short formula for an arbitrary tokenizer, but is soon counted.
    """

    seed: int = 0
    longest: ClassVar[int | None] = None

    def digest(self, documents: int) -> str:
        return hashlib.sha256(f"{self!r}".encode()).hexdigest()

    def documents(self, documents: int) -> Iterator[str]:
        digits = random.Random(self.seed).randbytes(2**19).hex()
        yield "\n".join(digits[i : i + 2**12] for i in range(0, len(digits), 2**12))


Source = TextFile | HubDataset | RandomHexadecimal
"""A text to count tokens in: `digest` is what a cached count is filed under; `documents` yields
at most so many of a text without a set end; each is cut at `longest` tokens, BOS and EOS included.
"""


def parse_corpus(corpus: Corpus | None) -> dict[str, tuple[Source, ...]]:
    """The sources of each language; one that names no language serves all that have none."""
    named: dict[str, list[Source]] = {}
    bare: list[Source] = []
    if isinstance(corpus, Mapping):
        for language, items in corpus.items():
            if language not in LANGUAGES:
                raise unknown_name("language", language, LANGUAGES)
            named[language] = [_source(item) for item in _several(items)]
    else:
        for item in _several(corpus or ()):
            language, equals, rest = str(item).partition("=")
            if str(item) == "paper":
                named |= {of: [_source(text)] for of, text in PAPER.items()}
            elif equals and language in LANGUAGES:
                named.setdefault(language, []).append(_source(rest))
            else:
                bare.append(_source(item))
    sources = {language: tuple(named.get(language, bare)) for language in LANGUAGES}
    return {language: found for language, found in sources.items() if found}


def _several(items: str | Path | Sequence[str | Path]) -> Sequence[str | Path]:
    return [items] if isinstance(items, str | Path) else items


def _source(item: str | Path) -> Source:
    """A source from its spelling; a file must exist already, so that a slip shows at once."""
    if str(item).startswith("hf-dataset:"):
        repository, _, configuration = str(item).removeprefix("hf-dataset:").partition(":")
        return HubDataset(repository, configuration or None)
    path = Path(item).expanduser()
    if not path.is_file():
        raise LongshotError(
            f"There is no text file {str(path)!r}; a corpus is a file, LANGUAGE=FILE with one of "
            f"{', '.join(LANGUAGES)}, hf-dataset:REPOSITORY:CONFIGURATION, or paper."
        )
    return TextFile(path)
