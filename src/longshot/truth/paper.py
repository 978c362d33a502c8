"""The paper's published truth: counts of the argmax over 2³² plain samples.

`frequencies32-DIST.pt` holds an integer for each token of the vocabulary. It comes without halves;
a fair coin for each sample makes two, which is exact for independent samples.
"""

from __future__ import annotations

import re
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from longshot.errors import LongshotError, first_line
from longshot.estimate import CellKey
from longshot.files import TEXT, check_archive
from longshot.truth.sampling import UNIT
from longshot.truth.tally import Shard, Span, Stream, Tally

BUCKET = "https://storage.googleapis.com/arc-ml-public/lpe/ground-truth"
THEIR_NAMES = {"colon": "indent", "if": "ifelse"}
OUR_NAMES = {theirs: ours for ours, theirs in THEIR_NAMES.items()}
FOREIGN = -1  # the seed of samples that were not drawn here


def paper_inputs(path: Path) -> tuple[str, int]:
    """Which inputs a file of the paper is about, by our name, and how many samples it claims."""
    match = re.fullmatch(r"frequencies(\d{1,2})-(\w+)\.pt", path.name)
    if not match:
        raise LongshotError(
            f"{path.name} is not named like the paper's truth, frequencies32-DIST.pt."
        )
    return OUR_NAMES.get(match[2], match[2]), 2 ** int(match[1])


def read_paper(path: Path) -> Int64[Tensor, " vocab"]:
    """The counts in a file of the paper, read as data and checked against its name."""
    _, samples = paper_inputs(path)
    if not path.exists():
        raise LongshotError(f"There is no file {path}.")
    check_archive(path)
    try:
        counts = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise almost anything
        raise LongshotError(
            f"{path} cannot be read as tensors alone: {first_line(error)}"
        ) from error
    whole = (torch.int64, torch.int32, torch.int16, torch.uint8)
    if not isinstance(counts, Tensor) or counts.ndim != 1 or counts.dtype not in whole:
        raise LongshotError(f"{path} must hold one integer for each token.")
    if counts.numel() * counts.element_size() > counts.untyped_storage().nbytes():
        raise LongshotError(f"{path} must hold a plain dense tensor.")
    counts = counts.long()
    if (counts < 0).any() or int(counts.sum()) != samples:
        raise LongshotError(
            f"The counts in {path} sum to {int(counts.sum())}, not to the {samples} of its name."
        )
    return counts


def import_paper(path: Path, cell: CellKey) -> list[Shard]:
    """The paper's counts as two shards, each sample put into a half by a fair coin."""
    inputs, _ = paper_inputs(path)
    if inputs != cell.inputs:
        raise LongshotError(f"{path.name} is about {inputs!r}, not {cell.inputs!r}.")
    counts = read_paper(path)
    if len(counts) != cell.vocab_size:
        raise LongshotError(
            f"{path} counts {len(counts)} tokens, but {cell.model} has {cell.vocab_size}."
        )
    coin = np.random.default_rng(0)
    first = torch.from_numpy(coin.binomial(counts.numpy(), 0.5))
    shards = []
    for half, part in enumerate((first, counts - first)):
        samples, total = int(part.sum()), part.double()
        span = Span(Stream("brute", FOREIGN, half), 0, -(-samples // UNIT))
        shards.append(Shard(span, Tally(samples, samples, 0, total, total)))
    return shards


def import_from_bucket(model: str, cell: CellKey) -> list[Shard]:
    """The same, straight from the authors' public bucket."""
    name = f"frequencies32-{THEIR_NAMES.get(cell.inputs, cell.inputs)}.pt"
    url = f"{BUCKET}/{model}/{name}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                path.write_bytes(answer.read(TEXT))
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise LongshotError(f"{url} could not be fetched: {error}.") from error
        return import_paper(path, cell)
