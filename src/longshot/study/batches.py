"""The work of a study in pieces that any engine can run.

A batch is some targets of one cell under one method. Its rows depend on nothing but the study: a
target's numbers are the same whatever runs beside it, so a batch may be cut anywhere, run anywhere
and run again.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import NamedTuple

from longshot.errors import first_line
from longshot.estimate import Cell, Estimate, Job
from longshot.events import TokenIs
from longshot.methods import Method
from longshot.study.store import Key, Row, Stage
from longshot.version import __version__


@dataclass(frozen=True)
class StudyCell(Cell):
    """A cell with what the study calls its model and its inputs."""

    names: tuple[str, str]


@dataclass(frozen=True)
class StudyBatch:
    """Some targets of one cell under one method."""

    cell: int
    stage: Stage
    label: str
    method: Method
    budget: int
    seed: int
    tried: float
    """The temperature that a tuning row tries; 0 otherwise."""
    tokens: tuple[int, ...]

    def keys(self, cell: StudyCell) -> list[Key]:
        return [
            Key(self.stage, *cell.names, self.label, self.tried, token) for token in self.tokens
        ]

    def without(self, done: set[Key], cell: StudyCell) -> StudyBatch:
        """What of it is left to do."""
        keys = zip(self.tokens, self.keys(cell), strict=True)
        return replace(self, tokens=tuple(token for token, key in keys if key not in done))

    def pieces(self, at_once: int) -> Iterator[StudyBatch]:
        """In pieces of at most that many targets; a method that shares its samples in one."""
        size = max(len(self.tokens), 1) if self.method.shares else at_once
        for start in range(0, len(self.tokens), size):
            yield replace(self, tokens=self.tokens[start : start + size])


class Finished(NamedTuple):
    """A batch's rows, who made them with what, and how long it took."""

    batch: StudyBatch
    rows: list[Row]
    versions: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class Worker:
    """What an engine maps over batches; it travels to a worker once, with the models in it."""

    cells: Sequence[StudyCell]

    def __call__(self, batch: StudyBatch) -> Finished:
        start = time.perf_counter()
        rows = list(run_batch(self.cells[batch.cell], batch))
        return Finished(batch, rows, versions(), time.perf_counter() - start)


def run_batch(cell: StudyCell, batch: StudyBatch) -> Iterable[Row]:
    """The rows of a batch; one target's failure is its own and not its neighbours'."""
    events = tuple(TokenIs(token) for token in batch.tokens)
    job = Job(cell.model, cell.inputs, events, batch.budget, batch.seed)
    try:
        batch.method.check(job)
        estimates = batch.method.estimate(job)
    except Exception as error:  # whatever it is, it is kept in the row and the study goes on
        if len(batch.tokens) > 1:
            for token in batch.tokens:
                yield from run_batch(cell, replace(batch, tokens=(token,)))
        else:
            (key,) = batch.keys(cell)
            yield Row(key, error=f"{type(error).__name__}: {first_line(error)}")
    else:
        for key, estimate in zip(batch.keys(cell), estimates, strict=True):
            yield Row(key, _kept(batch, estimate))


def _kept(batch: StudyBatch, estimate: Estimate) -> Estimate:
    """A tuning row needs no witnesses."""
    return replace(estimate, witnesses=()) if batch.stage == "tune" else estimate


@cache
def versions() -> dict[str, str]:
    """Of what computes here, and the package's git revision where it runs from a checkout."""
    packages = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return {
        "longshot": __version__,
        **packages,
        "python": python_version(),
        "git": _revision(Path(__file__).parent),
    }


def _revision(folder: Path) -> str:
    def git(*arguments: str) -> str:
        ran = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # or it is another repository's
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
