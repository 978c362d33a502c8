"""How far a study is, method by method, and how long it will still take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from longshot.study.batches import StudyBatch
from longshot.study.store import Row, Stage


@dataclass
class MethodStatus:
    """How far one method is in one stage, in targets."""

    total: int = 0
    done: int = 0
    failed: int = 0
    left: int = 0
    """Neither done nor failed."""
    calls: int = 0
    """Of the model, for what is left."""
    ran: int = 0
    """In this process, with so many calls, in `seconds` of its workers' time."""
    called: int = 0
    seconds: float = 0.0


@dataclass
class StudyStatus:
    """How far a study is; handed to the callback after each batch."""

    tallies: dict[tuple[Stage, str], MethodStatus] = field(default_factory=dict)
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
        """From what calls took so far; None before the first batch.

        A method that has not begun is taken to be as fast as when it was tuned, or else as the
        others.
        """
        busy = sum(tally.seconds for tally in self.tallies.values())
        if not busy:
            return None
        work = 0.0
        for (_, label), tally in self.tallies.items():
            alike = [tally, *(t for (_, name), t in self.tallies.items() if name == label)]
            like = next((t for t in alike if t.called), None)
            pace = like.seconds / like.called if like else busy / self._called
            work += tally.calls * pace
        return work * self.elapsed / busy

    @property
    def _called(self) -> int:
        return sum(tally.called for tally in self.tallies.values())

    def planned(self, batch: StudyBatch, left: int) -> None:
        tally = self.tallies.setdefault((batch.stage, batch.label), MethodStatus())
        tally.total += len(batch.tokens)
        tally.done += len(batch.tokens) - left
        tally.left += left
        tally.calls += _calls(batch, left)

    def finished(self, batch: StudyBatch, rows: Sequence[Row], seconds: float) -> None:
        tally = self.tallies[batch.stage, batch.label]
        errors = [row.error for row in rows if row.error is not None]
        tally.left -= len(rows)
        tally.failed += len(errors)
        tally.done += len(rows) - len(errors)
        calls = _calls(batch, len(rows))
        tally.calls = max(tally.calls - calls, 0) if tally.left else 0
        tally.ran += len(rows)
        tally.called += calls if seconds else 0  # none where it failed before it ran
        tally.seconds += seconds
        self.errors += errors


def _calls(batch: StudyBatch, targets: int) -> int:
    """A budget for each target, or one for all of them where they share their samples."""
    return batch.budget * (min(targets, 1) if batch.method.shares else targets)
