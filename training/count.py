"""Token counts of each language, shipped as the frequency tables of `longshot.inputs`.

`python -m training.count --work WORK` counts the held-in streams, each document as
BOS + tokens + EOS, and writes src/longshot/inputs/frequencies/mini.safetensors: int64 arrays
`english`, `python`, `spanish` and `hexadecimal` of one count a token, with their origin in the
metadata. The last is of random digits, 512 documents of 4096.
"""

import argparse
import hashlib
import json
import random
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from longshot.files import save_tensors
from training.files import DEFAULT_WORK, PACKAGE, finished
from training.sources import LANGUAGES
from training.tokenizer import begin_and_end

LEAST_TOKENS = 1_000_000


def count(stream: NDArray[np.uint16], vocab_size: int, begin: int, end: int) -> NDArray[np.int64]:
    """Counts over documents that end in EOS, with the BOS that the stream leaves out."""
    counts = np.bincount(stream, minlength=vocab_size).astype(np.int64)
    counts[begin] += counts[end]
    return counts


def count_hexadecimal(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Counts over uniformly random digits: how greedy merges break them has no short formula."""
    digits = random.Random(0).randbytes(2**20).hex()
    documents = [digits[i : i + 2**12] for i in range(0, len(digits), 2**12)]
    counts = np.zeros(tokenizer.get_vocab_size(), dtype=np.int64)
    for encoded in tokenizer.encode_batch(documents, add_special_tokens=False):
        counts += np.bincount(encoded.ids, minlength=len(counts))
    counts[list(begin_and_end(tokenizer))] += len(documents)
    return counts


def main() -> None:
    """Count every language and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument(
        "--to", type=Path, default=PACKAGE / "inputs" / "frequencies" / "mini.safetensors"
    )
    arguments = parser.parse_args()
    work: Path = arguments.work.expanduser()
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    manifest = json.loads((work / "text" / "manifest.json").read_text())
    tables: dict[str, NDArray[np.int64]] = {}
    metadata = {
        "tokenizer_sha256": hashlib.sha256((work / "tokenizer.json").read_bytes()).hexdigest(),
        "documents": "each counted as BOS + tokens + EOS, held-in text only",
    }
    for language in LANGUAGES:
        stream = np.load(work / "tokens" / f"{language}-train.npy", mmap_mode="r")
        if stream.size < LEAST_TOKENS:
            raise SystemExit(f"{language}: {stream.size} tokens, at least {LEAST_TOKENS} needed")
        tables[language] = count(stream, tokenizer.get_vocab_size(), *begin_and_end(tokenizer))
        metadata[f"{language}_tokens"] = str(int(tables[language].sum()))
        metadata[f"{language}_sources"] = ", ".join(
            sorted(key.split("/")[1] for key in manifest if key.startswith(language))
        )
        print(
            f"{language:8} {tables[language].sum():10} tokens, {(tables[language] > 0).sum()} used"
        )
    tables["hexadecimal"] = count_hexadecimal(tokenizer)
    with finished(arguments.to) as temporary:
        save_tensors(temporary, {k: torch.from_numpy(v) for k, v in tables.items()}, metadata)


if __name__ == "__main__":
    main()
