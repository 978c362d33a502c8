"""MHIS's two normalisers on the same walks: the paper's harmonic one against a bridge.

`python -m benchmarks normalisers` prints, for each cell, number of chains and temperature, the raw
Itakura–Saito loss of both, the targets without a hit, and how many intervals are given and hold.
Budgets are equal: the bridge's plain draws are paid for by an eighth of the steps. Targets are of
1e-7 … 1e-4, judged by the other half of the truth. Ten minutes of a core.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

import longshot as ls
from benchmarks.answers import HIGH, LOW
from longshot.estimate import Job
from longshot.events import TokenIs
from longshot.methods.base import Activations
from longshot.methods.mhis import MHIS
from longshot.methods.walk import Walk
from longshot.study.scores import coverage

BUDGET = 2**14


class Cell(NamedTuple):
    """Some targets of a model and its inputs, with the settings of their chains."""

    model: str
    inputs: str
    chains: int
    temperature: float
    runs: tuple[tuple[int, int], ...]
    """Each a seed with its number of targets."""


CELLS = (
    Cell("mini-1l", "hex", 32, 1.5, ((1, 8), (3, 12))),
    Cell("mini-1l", "hex", 8, 1.5, ((1, 8),)),
    Cell("mini-2l", "caps", 32, 1.5, ((1, 8), (3, 12))),
    Cell("mini-2l", "caps", 8, 1.5, ((1, 8),)),
    Cell("mini-1l", "caps", 32, 3.34, ((2, 8),)),
    Cell("mini-4l", "english", 32, 0.67, ((1, 8),)),
    Cell("mini-4l", "english", 8, 0.67, ((1, 8),)),
    Cell("mini-2l", "hex", 32, 0.45, ((3, 12),)),
    Cell("mini-2l", "camel", 32, 0.67, ((3, 12),)),
    Cell("mini-1l", "camel", 32, 1.0, ((3, 12),)),
    Cell("mini-1l", "hex", 32, 1.0, ((3, 12),)),
    Cell("mini-2l", "caps", 32, 1.0, ((3, 12),)),
    Cell("mini-4l", "english", 32, 1.0, ((3, 12),)),
    Cell("mini-1l", "hex", 32, 0.67, ((2, 8),)),
    Cell("mini-2l", "caps", 32, 0.67, ((2, 8),)),
)

Judged = tuple[ls.Estimate, float, float]
"""An estimate with its truth and the truth's error."""


def main(console: Console, cells: tuple[Cell, ...] = CELLS) -> None:
    headings = ("chains", "T", "normaliser", "targets", "raw loss", "no hit", "intervals", "hold")
    table = Table("", *headings, title=f"{BUDGET} calls")
    for cell in cells:
        found: dict[str, list[Judged]] = {}
        for seed, count in cell.runs:
            for name, judged in both(cell, seed, count):
                found.setdefault(name, []).append(judged)
        for name, each in found.items():
            given, held = coverage(each)
            table.add_row(
                f"{cell.model} {cell.inputs}",
                str(cell.chains),
                f"{cell.temperature:g}",
                name,
                str(len(each)),
                f"{loss(each):.3g}",
                str(sum(answer.log_probability == -math.inf for answer, *_ in each)),
                str(given),
                str(held),
            )
    console.print(table)


def both(cell: Cell, seed: int, count: int) -> Iterator[tuple[str, Judged]]:
    """The judged answers of both normalisers, whose chains are the same as far as both go."""
    model = ls.load_model(cell.model)
    inputs = ls.load_inputs(cell.inputs, model)
    picked = ls.pick_targets(ls.load_truth(model, inputs), LOW, HIGH, count)
    job = Job(model, inputs, tuple(TokenIs(int(t)) for t in picked.tokens), BUDGET, seed)
    harmonic = MHIS(temperature=cell.temperature, chains=cell.chains, normaliser="harmonic")
    bridge, walk = replace(harmonic, normaliser="bridge"), Walk(job, harmonic, cell.chains)
    free = itertools.cycle(walk.inputs.free_positions)
    for position in itertools.islice(free, walk.affordable(harmonic.plan(BUDGET)[1])):
        walk.move(position)
        walk.record()
    scores, grades = walk.scores, walk.grades
    drawn = Activations(job, bridge.plain_draws(BUDGET))
    for method, plain in ((harmonic, None), (bridge, drawn)):
        steps = walk.affordable(method.plan(BUDGET)[1])
        kept = slice(int(steps * method.burn_in), steps)
        walk.scores, walk.grades = scores[kept], grades[kept]
        for i, token in enumerate(picked.tokens):
            truth = float(picked.judge.probability[token])
            if truth > 0:
                answer = method.answer_of(walk, i, steps, 0.0, plain)
                yield method.normaliser, (answer, truth, float(picked.judge.standard_error[token]))


def loss(each: list[Judged]) -> float:
    """The mean raw loss: a target without a hit counts as much as it costs the best constant."""
    mean = statistics.mean(truth for _, truth, _ in each)
    missed = statistics.mean(math.log(mean / truth) for _, truth, _ in each)
    log_ratio = [math.log(truth) - answer.log_probability for answer, truth, _ in each]
    return statistics.mean(missed if x == math.inf else math.exp(x) - x - 1 for x in log_ratio)
