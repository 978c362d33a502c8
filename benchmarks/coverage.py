"""How often conditional sampling's 95% intervals hold the shipped truth, cell by cell.

How far they are stretched was chosen on the cells with a star: four of mini-1l, and mini-2l when
two forms were compared. No other cell was looked at.
"""

from __future__ import annotations

import itertools

import torch
from rich.console import Console
from rich.table import Table

import longshot as ls
from longshot.inputs import CATALOGUE
from longshot.models.checkpoints import ZOO_NAMES
from longshot.numerics import log_interval

BUDGETS = {1024: 8, 8192: 2}  # and how many seeds
TIMES = {"mini-1l": 5}  # the calls that pay for as many prefixes: one layer's are cheap
TARGETS = 40
NOISE = 0.08  # the largest relative error of a truth that can judge
CHOSEN_ON = {
    *(("mini-1l", name) for name in ("camel", "hex", "english", "if")),
    *(("mini-2l", name) for name in CATALOGUE),
}


def main(console: Console) -> None:
    table = Table("model", "inputs", "budget", "intervals", "hold", "unstretched", title="coverage")
    judged: dict[bool, list[int]] = {True: [0, 0, 0], False: [0, 0, 0]}
    for name, inputs, budget in itertools.product(ZOO_NAMES, CATALOGUE, BUDGETS):
        counts = count(name, inputs, budget)
        chosen = (name, inputs) in CHOSEN_ON
        judged[chosen] = [a + b for a, b in zip(judged[chosen], counts, strict=True)]
        label = f"{inputs}*" if chosen else inputs
        calls = str(budget * TIMES.get(name, 1))
        table.add_row(name, label, calls, str(counts[0]), *shares(counts))
    for chosen, counts in judged.items():
        table.add_row(
            "all", "with *" if chosen else "without *", "", str(counts[0]), *shares(counts)
        )
    console.print(table)


def shares(counts: list[int]) -> list[str]:
    return [f"{held / counts[0]:.1%}" if counts[0] else "" for held in counts[1:]]


def count(name: str, inputs_name: str, budget: int) -> list[int]:
    """How many intervals there are, how many hold the truth, and how many would unstretched."""
    model = ls.load_model(name)
    inputs = ls.load_inputs(inputs_name, model)
    truth = ls.load_truth(model, inputs)
    p = truth.probability
    known = (truth.standard_error < NOISE * p) & (p > 3e-6) & (p < 3e-2)
    tokens = known.nonzero()[:, 0]
    tokens = tokens[torch.linspace(0, len(tokens) - 1, min(TARGETS, len(tokens))).long()]
    found, calls = [0, 0, 0], budget * TIMES.get(name, 1)
    for seed in range(BUDGETS[budget]):
        runs = ls.estimate_many(
            model, inputs, tokens.tolist(), method="conditional", budget=calls, seed=seed
        )
        for token, run in zip(tokens.tolist(), runs, strict=True):
            if run.interval is not None and run.standard_error:
                error, size = run.standard_error / run.probability, run.effective_sample_size or 0
                plain = log_interval(run.log_probability, error, size - 1)
                held = [bool(low <= p[token] <= high) for low, high in (run.interval, plain)]
                found = [a + b for a, b in zip(found, [True, *held], strict=True)]
    return found
