"""How often 95% intervals hold the truth: on simulated families, and on the shipped models.

The rules were chosen on the simulated families marked "chosen". Two things were changed when they
had met toys: chains that stay apart get no interval (`chains.interval`), and ITGIS's upper end is
divided by the whole mean weight and not by its cube root. Rows of the `mini`
study are judged twice: by the rule applied to what the study stored, and by new runs on every
fourth of its targets. (The stored rows lack ITGIS's mean weight and conditional sampling's k, so
the new runs are what the rules really give.) The shipped truth of `colon` is known to be too low
for many tokens and stands apart.
"""

from __future__ import annotations

import json
import lzma
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import longshot as ls
from benchmarks.simulated import CHOSEN, JUDGED, TEMPERATURES, counts, simulate, tilted_runs
from longshot.intervals import fields_of, of_weighted_draws
from longshot.study.scores import covers

ROWS = Path(__file__).parents[1] / "docs" / "results" / "mini" / "rows.jsonl.xz"
DRAWN = ("conditional", "itgis")
METHODS = (*DRAWN, "mhis")
EVERY = 4
Counts = dict[tuple[str, str, str], list[int]]
"""Of a method, model and inputs: targets, intervals, those that hold, those below the truth."""


def main(console: Console) -> None:
    simulated(console, 4000)
    narrowing(console, 30)
    with lzma.open(ROWS, "rt") as file:
        rows = [json.loads(line) for line in file]
    show(console, "stored rows, by the rule for weighted draws", count(stored(rows)))
    show(console, f"new runs on every {EVERY}th target", count(again(rows)))


def simulated(console: Console, runs: int) -> None:
    table = Table("", "family", "given", "hold", "below the truth", title="simulated")
    for role, families in (("chosen", CHOSEN), ("judged", JUDGED)):
        for i, (name, family) in enumerate(families.items()):
            made = runs // 8 if name.startswith("chains") else runs
            given, held, below = counts(simulate(family, made, seed=i))
            shares = (given / made, held / given, below / given)
            table.add_row(role, name, *(f"{share:.1%}" for share in shares))
    console.print(table)


def narrowing(console: Console, problems: int) -> None:
    table = Table("temperature", "runs", "given", "hold", title="ITGIS on simulated tokens")
    found = tilted_runs(np.random.default_rng(100), TEMPERATURES, problems)
    for temperature, runs in found.items():
        given, held, _ = counts(runs)
        row = (f"{temperature:g}", str(len(runs)), str(given))
        table.add_row(*row, f"{held / given:.1%}" if given else "")
    console.print(table)


Judged = Iterator[tuple[dict[str, Any], ls.Estimate]]


def stored(rows: list[dict[str, Any]]) -> Judged:
    """The study's estimates with the interval that the rule gives them now."""
    for row in rows:
        if row["method"] not in DRAWN or not row["truth"]:
            continue
        log_p, error = row["log_probability"], row["standard_error"]
        log_p = -math.inf if log_p is None else float(log_p)
        relative = error / math.exp(log_p) if error else None
        said = of_weighted_draws(log_p, relative, row["effective_sample_size"], row["pareto_k"])
        settings, event = {"temperature": row["temperature"]}, str(row["token"])
        asked = (row["method"], settings, event, 0, row["budget"])
        yield row, ls.Estimate(*asked, log_p, **fields_of(said))


def again(rows: list[dict[str, Any]]) -> Judged:
    """New estimates of some of the study's targets, with its settings and another seed."""
    cells: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["method"] in METHODS and row["truth"]:
            cells[row["model"], row["inputs"], row["method"]].append(row)
    for (name, inputs_name, method), found in cells.items():
        model = ls.load_model(name)
        some = found[::EVERY]
        kept: dict[str, Any] = {}
        if method != "conditional":
            kept["temperature"] = some[0]["temperature"]
        if method == "mhis":
            kept["normaliser"] = "harmonic"
        answers = ls.estimate_many(
            model,
            ls.load_inputs(inputs_name, model),
            [row["token"] for row in some],
            method=method,
            budget=some[0]["budget"],
            seed=1,
            **kept,
        )
        yield from zip(some, answers, strict=True)


def count(judged: Judged) -> Counts:
    found: Counts = defaultdict(lambda: [0, 0, 0, 0])
    for row, answer in judged:
        held = below = False
        if answer.is_two_sided:
            held = covers(answer, row["truth"], row["truth_error"])
            below = not held and answer.interval[1] < row["truth"]
        cell = found[row["method"], row["model"], row["inputs"]]
        for i, more in enumerate((True, answer.is_two_sided, held, below)):
            cell[i] += more
    return found


def show(console: Console, title: str, found: Counts) -> None:
    heading = ("method", "model", "inputs", "targets", "intervals", "hold", "below the truth")
    table = Table(*heading, title=title)
    total: Counts = defaultdict(lambda: [0, 0, 0, 0])
    for (method, model, inputs), cell in found.items():
        last = "colon" if inputs == "colon" else "all but colon"
        for key in ((method, model, inputs), (method, "all", last)):
            total[key] = [a + b for a, b in zip(total[key], cell, strict=True)]
    for key, cell in sorted(total.items()):
        shares = [f"{x / cell[1]:.1%}" if cell[1] else "" for x in cell[2:]]
        table.add_row(*key, str(cell[0]), str(cell[1]), *shares)
    console.print(table)
