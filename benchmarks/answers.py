"""Does `auto` answer? 32 targets of 1e-7 … 1e-4 in each of the 24 cells, no knob turned.

`python -m benchmarks.answers FOLDER [BUDGET …]` asks, a row for each question, and goes on where it
was stopped. `python -m benchmarks.answers FOLDER pack STORE` stores the rows: those of colon, whose
shipped truth is too low, are judged by plain samples (`longshot truth make --inputs colon --kind
brute --store STORE`), where these know a target to 25%. `python -m benchmarks answers` prints what
the stored rows say. Splitting's constants were chosen on hex, camel and english; the other five
distributions were run once. A target's own truth has noise, which is allowed for as in a study's
coverage.
"""

from __future__ import annotations

import json
import lzma
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import longshot as ls
from longshot.study.scores import covers, score_cell

STORED = Path(__file__).parents[1] / "docs" / "results" / "answers" / "rows.jsonl.xz"
MODELS = ("mini-1l", "mini-2l", "mini-4l")
CHOSEN_ON = ("hex", "camel", "english")
RUN_ONCE = ("caps", "if", "spanish", "icl", "colon")
TARGETS, LOW, HIGH = 32, 1e-7, 1e-4


def main(console: Console) -> None:
    with lzma.open(STORED, "rt") as file:
        rows = [Row.of(json.loads(line)) for line in file]
    for method, budget in sorted({(row.answer.method, row.answer.budget) for row in rows}):
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
            title=f"{method}, at most 2^{math.log2(budget):g} calls",
        )
        table.columns[0].no_wrap = True
        some = [r for r in rows if (r.answer.method, r.answer.budget) == (method, budget)]
        for model in MODELS:
            of_model = [row for row in some if row.model == model]
            for name, those in (("chosen on", CHOSEN_ON), ("run once", RUN_ONCE)):
                add(table, f"{model}, {name}", (row for row in of_model if row.inputs in those))
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


def ask(folder: Path, method: str, budget: int) -> None:
    """All questions that are not answered yet, each a line of a file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{method}-{budget}.jsonl"
    done = set()
    if path.exists():
        done = {tuple(json.loads(line)["key"]) for line in path.read_text().splitlines()}
    for inputs_name in (*RUN_ONCE, *CHOSEN_ON):
        for model_name in MODELS:
            for key, question, model, inputs in questions(model_name, inputs_name):
                if key in done:
                    continue
                answer = ls.estimate(model, inputs, key[2], method=method, budget=budget)
                plain = {**answer.to_dict(), "witnesses": []}
                line = {"key": key, "question": question, "answer": plain}
                with path.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def questions(
    model_name: str, inputs_name: str
) -> Iterator[tuple[tuple[str, str, int], tuple[str, str, float, float], ls.Model, ls.Inputs]]:
    """The targets of a cell: chosen on one half of the truth and judged by the other."""
    model = ls.load_model(model_name)
    inputs = ls.load_inputs(inputs_name, model)
    picked = ls.pick_targets(ls.load_truth(model, inputs), LOW, HIGH, TARGETS)
    for token in picked.tokens:
        judge = picked.judge
        p, error = float(judge.probability[token]), float(judge.standard_error[token])
        if p > 0:
            yield (
                (model_name, inputs_name, token),
                (model_name, inputs_name, p, error),
                model,
                inputs,
            )


def pack(folder: Path, store: Path) -> None:
    """Store all rows, those of colon with the truth of plain samples."""
    truths = {name: plain_truth(name, store) for name in MODELS}
    STORED.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(STORED, "wt") as file:
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                model, inputs, token = row["key"]
                if inputs == "colon":
                    truth = truths[model]
                    if truth is None:
                        continue
                    p, error = float(truth.probability[token]), float(truth.standard_error[token])
                    if not 0 < error <= p / 4:
                        continue
                    row["question"] = (model, inputs, p, error)
                file.write(json.dumps(row) + "\n")


def plain_truth(model_name: str, store: Path) -> ls.Truth | None:
    """What plain samples say, None where none are stored."""
    model = ls.load_model(model_name)
    try:
        return ls.load_truth(model, ls.load_inputs("colon", model), store)
    except ls.LongshotError:
        return None


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[2:3] == ["pack"]:
        pack(Path(sys.argv[1]), Path(sys.argv[3]))
        sys.exit()
    for asked in sys.argv[2:] or [str(2**16), str(2**14), str(2**12)]:
        ask(Path(sys.argv[1]), "auto", int(asked))
