"""What it costs to score and to report a stored run: processor seconds, and how they grow.

The runs are made up: truths log-uniform over four decades, estimates their truths times log-normal
noise, a part of them zero; one method in seven has GLD's form. The larger run has twice the cells
and five times the targets in each.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from longshot.estimate import Cost, Estimate
from longshot.report import write_report
from longshot.study import load_run
from longshot.study.results import FILE
from longshot.study.store import Chosen, Key, Row, RunStore, Target
from longshot.study.summary import score_run

METHODS = ("naive", "conditional", "itgis", "mhis", "qld", "itgis-long", "gld")
MODELS = ("small", "middle", "large")
SHAPES = ((8, 60), (16, 300))  # distributions and targets of a cell: 10,080 and 100,800 rows
BARS = {"score": 8.0, "report": 30.0}


def made_up_run(folder: Path, distributions: int, targets: int) -> int:
    """A run of that many cells for each model; the number of its rows."""
    rng, inputs = np.random.default_rng(0), [f"d{i}" for i in range(distributions)]
    study = {
        "name": "made-up",
        "models": list(MODELS),
        "inputs": inputs,
        "methods": {label: {"method": label.removesuffix("-long")} for label in METHODS},
    }
    count = 0
    with RunStore(folder / FILE, create=True) as store:
        store.set_fact("study", json.dumps(study))
        for model, name in ((m, i) for m in MODELS for i in inputs):
            p = 10 ** rng.uniform(-9, -5, targets)
            chosen = tuple(Target(i, f"'{i}'", float(x), float(x) / 9) for i, x in enumerate(p))
            store.choose("run", model, name, Chosen(chosen, targets, "made up"))
            for label in METHODS:
                rows = [
                    Row(Key("run", model, name, label, 0.0, i), _estimate(label, float(x), rng))
                    for i, x in enumerate(p)
                ]
                store.add(rows, {"python": "3"})
                count += len(rows)
    return count


def _estimate(label: str, p: float, rng: np.random.Generator) -> Estimate:
    noise = 2 * float(rng.standard_normal())
    log_x = -math.inf if label == "naive" or rng.random() < 0.2 else math.log(p) + noise - 1
    sigma = float(rng.uniform(1.5, 3))
    z = math.sqrt(-2 * math.log(p)) * math.exp(0.2 * float(rng.standard_normal()))
    statistics = {"mu": -z * sigma, "sigma": sigma} if label == "gld" else {}
    found = log_x > -math.inf
    ends = (math.exp(log_x) / 3, min(math.exp(log_x) * 3, 1.0)) if found else (0.0, 1.0)
    return Estimate(
        label.removesuffix("-long"), {"temperature": 1.0}, "token:1", 0, 4096, log_x,
        interval=ends, no_interval=None if found else "no input produced the target", samples=4096,
        hits=int(log_x > -math.inf) * 20, statistics=statistics, cost=Cost(4096, 4096, 10**9, 0.1),
    )  # fmt: skip


def spent(work: Callable[[], object]) -> float:
    """Processor seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main(console: Console) -> None:
    table = Table(title="A stored run, processor seconds of one core")
    for heading in ("rows", "score", "a row", "report", "bar"):
        table.add_column(heading, justify="right")
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            rows, score, report = measured(Path(folder), shape)
        met = score < BARS["score"] and (report or 0.0) < BARS["report"]
        table.add_row(
            f"{rows:,}", f"{score:.1f} s", f"{1e3 * score / rows:.2f} ms",
            "" if report is None else f"{report:.1f} s",
            "" if report is None else f"8 and 30 s: {'met' if met else 'MISSED'}",
        )  # fmt: skip
    console.print(table)


def measured(folder: Path, shape: tuple[int, int]) -> tuple[int, float, float | None]:
    """The rows of a run of that shape, and what scoring and, of the smaller, reporting it costs."""
    rows = made_up_run(folder, *shape)
    score = spent(lambda: score_run(load_run(folder)))
    if shape != SHAPES[0]:
        return rows, score, None
    return rows, score, spent(lambda: write_report(load_run(folder), folder / "report"))
