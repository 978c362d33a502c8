"""Small studies on a shipped model, seconds each, and what of their rows must be equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from longshot.engines import LocalEngine
from longshot.estimate import Cost, Estimate
from longshot.study import Spec, StudyStatus, load_run, parse_spec, run_study
from longshot.study.results import FILE
from longshot.study.store import RunStore

ONE = LocalEngine(1)
SMALL = """
name = "small"
models = ["mini-1l"]
inputs = ["camel", "hex"]
at_once = 2
[targets]
count = 3
[tuning]
temperatures = [0.5, 1.0]
count = 3
budget = 32
[methods.naive]
budget = 64
[methods.conditional]
budget = 512
[methods.gld]
budget = 64
[methods.qld]
budget = 256
[methods.itgis]
budget = 64
temperature = "tuned"
[methods.mhis]
budget = 96
chains = 4
temperature = "tuned"
"""


def small(old: str = "", new: str = "") -> Spec:
    assert old in SMALL
    return parse_spec(SMALL.replace(old, new) if old else SMALL)


def run(folder: Path, spec: Spec | None = None, **options: Any) -> StudyStatus:
    return run_study(spec or small(), folder, options.pop("engine", ONE), **options)


def without(estimate: Estimate | None, **cost: float) -> Estimate | None:
    """An estimate with some of its cost set to these values."""
    if estimate is None:
        return None
    spent: tuple[Cost, Cost] = (estimate.cost, estimate.shared_cost)
    own, shared = (replace(part, **cost) for part in spent)
    return replace(estimate, cost=own, shared_cost=shared)


def content(folder: Path, **cost: float) -> list[Any]:
    """All that two runs of one study must have in common: everything but seconds.

    In other batches the arithmetic differs a little too: rivals that one target's argmax has met
    spare its neighbours the rest of the vocabulary. `macs=0` leaves it out.
    """
    with RunStore(folder / FILE) as store:
        stored = [*store.rows("tune"), *store.rows("run")]
    rows = [(r.key, without(r.estimate, seconds=0.0, **cost), r.error) for r in stored]
    run = load_run(folder)
    return [rows, run.tuned, run.chosen, run.study]
