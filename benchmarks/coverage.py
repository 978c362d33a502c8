"""How often 95% intervals hold the shipped truth: conditional sampling's, and the samplers'.

How far conditional sampling's are stretched was chosen on the cells with a star: four of mini-1l,
and mini-2l when two forms were compared. No other cell was looked at. ITGIS's allowance for narrow
proposals was chosen on the tuning targets of the `mini` study, 1024 calls each on all cells; some
of the tokens here may be among them, but the samples are new. The form of MHIS's interval was
chosen on toys whose inputs can be listed and on tokens of five of these cells, with other samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

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
TEMPERATURES = (0.1, 0.2, 0.3, 0.45, 0.67, 1.0, 1.5)
HOTTER = (0.3, 0.67, 1.0, 1.5, 2.24, 3.34)
MHIS_CHAINS = 8  # at this budget
NOISE = 0.08  # the largest relative error of a truth that can judge
CHOSEN_ON = {
    *(("mini-1l", name) for name in ("camel", "hex", "english", "if")),
    *(("mini-2l", name) for name in CATALOGUE),
}


def main(console: Console) -> None:
    by_cell(console)
    by_temperature(console, "itgis", 1024, TEMPERATURES, without_allowance)
    by_temperature(console, "mhis", 6144, HOTTER, students)


def by_cell(console: Console) -> None:
    """Conditional sampling."""
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


def by_temperature(
    console: Console,
    method: str,
    budget: int,
    temperatures: tuple[float, ...],
    plainly: Callable[[ls.Estimate], tuple[float, float]],
) -> None:
    """A sampler on mini-1l, with and without its interval's allowance for what it has not seen."""
    heading = ("temperature", "30 hits", "of them given", "intervals", "hold", "without allowance")
    table = Table(*heading, title=f"coverage of {method} on mini-1l, {budget} calls")
    model = ls.load_model("mini-1l")
    for temperature in temperatures:
        enough, found = [0, 0], [0, 0, 0]
        for name in CATALOGUE:
            inputs = ls.load_inputs(name, model)
            truth = ls.load_truth(model, inputs)
            tokens = judged_tokens(truth, 24)
            answers = ls.estimate_many(
                model, inputs, tokens, method=method, budget=budget, temperature=temperature, seed=7
            )
            for token, run in zip(tokens, answers, strict=True):
                is_given = run.interval is not None
                if (run.hits or 0) >= 30:
                    enough = [enough[0] + 1, enough[1] + is_given]
                if run.interval is not None:
                    held = [holds(truth, token, *ends) for ends in (run.interval, plainly(run))]
                    found = [a + b for a, b in zip(found, [True, *held], strict=True)]
        share = shares(enough)
        table.add_row(f"{temperature:.2g}", str(enough[0]), *share, str(found[0]), *shares(found))
    console.print(table)


def without_allowance(run: ls.Estimate) -> tuple[float, float]:
    """ITGIS's interval as if its weights averaged 1."""
    assert run.interval is not None
    low, high = run.interval
    return low, high * min(run.statistics["mean_weight"], 1.0) ** (1 / 3)


def students(run: ls.Estimate) -> tuple[float, float]:
    """MHIS's interval by the spread between its chains alone."""
    error, chains = (run.standard_error or 0) / run.probability, MHIS_CHAINS
    return log_interval(run.log_probability, error, chains - 1)


def holds(truth: ls.Truth, token: int, low: float, high: float) -> bool:
    """Whether an interval holds the truth, give or take twice the error of that."""
    p, error = float(truth.probability[token]), float(truth.standard_error[token])
    return low <= p + 2 * error and p - 2 * error <= high


def judged_tokens(truth: ls.Truth, count: int) -> list[int]:
    """Tokens from all over the vocabulary whose probability is known well enough to judge by."""
    p = truth.probability
    known = (truth.standard_error < NOISE * p) & (p > 3e-6) & (p < 3e-2)
    tokens = known.nonzero()[:, 0]
    picked: list[int] = tokens[
        torch.linspace(0, len(tokens) - 1, min(count, len(tokens))).long()
    ].tolist()
    return picked


def shares(counts: list[int]) -> list[str]:
    return [f"{held / counts[0]:.1%}" if counts[0] else "" for held in counts[1:]]


def count(name: str, inputs_name: str, budget: int) -> list[int]:
    """How many intervals there are, how many hold the truth, and how many would unstretched."""
    model = ls.load_model(name)
    inputs = ls.load_inputs(inputs_name, model)
    truth = ls.load_truth(model, inputs)
    p, tokens = truth.probability, judged_tokens(truth, TARGETS)
    found, calls = [0, 0, 0], budget * TIMES.get(name, 1)
    for seed in range(BUDGETS[budget]):
        runs = ls.estimate_many(
            model, inputs, tokens, method="conditional", budget=calls, seed=seed
        )
        for token, run in zip(tokens, runs, strict=True):
            if run.interval is not None and run.standard_error:
                error, size = run.standard_error / run.probability, run.effective_sample_size or 0
                plain = log_interval(run.log_probability, error, size - 1)
                held = [bool(low <= p[token] <= high) for low, high in (run.interval, plain)]
                found = [a + b for a, b in zip(found, [True, *held], strict=True)]
    return found
