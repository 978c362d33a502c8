"""How far off is the extrapolation given the last token? 4,096 calls for all targets of a cell.

`python -m benchmarks extrapolation` prints, for each model, the mean over its cells of the loss
after the paper's leave-one-out fit, the root mean square of log p̂/p as it comes, and the mean of
that. `python -m benchmarks.extrapolation MODEL …` takes a few models. Targets of 1e-7 … 1e-4, 32 a
cell, as in `benchmarks/answers.py`. Settings were chosen on hex, camel and english.
"""

from __future__ import annotations

import math
import statistics
import sys
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import longshot as ls
from benchmarks.answers import CHOSEN_ON, MODELS, RUN_ONCE, TARGETS, cell_questions
from longshot.study.scores import score_cell

BUDGET = 4096


class Scored(NamedTuple):
    """A cell's fitted loss and the errors of its targets on the log scale."""

    fitted: float | None
    errors: list[float]


def main(console: Console, models: tuple[str, ...] = MODELS) -> None:
    table = Table("model", "cells", "fitted loss", "rms log error", "mean log error")
    for name in models:
        model = ls.load_model(name)
        groups = {"chosen on": CHOSEN_ON, "run once": RUN_ONCE}
        scored = {
            group: [cell for one in inputs if (cell := score(model, one)) is not None]
            for group, inputs in groups.items()
        }
        for group, cells in {**scored, "all": [c for s in scored.values() for c in s]}.items():
            fitted = [cell.fitted for cell in cells if cell.fitted is not None]
            errors = [error for cell in cells for error in cell.errors]
            table.add_row(
                f"{name}, {group}",
                str(len(cells)),
                f"{statistics.mean(fitted):.3f}" if fitted else "–",
                f"{math.sqrt(statistics.mean(e * e for e in errors)):.2f}",
                f"{statistics.mean(errors):+.2f}",
            )
    console.print(table)


def score(model: ls.Model, inputs: str) -> Scored | None:
    """One cell; None where it has no targets or too few calls."""
    asked = list(cell_questions(model, inputs, TARGETS))
    if not asked:
        return None
    tokens = [key[2] for key, *_ in asked]
    truth = np.array([pair for _, pair, *_ in asked]).T
    try:
        answers = ls.estimate_many(model, asked[0][3], tokens, method="given_last", budget=BUDGET)
    except ls.LongshotError:
        return None
    fitted = score_cell(answers, *truth).losses["is"].mean
    pairs = zip(answers, truth[0], strict=True)
    return Scored(fitted, [answer.log_probability - math.log(p) for answer, p in pairs])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Console(), tuple(sys.argv[1:]) or MODELS)
