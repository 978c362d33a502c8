"""How the time of a call grows with layers, width, vocabulary, length and targets.

One thing is changed at a time from a middle shape; random weights, ITGIS steps (draw, forward,
backward, decide), processor time per model call beside its multiply-accumulates.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from rich.console import Console
from rich.table import Table

from longshot.estimate import Job
from longshot.events import TokenIs
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.methods.itgis import ITGIS, Sampler
from longshot.models import Model, load_model
from longshot.models.gelu import GeluConfig, GeluTransformer

BATCH = 64
SUPPORT = 1024
REPEATS = 3


@dataclass(frozen=True)
class Shape:
    """A model, an input length, and how many targets run together."""

    layers: int = 2
    width: int = 128
    vocabulary: int = 8192
    positions: int = 33
    targets: int = 4


CHANGES: dict[str, tuple[int, ...]] = {
    "layers": (1, 2, 4, 8),
    "width": (64, 128, 256, 512),
    "vocabulary": (2048, 8192, 32768),
    "positions": (17, 33, 65),
    "targets": (1, 4, 16),
}


def main(console: Console) -> None:
    table = Table(title="One ITGIS call, one thread, one thing changed at a time")
    for heading in ("changed", "to", "time a call", "MACs a call", "GMAC/s"):
        table.add_column(heading, justify="right")
    for name, values in CHANGES.items():
        for value in values:
            seconds, macs = per_call(replace(Shape(), **{name: value}))
            table.add_row(
                name, str(value), f"{seconds * 1e6:.0f} µs", f"{macs / 1e6:.2f} M",
                f"{macs / seconds / 1e9:.1f}",
            )  # fmt: skip
        table.add_section()
    console.print(table)


def per_call(shape: Shape) -> tuple[float, float]:
    """Processor seconds and multiply-accumulates of one call, forward and backward."""
    job = Job(*built(shape), tuple(TokenIs(token) for token in range(shape.targets)), 10**9)
    run, best = Sampler(job, ITGIS(batch=BATCH), BATCH), float("inf")
    run.step()
    for _ in range(REPEATS):
        start = time.process_time()
        run.step()
        best = min(best, time.process_time() - start)
    calls = BATCH * shape.targets
    cost = run.cost(0, 0.0)
    return best / calls, cost.macs / cost.forwards


def built(shape: Shape) -> tuple[Model, ProductInputs]:
    generator = torch.Generator().manual_seed(0)
    width, vocabulary = shape.width, shape.vocabulary
    config = GeluConfig(shape.layers, width, width // 16, 16, 4 * width, 128, vocabulary)
    network = GeluTransformer(config)
    network.initialise(generator)
    network.requires_grad_(False)
    support = torch.randperm(vocabulary, generator=generator)[:SUPPORT]
    some = TokenDistribution.from_weights(support, torch.rand(SUPPORT, generator=generator) ** 4)
    model = Model("random", network, load_model("mini-1l").tokenizer, context=128)
    positions = [TokenDistribution.fixed(0), *[some] * (shape.positions - 1)]
    return model, ProductInputs("random", positions)
