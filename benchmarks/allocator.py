"""What it is worth that malloc keeps what is freed: plain calls of the shipped models both ways."""

from __future__ import annotations

import resource
import time

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.samplers import AS_IT_COMES, alone
from longshot import load_inputs, load_model
from longshot.evaluate import activations

MODELS = ("mini-1l", "mini-2l", "mini-4l")
CALLS, TURNS = 2048, 5


def main(console: Console) -> None:
    """Microseconds and page faults of a call, each way in processes that take turns."""
    table = Table(title="A plain call, by what malloc does with what is freed")
    for heading in ("model", "as it comes", "page faults", "kept", "page faults", "times faster"):
        table.add_column(heading, justify="right")
    turns = [
        [[line.split() for line in alone("calls", told, __name__).splitlines()] for told in WAYS]
        for _ in range(TURNS)
    ]
    for i, name in enumerate(MODELS):
        (slow, many), (fast, few) = (
            (min(float(t[way][i][0]) for t in turns), turns[0][way][i][1]) for way in (0, 1)
        )
        times = f"{slow:.1f} µs", many, f"{fast:.1f} µs", few, f"{slow / fast:.2f}"
        table.add_row(name, *times)
    console.print(table)


WAYS: tuple[dict[str, str], dict[str, str]] = (AS_IT_COMES, {})


def calls() -> None:
    """Prints, for each model, the processor time of a call and how many pages it touches anew."""
    torch.set_num_threads(1)
    for name in MODELS:
        model = load_model(name)
        tokens = load_inputs("camel", model).sample(CALLS, torch.Generator().manual_seed(0))
        activations(model, tokens)
        start, before = time.process_time(), faults()
        activations(model, tokens)
        seconds = time.process_time() - start
        print(seconds / CALLS * 1e6, f"{(faults() - before) / CALLS:.1f}")


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
