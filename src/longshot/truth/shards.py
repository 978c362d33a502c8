"""Shards: what one worker does at a time.

A shard is a range of units of one stream. Each unit has a generator of its own and fixed batch
shapes, so a shard's sums depend on its name, the model and the inputs, and on nothing else: neither
on the engine that ran it nor on what ran beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from longshot.inputs import ProductInputs
from longshot.models import Model
from longshot.numerics import derived_generator
from longshot.truth.conditional import Conditional
from longshot.truth.sampling import Brute
from longshot.truth.tally import Kind, Shard, Span, Tally

# Some seconds of one core each: what a kill can lose.
SHARD_LEAVES: dict[Kind, int] = {"brute": 2**14, "conditional": 2**19}

Sampler = Brute | Conditional


@dataclass(frozen=True)
class Cell:
    """A model and its inputs."""

    model: Model
    inputs: ProductInputs

    def __reduce__(self) -> tuple[type[Cell], tuple[Model, ProductInputs]]:
        """A cell travels without its samplers, which are large and quickly made."""
        return Cell, (self.model, self.inputs)

    @cached_property
    def fingerprints(self) -> tuple[str, str]:
        return self.model.fingerprint, self.inputs.fingerprint

    @cached_property
    def _samplers(self) -> dict[Kind, Sampler]:
        return {}

    def sampler(self, kind: Kind) -> Sampler:
        """What draws one unit; made when first asked for."""
        if kind not in self._samplers:
            make: type[Sampler] = Brute if kind == "brute" else Conditional
            self._samplers[kind] = make(self.model, self.inputs)
        return self._samplers[kind]

    def units_per_shard(self, kind: Kind, leaves: int | None = None) -> int:
        """How many units make a shard of at least that many leaves."""
        return math.ceil((leaves or SHARD_LEAVES[kind]) / self.sampler(kind).leaves_per_unit)


def run_span(cell: Cell, span: Span) -> Shard:
    """The sums over all units of a span."""
    (kind, seed, half), start, stop = span
    sampler, tally = cell.sampler(kind), Tally.empty(cell.model.vocab_size)
    for unit in range(start, stop):
        generator = derived_generator(seed, *cell.fingerprints, "truth", kind, half, unit)
        tally += sampler.unit(generator)
    return Shard(span, tally)


@dataclass(frozen=True)
class Runner:
    """What an engine maps over tasks; it travels to a worker once, with the models in it."""

    cells: Sequence[Cell]

    def __call__(self, task: tuple[int, Span]) -> tuple[int, Shard]:
        """Run a span of the cell of that number."""
        number, span = task
        return number, run_span(self.cells[number], span)
