"""Small studies on a shipped model, seconds each, and what of their rows must be equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from longshot.engines import LocalEngine
from longshot.estimate import Cost, Estimate
from longshot.study import Progress, Spec, load_run, parse_spec, run_study
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


def run(folder: Path, spec: Spec | None = None, **options: Any) -> Progress:
    return run_study(spec or small(), folder, options.pop("engine", ONE), **options)


def timeless(estimate: Estimate | None) -> Estimate | None:
    """An estimate but for the seconds it took."""
    if estimate is None:
        return None

    def at_no_time(cost: Cost) -> Cost:
        return replace(cost, seconds=0.0)

    return replace(
        estimate, cost=at_no_time(estimate.cost), shared_cost=at_no_time(estimate.shared_cost)
    )


def content(folder: Path) -> list[Any]:
    """All that two runs of one study must have in common."""
    with RunStore(folder / FILE) as store:
        rows = [(r.key, timeless(r.estimate), r.error) for r in store.rows("tune")]
        rows += [(r.key, timeless(r.estimate), r.error) for r in store.rows("run")]
    run = load_run(folder)
    return [rows, run.tuned, run.chosen, run.study]
