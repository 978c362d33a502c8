"""What there is of truth, cell by cell: the lines of `longshot truth show` and of the docs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from longshot.errors import LongshotError
from longshot.truth.make import median_error
from longshot.truth.result import Truth, pick_targets
from longshot.truth.store import Store
from longshot.truth.tables import read_table
from longshot.truth.tally import Kind

TARGETS = 64


@dataclass(frozen=True)
class Summary:
    """One cell's truth in numbers."""

    model: str
    inputs: str
    leaves: int
    samples: dict[Kind, int]
    near_ties: int
    seen: int
    in_range: int
    median_error: float | None
    """Of the tokens in the range."""
    qualified: int
    """Tokens in the range that half A knows to within a quarter."""
    noise_floor: float | None
    """Itakura-Saito loss of a perfect estimate of the targets, judged on half B."""


def summarise(truth: Truth, low: float, high: float) -> Summary:
    """The numbers of one truth over a range of probabilities."""
    targets = None
    if all(half.leaves for half in truth.halves):
        targets = pick_targets(truth, low, high, TARGETS)
    floor = targets.noise_floor.itakura_saito if targets and targets.tokens else math.inf
    return Summary(
        model=truth.cell.model,
        inputs=truth.cell.inputs,
        leaves=truth.leaves,
        samples=truth.samples,
        near_ties=sum(tally.near_ties for tally in truth.tallies.values()),
        seen=int((truth.probability > 0).sum()),
        in_range=int(truth.between(low, high).sum()),
        median_error=median_error(truth, low, high),
        qualified=targets.qualified if targets else 0,
        noise_floor=floor if math.isfinite(floor) else None,
    )


def truths_at(path: Path) -> Iterator[Truth]:
    """Every truth in a store, in a table, or in a folder of tables."""
    if path.is_dir():
        for table in sorted(path.glob("*.safetensors")):
            yield from truths_at(table)
    elif not path.exists():
        raise LongshotError(f"There is no truth at {path}.")
    elif path.suffix == ".safetensors":
        yield Truth.from_shards(*read_table(path))
    else:
        with Store(path) as store:
            for cell in store.cells():
                yield store.truth(cell)


HEADER = (
    "model",
    "inputs",
    "leaves",
    "prefixes",
    "tokens seen",
    "in range",
    "median relative error",
    "known to 25%",
    "noise floor",
)


def row(summary: Summary) -> tuple[str, ...]:
    """One line of a table."""
    return (
        summary.model,
        summary.inputs,
        f"{summary.leaves:,}",
        _samples(summary.samples),
        str(summary.seen),
        str(summary.in_range),
        "–" if summary.median_error is None else f"{summary.median_error:.2f}",
        str(summary.qualified),
        "–" if summary.noise_floor is None else f"{summary.noise_floor:.4f}",
    )


def _samples(samples: Mapping[Kind, int]) -> str:
    """How many prefixes there are, and how many plain inputs where there are both."""
    plain = f"{samples['brute']:,} plain" if len(samples) > 1 else "plain"
    words = {"brute": plain, "conditional": f"{samples.get('conditional', 0):,}"}
    return " + ".join(words[kind] for kind in samples)


def markdown(summaries: Sequence[Summary]) -> str:
    """A table for the docs."""
    lines = [HEADER, ("---", "---", *["---:"] * (len(HEADER) - 2)), *map(row, summaries)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
