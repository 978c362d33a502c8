"""Text to token streams: `python -m training.tokenise --work WORK`.

Writes WORK/tokens/LANGUAGE-{train,heldout}.npy (uint16). Documents are separated by EOS; there
is no BOS in the stream, because the trainer puts one at the start of every window.
"""

import argparse
import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from training import clean
from training.files import DEFAULT_WORK, finished
from training.sources import LANGUAGES, Language

PARTS = ("train", "heldout")


def encode(tokenizer: Tokenizer, documents: list[str]) -> NDArray[np.uint16]:
    """The documents as one stream, each followed by EOS."""
    end = np.array([tokenizer.token_to_id("<|EOS|>")], dtype=np.uint16)
    stream: list[NDArray[np.uint16]] = []
    for encoding in tokenizer.encode_batch_fast(documents, add_special_tokens=False):
        stream += [np.array(encoding.ids, dtype=np.uint16), end]
    return np.concatenate(stream) if stream else np.empty(0, dtype=np.uint16)


def read_split(text: Path, language: Language) -> tuple[list[str], list[str]]:
    """All held-in and all held-out documents of a language, sources interleaved."""
    held_in: list[str] = []
    held_out: list[str] = []
    for path in sorted((text / language).glob("*.txt")):
        for document in clean.read_documents(path):
            inside, outside = clean.split(document)
            held_in += inside
            held_out += outside
    random.Random(0).shuffle(held_in)  # a window that spans two documents meets two sources
    random.Random(1).shuffle(held_out)
    return held_in, held_out


def main() -> None:
    """Encode what is not encoded yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    work: Path = parser.parse_args().work.expanduser()
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    for language in LANGUAGES:
        paths = [work / "tokens" / f"{language}-{part}.npy" for part in PARTS]
        if not all(path.exists() for path in paths):
            for path, documents in zip(paths, read_split(work / "text", language), strict=True):
                stream = encode(tokenizer, documents)
                with finished(path) as temporary, temporary.open("wb") as file:
                    np.save(file, stream)
        for path in paths:
            print(f"{path.stem:20} {np.load(path, mmap_mode='r').size / 1e6:8.3f} M tokens")


if __name__ == "__main__":
    main()
