"""Windows of the token streams: BOS and the 63 tokens that follow a random place."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.sources import LANGUAGES, MIX

Stream = NDArray[np.uint16]


@dataclass(frozen=True)
class Streams:
    """The languages' streams, their shares of the windows, and the token that begins a window."""

    streams: tuple[Stream, ...]
    shares: tuple[float, ...]
    begin: int

    def batch(self, seed: int, step: int, windows: int, context: int) -> Tensor:
        """The windows of one step; they depend on nothing but the arguments.

        So a run that is killed and resumed sees exactly the windows it would have seen.
        """
        rng = np.random.default_rng([seed, step])
        rows = []
        for stream, number in zip(self.streams, rng.multinomial(windows, self.shares), strict=True):
            starts = rng.integers(0, stream.size - (context - 1) + 1, size=number)
            rows.append(stream[starts[:, None] + np.arange(context - 1)])
        return with_begin(np.concatenate(rows), self.begin)


def with_begin(rows: Stream, begin: int) -> Tensor:
    """Rows of the stream as int64 windows that start with `begin`."""
    windows = np.pad(rows.astype(np.int64), ((0, 0), (1, 0)), constant_values=begin)
    return torch.from_numpy(windows)


def load_streams(work: Path, begin: int) -> Streams:
    """The held-in streams of `training.tokenise`, in the shares of the mix."""
    streams = tuple(
        np.load(work / "tokens" / f"{language}-train.npy", mmap_mode="r") for language in LANGUAGES
    )
    return Streams(streams, tuple(MIX[language] for language in LANGUAGES), begin)


def heldout_windows(stream: Stream, begin: int, context: int, most: int) -> Tensor:
    """At most `most` windows that do not overlap, evenly spaced through a held-out stream."""
    number = stream.size // (context - 1)
    rows = stream[: number * (context - 1)].reshape(number, context - 1)
    kept = np.unique(np.linspace(0, number - 1, min(most, number)).astype(np.int64))
    return with_begin(rows[kept], begin)
