"""ITGIS and MHIS against the paper's pseudo-code, per step, and where our time goes.

Both run on the same model, inputs and targets, and climb the logit at T = 1 as the pseudo-code
does; a second row is of ITGIS with its own settings, which climbs the gap and so meets the whole
vocabulary at each call. A step of ours serves one target or sixteen; the ratio is per target, of
the least processor time of either in several turns. At the paper's shape the model has random
weights: speed does not depend on them, and hits are as rare as in the paper.

Each runs in a process of its own. On a small model much of the literal version's time is page
faults of its one-hots, which malloc gives back and takes again. longshot asks malloc to keep what
is freed; the last columns are of the literal version where it does so too.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
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

# What the literal version is run with: malloc as it comes, and one that keeps what is freed, which
# longshot asks for by itself unless the environment names any of malloc's settings.
AS_IT_COMES = {"MALLOC_ARENA_MAX": "8"}
KEPT = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
TURNS = {"paper": 2, "mini-4l": 25}  # steps there take half a minute, here less than a second
PAPER = ITGIS(temperature=1.0, score="logit")
Shape = tuple[Callable[[], tuple[Model, ProductInputs]], int, int]


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
    """The speed table: literal over ours, per step and target, on each its own malloc."""
    table = Table(title="Times faster than the paper's pseudo-code, per step and target")
    for heading in (
        "method", "shape", "targets", "literal", "ours, a target", "ratio", "bar", "literal, kept",
        "ratio",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for name, shape, targets, bar in ROWS:
        measured = [in_turns(name, shape, targets, malloc) for malloc in (AS_IT_COMES, KEPT)]
        least, kept = (slow / fast for slow, fast in measured)
        table.add_row(
            name, shape, str(targets), f"{measured[0][0] * 1e3:.0f} ms",
            f"{measured[0][1] * 1e3:.1f} ms", f"{least:.1f}",
            "" if bar is None else f"≥ {bar} {'met' if least >= bar else 'MISSED'}",
            f"{measured[1][0] * 1e3:.0f} ms", f"{kept:.1f}",
        )  # fmt: skip
    console.print(table)
    console.print(f"Allocator: {' '.join(platform.libc_ver())} malloc; kept: {KEPT}")
    arithmetic(console)
    by_inputs(console)
    peak = float(alone("memory_run", {}))  # where the literal version does not count
    console.print(f"Peak memory of ITGIS at the paper's shape, batch 256: {peak:.2f} GB")


ROWS: tuple[tuple[str, str, int, int | None], ...] = (
    ("itgis", "mini-4l", 1, 10), ("itgis", "mini-4l", 16, 15), ("mhis", "mini-4l", 1, 6),
    ("mhis", "mini-4l", 16, 20), ("itgis by default", "mini-4l", 1, None),
    ("itgis by default", "mini-4l", 16, None), ("itgis", "paper", 1, 300),
    ("mhis", "paper", 1, 250), ("itgis by default", "paper", 1, None),
)  # fmt: skip


def in_turns(name: str, shape: str, targets: int, malloc: dict[str, str]) -> tuple[float, float]:
    """The least processor seconds of a literal step, and of ours a target, in several turns.

    Each runs in a process of its own, the literal one with the settings of malloc that are given.
    """
    commands = [
        [sys.executable, "-c", STEPPING, name, shape, str(targets), which]
        for which in ("literal", "ours")
    ]
    environments = ({**os.environ, **malloc}, dict(os.environ))
    with ExitStack() as stack:
        pipes = [
            stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
                )
            )
            for command, variables in zip(commands, environments, strict=True)
        ]
        times = [[one_turn(pipe) for pipe in pipes] for _ in range(TURNS[shape])]
        for pipe in pipes:
            assert pipe.stdin is not None
            pipe.stdin.close()
    slow, fast = zip(*times, strict=True)
    return min(slow), min(fast)


def one_turn(process: subprocess.Popen[str]) -> float:
    """Ask a process for one more step; its processor seconds."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


STEPPING = "import sys, benchmarks.samplers as s; s.steps_when_asked(*sys.argv[1:])"


def steps_when_asked(name: str, shape: str, targets: str, which: str) -> None:
    """A warm-up, then a step for every line, and what it took: of ours a target and step."""
    torch.set_num_threads(1)
    make, batch, chains = SHAPES[shape]
    literal, ours, steps = steppers(name, *make(), int(targets), batch, chains)
    step, share = (literal, 1) if which == "literal" else (ours, int(targets) * steps)
    step()
    for _ in sys.stdin:
        start = time.process_time()
        step()
        print((time.process_time() - start) / share, flush=True)


SHAPES: dict[str, Shape] = {"mini-4l": (mini_shape, 64, 8), "paper": (paper_shape, 256, 32)}


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
    """ITGIS with 16 targets on all inputs."""
    table = Table(title="ITGIS by default on mini-4l, 16 targets: times faster, by inputs")
    for heading in ("inputs", "malloc as it comes", "where freed memory is kept"):
        table.add_column(heading, justify="right")
    columns = [alone("itgis_run", malloc).split() for malloc in (AS_IT_COMES, KEPT)]
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


def alone(function: str, environment: dict[str, str], module: str = __name__) -> str:
    """What a function of a module prints in a process of its own."""
    code = f"import {module} as m; m.{function}()"
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
