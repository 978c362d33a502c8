"""How far a study is, method by method, and how long it will still take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from longshot.study.batches import Batch
from longshot.study.store import Row, Stage


@dataclass
class Tally:
    """How far one method is in one stage, in targets."""

    total: int = 0
    done: int = 0
    failed: int = 0
    left: int = 0
    """Neither done nor failed."""
    ran: int = 0
    """In this process, in `seconds` of its workers' time."""
    seconds: float = 0.0


@dataclass
class Progress:
    """How far a study is; handed to the callback after each batch."""

    tallies: dict[tuple[Stage, str], Tally] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def failed(self) -> int:
        return sum(tally.failed for tally in self.tallies.values())

    @property
    def seconds_left(self) -> float | None:
        """From what each method took so far; None before the first batch of one that is left."""
        waiting = [tally for tally in self.tallies.values() if tally.left]
        busy = sum(tally.seconds for tally in self.tallies.values())
        if any(not tally.ran for tally in waiting) or not busy:
            return None
        work = sum(tally.left * tally.seconds / tally.ran for tally in waiting)
        return work * self.elapsed / busy

    def planned(self, batch: Batch, left: int) -> None:
        tally = self.tallies.setdefault((batch.stage, batch.label), Tally())
        tally.total += len(batch.tokens)
        tally.done += len(batch.tokens) - left
        tally.left += left

    def finished(self, batch: Batch, rows: Sequence[Row], seconds: float) -> None:
        tally = self.tallies[batch.stage, batch.label]
        errors = [row.error for row in rows if row.error is not None]
        tally.left -= len(rows)
        tally.failed += len(errors)
        tally.done += len(rows) - len(errors)
        tally.ran += len(rows)
        tally.seconds += seconds
        self.errors += errors
