"""Does `auto` answer? Targets of 1e-7 … 1e-4 in each of the 24 cells, no knob turned.

`python -m benchmarks.answers FOLDER [BUDGET …] [--targets 32]` asks, a row for each question, and
goes on where it was stopped: the first target of every cell, then the second. `--pack` then stores
the rows, and `python -m benchmarks answers` prints what the stored rows say. On colon, where
prefixes do not hold, only plain samples choose and judge, which the tables of mini-4l do not have.
Constants were chosen on hex, camel and english; the other five distributions were run once. A
target's own truth has noise, which is allowed for as in a study's coverage.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import longshot as ls
from longshot.study.scores import covers, score_cell

FOLDER = Path(__file__).parents[1] / "docs" / "results" / "answers"
STORED = FOLDER / "rows.jsonl.xz"
BEFORE = FOLDER / "splitting-alone.jsonl.xz"  # of auto before leafwise took part
MODELS = ("mini-1l", "mini-2l", "mini-4l")
CHOSEN_ON = ("hex", "camel", "english")
RUN_ONCE = ("caps", "if", "spanish", "icl", "colon")
TARGETS, LOW, HIGH = 32, 1e-7, 1e-4


def main(console: Console) -> None:
    for name, path in (("auto", STORED), ("auto by splitting alone", BEFORE)):
        with lzma.open(path, "rt") as file:
            show(console, name, [Row.of(json.loads(line)) for line in file])


def show(console: Console, name: str, rows: list[Row]) -> None:
    """A table for each budget: by model and by distribution."""
    for budget in sorted({row.answer.budget for row in rows}):
        table = Table(
            *(
                "",
                "targets",
                "answered",
                "hold",
                "upper/lower",
                "raw loss",
                "fitted",
                "no hit",
                "calls",
                "s",
            ),
            title=f"{name}, at most 2^{math.log2(budget):g} calls",
        )
        table.columns[0].no_wrap = True
        some = [row for row in rows if row.answer.budget == budget]
        for model in MODELS:
            of_model = [row for row in some if row.model == model]
            for group, those in (("chosen on", CHOSEN_ON), ("run once", RUN_ONCE)):
                add(table, f"{model}, {group}", (row for row in of_model if row.inputs in those))
            add(table, model, of_model)
        for inputs in (*CHOSEN_ON, *RUN_ONCE):
            add(table, inputs, (row for row in some if row.inputs == inputs))
        console.print(table)


class Row(NamedTuple):
    """A question with its truth and its answer."""

    model: str
    inputs: str
    truth: float
    truth_error: float
    answer: ls.Estimate

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Row:
        model, inputs, truth, error = plain["question"]
        return cls(model, inputs, truth, error, ls.Estimate.from_dict(plain["answer"]))

    @property
    def loss(self) -> float | None:
        """The raw Itakura-Saito loss, None without a hit."""
        if not self.answer.probability:
            return None
        ratio = self.truth / self.answer.probability
        return ratio - math.log(ratio) - 1


def add(table: Table, name: str, rows: Iterable[Row]) -> None:
    """A line of the table: a target without a hit counts as much as the best constant's loss."""
    found = list(rows)
    if not found:
        return
    given = [row for row in found if row.answer.is_two_sided]
    held = [row for row in given if covers(row.answer, row.truth, row.truth_error)]
    mean = statistics.mean(row.truth for row in found)
    constant = statistics.mean(math.log(mean / row.truth) for row in found)
    losses = [constant if row.loss is None else row.loss for row in found]
    table.add_row(
        name,
        str(len(found)),
        f"{len(given) / len(found):.1%}",
        f"{len(held) / max(len(given), 1):.1%}",
        f"{statistics.median(r.answer.interval[1] / r.answer.interval[0] for r in given):.1f}",
        f"{statistics.mean(losses):.3f}",
        f"{fitted_loss(found):.3f}",
        str(sum(row.loss is None for row in found)),
        f"{statistics.mean(row.answer.cost.forwards for row in found):.0f}",
        f"{statistics.mean(row.answer.cost.seconds for row in found):.1f}",
    )


def fitted_loss(rows: list[Row]) -> float:
    """The mean over cells, colon's left out, of the leave-one-out loss after the fit."""
    cells: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.inputs != "colon":
            cells[row.model, row.inputs].append(row)
    found = []
    for cell in cells.values():
        truth = np.array([[row.truth, row.truth_error] for row in cell]).T
        loss = score_cell([row.answer for row in cell], *truth).losses["is"].mean
        if loss is not None:
            found.append(loss)
    return statistics.mean(found) if found else math.nan


def ask(folder: Path, budget: int, targets: int) -> None:
    """All questions that are not answered yet, each a line of a file."""
    folder.mkdir(parents=True, exist_ok=True)
    path, done = folder / f"auto-{budget}.jsonl", set()
    if path.exists():
        done = {tuple(json.loads(line)["key"]) for line in path.read_text().splitlines()}
    for key, truth, model, inputs in questions(targets):
        if key not in done:
            answer = ls.estimate(model, inputs, key[2], budget=budget)
            plain = {**answer.to_dict(), "witnesses": []}
            line = {"key": key, "question": (*key[:2], *truth), "answer": plain}
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")


Question = tuple[tuple[str, str, int], tuple[float, float], ls.Model, ls.Inputs]


def questions(targets: int) -> Iterator[Question]:
    """The targets of all cells in turn: chosen on one half of the truth and judged by the other."""
    cells = [
        list(cell_questions(ls.load_model(model), inputs, targets))
        for inputs in (*CHOSEN_ON, *RUN_ONCE)
        for model in MODELS
    ]
    for turn in zip_longest(*cells):
        yield from (question for question in turn if question is not None)


def cell_questions(model: ls.Model, name: str, targets: int) -> Iterator[Question]:
    """The targets of a cell with what half B says of them."""
    inputs = ls.load_inputs(name, model)
    truth = ls.load_truth(model, inputs)
    if name == "colon":
        if "brute" not in truth.tallies:
            return
        truth = plain_part(truth)
    picked = ls.pick_targets(truth, LOW, HIGH, targets)
    for token in picked.tokens:
        p, error = (
            float(each[token]) for each in (picked.judge.probability, picked.judge.standard_error)
        )
        if p > 0:
            yield (model.name, name, token), (p, error), model, inputs


def plain_part(truth: ls.Truth) -> ls.Truth:
    """What the plain samples alone say."""
    halves = tuple(plain_part(half) for half in truth.halves)
    return ls.Truth(truth.cell, {"brute": truth.tallies["brute"]}, halves)


def pack(folder: Path) -> None:
    """Store all rows."""
    STORED.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(STORED, "wt") as file:
        for path in sorted(folder.glob("*.jsonl")):
            file.write(path.read_text())


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers")
    parser.add_argument("folder", type=Path)
    parser.add_argument("budgets", type=int, nargs="*", default=[2**16, 2**14, 2**12])
    parser.add_argument("--targets", type=int, default=TARGETS)
    parser.add_argument("--pack", action="store_true")
    asked = parser.parse_args()
    if asked.pack:
        pack(asked.folder)
    else:
        for budget in asked.budgets:
            ask(asked.folder, budget, asked.targets)
