"""The deep study judged by truth in which leafwise has no say: splitting and samples alone.

Certificates rest mostly on leafwise, which is judged by them, and so is `auto`, which uses it. Here
the opinions of the others stand alone, each known to a half or better, by their precision.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean, median

from rich.console import Console
from rich.table import Table

from longshot.study import load_run
from longshot.truth import load_truth
from longshot.truth.certificate import Certificate

ROWS = Path(__file__).parents[1] / "docs/results/deep/rows.jsonl.xz"
JUDGED = "leafwise"


def main(console: Console) -> None:
    """Losses without a fit, over the estimates that are not zero."""
    run = load_run(ROWS)
    titles = (
        "method",
        "targets",
        "no hit",
        "mean raw loss",
        "median",
        "mean log q/p",
        "noise floor",
    )
    table = Table(*titles)
    for label in run.methods:
        found, noise, zeros = [], [], 0
        for model, inputs in run.cells:
            known = {c.token: without(c, JUDGED) for c in load_truth(model, inputs).certificates}
            for target, answer in run.estimates(model, inputs, label):
                judge = known[target.token]
                if not judge.known:
                    continue
                noise.append(judge.relative_error**2 / 2)
                zeros += answer.log_probability == -math.inf
                if answer.log_probability > -math.inf:
                    found.append(judge.log_probability - answer.log_probability)
        losses = [math.exp(d) - d - 1 for d in found]
        numbers = (mean(losses), median(losses), -mean(found), mean(noise))
        table.add_row(label, str(len(noise)), str(zeros), *(f"{n:.3g}" for n in numbers))
    console.print(table)


def without(found: Certificate, name: str) -> Certificate:
    """What the others say of a token."""
    others = {n: opinion for n, opinion in found.opinions.items() if n != name}
    return Certificate(found.token, found.scouted, others)
