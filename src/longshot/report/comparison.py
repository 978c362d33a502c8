"""Runs side by side: each method's loss on each cell, and how much it changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longshot.errors import LongshotError, needs, visible
from longshot.shown import Shown
from longshot.study import Run, load_run
from longshot.study.scores import LossName
from longshot.study.summary import LOSS_KEYS, score_run

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Comparison(Shown):
    """What `compare` finds; `.plot()` shows the last run's losses minus the first's."""

    names: tuple[str, ...]
    """Of the runs, in the order given."""
    loss: str
    records: tuple[dict[str, Any], ...]
    """Model, inputs, method, the loss in each run (None where it has none) and the difference."""

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.names)}: {len(self.records)} rows of {self.loss})"

    def to_pandas(self) -> DataFrame:
        """One row for each method on each cell."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise needs("to_pandas", "pandas", "notebook") from error
        return DataFrame([
            {**{k: v for k, v in record.items() if k != "losses"},
             **dict(zip(self.names, record["losses"], strict=True))}
            for record in self.records
        ])  # fmt: skip


def compare(*runs: Run | str | Path, loss: str = "is_loss") -> Comparison:
    """Put two runs or more side by side: folders, files of rows, or runs that are loaded.

    `loss` is `is_loss` or `log_mse`, both after the fit.
    """
    name = loss_name(loss)
    if len(runs) < 2:
        raise LongshotError("Name two runs, or more.")
    loaded = [run if isinstance(run, Run) else load_run(run) for run in runs]
    names = _names(loaded, runs)
    found: dict[tuple[str, str, str], list[float | None]] = {}
    for number, run in enumerate(loaded):
        for cell in score_run(run):
            key = (cell.model, cell.inputs, cell.method)
            found.setdefault(key, [None] * len(runs))[number] = cell.loss(name)
    records = tuple(_record(key, losses) for key, losses in found.items())
    return Comparison(names, loss, records)


def _names(loaded: Sequence[Run], given: Sequence[Run | str | Path]) -> tuple[str, ...]:
    """The runs' own names if these differ, or else where they are."""
    own = [run.name for run in loaded]
    if len(set(own)) == len(own):
        return tuple(own)
    places = [visible(str(g.path if isinstance(g, Run) else g)) for g in given]
    return tuple(f"{p} ({n})" if places.count(p) > 1 else p for n, p in enumerate(places, start=1))


def _record(key: tuple[str, str, str], losses: list[float | None]) -> dict[str, Any]:
    first, last = losses[0], losses[-1]
    change = None if first is None or last is None else last - first
    names = dict(zip(("model", "inputs", "method"), key, strict=True))
    return {**names, "losses": losses, "difference": change}


def loss_name(key: str) -> LossName:
    """The loss that a record's name stands for."""
    for name, known in LOSS_KEYS.items():
        if key == known:
            return name
    raise LongshotError(f"The loss is is_loss or log_mse, not {key!r}.")
