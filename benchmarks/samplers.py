"""ITGIS and MHIS against the paper's pseudo-code, per step, and where our time goes.

Both run on the same model, inputs and targets, and climb the logit at T = 1 as the pseudo-code
does; a second row is of ITGIS with its own settings, which climbs the gap and so meets the whole
vocabulary at each call. A step of ours serves one target or sixteen; the ratio is per target, of
the least processor time of either in several turns. At the paper's shape the model has random
weights: speed does not depend on them, and hits are as rare as in the paper.

On a small model much of the literal version's time is page faults of its one-hots. An allocator
that keeps what is freed takes them away, and with them a good part of the ratio: the second table.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.literal import LiteralITGIS, LiteralMHIS
from benchmarks.timing import compare_least
from longshot.estimate import Job
from longshot.events import TokenIs
from longshot.inputs import CATALOGUE, ProductInputs, TokenDistribution, load_inputs
from longshot.methods.itgis import ITGIS, Sampler
from longshot.methods.mhis import MHIS
from longshot.methods.walk import Walk
from longshot.models import Model, load_model
from longshot.models.gelu import GeluConfig, GeluTransformer

KEPT = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
TURNS = {"paper": 2, "mini-4l": 25}  # steps there take half a minute, here less than a second
PAPER = ITGIS(temperature=1.0, score="logit")
Shape = tuple[str, Callable[[], tuple[Model, ProductInputs]], int, int]


def paper_shape() -> tuple[Model, ProductInputs]:
    """One layer of width 512, vocabulary 48262, 33 positions with supports of 1024."""
    generator = torch.Generator().manual_seed(0)
    network = GeluTransformer(GeluConfig(1, 512, 8, 64, 2048, 1024, 48262))
    network.initialise(generator)
    network.requires_grad_(False)
    support = torch.randperm(48262, generator=generator)[:1024]
    some = TokenDistribution.from_weights(support, torch.rand(1024, generator=generator) ** 4)
    tokenizer = load_model("mini-1l").tokenizer
    model = Model("paper-shape", network, tokenizer, context=1024)
    return model, ProductInputs("random", [TokenDistribution.fixed(0), *[some] * 32])


def mini_shape(name: str = "camel") -> tuple[Model, ProductInputs]:
    """mini-4l; camel is as long as the paper's shape."""
    model = load_model("mini-4l")
    inputs = load_inputs(name, model)
    assert isinstance(inputs, ProductInputs)
    return model, inputs


def main(console: Console) -> None:
    """The speed table: literal over ours, per step and target."""
    table = Table(title="Times faster than the paper's pseudo-code, per step and target")
    for heading in ("method", "shape", "targets", "literal", "ours, a target", "ratio", "bar"):
        table.add_column(heading, justify="right")
    rows: tuple[tuple[str, Shape, int, int | None], ...] = (
        ("itgis", MINI, 1, 10), ("itgis", MINI, 16, 15), ("mhis", MINI, 1, 6),
        ("mhis", MINI, 16, 20), ("itgis by default", MINI, 1, None),
        ("itgis by default", MINI, 16, None), ("itgis", PAPERS, 1, 300), ("mhis", PAPERS, 1, 250),
        ("itgis by default", PAPERS, 1, None),
    )  # fmt: skip
    for name, (shape, make, batch, chains), targets, bar in rows:
        literal, ours, steps = steppers(name, *make(), targets, batch, chains)
        measured = compare_least(literal, ours, turns=TURNS[shape])
        ratio = measured.ratio * targets * steps
        table.add_row(
            name, shape, str(targets), f"{measured.slow_seconds * 1e3:.0f} ms",
            f"{measured.fast_seconds / targets / steps * 1e3:.1f} ms", f"{ratio:.1f}",
            "" if bar is None else f"≥ {bar} {'met' if ratio >= bar else 'MISSED'}",
        )  # fmt: skip
    console.print(table)
    console.print(f"Allocator: {allocator()}")
    arithmetic(console)
    by_inputs(console)
    peak = float(alone("memory_run", {}))  # where the literal version does not count
    console.print(f"Peak memory of ITGIS at the paper's shape, batch 256: {peak:.2f} GB")


MINI: Shape = ("mini-4l", mini_shape, 64, 8)
PAPERS: Shape = ("paper", paper_shape, 256, 32)


def allocator() -> str:
    """Whose memory both run on, with what settings."""
    named = {k: v for k, v in os.environ.items() if k.startswith("MALLOC_") or k == "LD_PRELOAD"}
    return f"{' '.join(platform.libc_ver())} malloc, {named or 'its own settings'}"


def arithmetic(console: Console) -> None:
    """What a step of ITGIS multiplies, by torch's own counter."""
    literal, ours, _ = steppers("itgis", *mini_shape(), 1, 64, 8)
    counts = []
    for step in (literal, ours):
        with FlopCounterMode(display=False) as counter:
            step()
        counts.append(counter.get_total_flops() / 2)
    its, own = counts
    console.print(
        f"Multiply-accumulates of an ITGIS step on mini-4l: {its:.2g}, ours {own:.2g}, "
        f"{its / own:.1f} times fewer"
    )


def by_inputs(console: Console) -> None:
    """ITGIS with 16 targets on all inputs, as memory is by default and where it is kept."""
    table = Table(title="ITGIS by default on mini-4l, 16 targets: times faster, by inputs")
    for heading in ("inputs", "by default", "where freed memory is kept"):
        table.add_column(heading, justify="right")
    columns = [alone("itgis_run", environment).split() for environment in ({}, KEPT)]
    for name, *ratios in zip(CATALOGUE, *columns, strict=True):
        table.add_row(name, *ratios)
    console.print(table)


def itgis_run() -> None:
    """Prints a ratio for each of the inputs."""
    torch.set_num_threads(1)
    for name in CATALOGUE:
        literal, ours, _ = steppers("itgis by default", *mini_shape(name), 16, 64, 8)
        print(f"{16 * compare_least(literal, ours, turns=7).ratio:.1f}")


def steppers(
    name: str, model: Model, inputs: ProductInputs, targets: int, batch: int, chains: int
) -> tuple[Callable[[], None], Callable[[], None], int]:
    """One step of the literal method, some of ours, and how many; all past their first.

    A move of MHIS costs less the later its position, so ours makes one at every free position.
    """
    events = tuple(TokenIs(100 + 7 * i) for i in range(targets))
    job = Job(model, inputs, events, budget=1)
    if name != "mhis":
        literal = LiteralITGIS(model, inputs, events[0].members[0], 1.0, batch)
        run = Sampler(job, PAPER if name == "itgis" else ITGIS(), batch)
        return literal.step, run.step, 1
    walker = LiteralMHIS(model, inputs, events[0].members[0], 1.0, chains)
    walk = Walk(job, MHIS(), chains)

    def round_trip() -> None:
        for position in inputs.free_positions:
            walk.move(position)
            walk.record()

    return walker.step, round_trip, len(inputs.free_positions)


def alone(function: str, environment: dict[str, str]) -> str:
    """What a function of this module prints in a process of its own."""
    code = f"import benchmarks.samplers as s; s.{function}()"
    command, variables = [sys.executable, "-c", code], {**os.environ, **environment}
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=variables
    ).stdout


def memory_run() -> None:
    """A few ITGIS steps at the paper's shape; prints the peak resident size."""
    torch.set_num_threads(1)
    model, inputs = paper_shape()
    run = Sampler(Job(model, inputs, (TokenIs(100),), budget=1), ITGIS(), 256)
    for _ in range(3):
        run.step()
    print(peak_gigabytes())


def peak_gigabytes() -> float:
    """Of this program alone: what `getrusage` says includes the process that started it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) / 2**20
