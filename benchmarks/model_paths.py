"""The last-position path against a full pass that slices before the unembedding.

Both give the same activation. The full pass computes every position of the last layer; the
last-position path only its keys and values. Of one layer that is most of the work, of four a
quarter of it at best.
"""

from __future__ import annotations

from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.timing import compare
from longshot.models import load_model
from longshot.models.checkpoints import ZOO
from longshot.models.gelu import GeluConfig, GeluTransformer

BARS = {"mini-1l": 3.0, "mini-2l": None, "mini-4l": 1.1}
ROWS, POSITIONS = 256, 33


@torch.no_grad()
def main(console: Console) -> None:
    table = Table(title=f"Activation at the last position: {ROWS} inputs of {POSITIONS} tokens")
    for heading in ("model", "weights"):
        table.add_column(heading)
    for heading in ("full pass", "last position", "times faster", "bar"):
        table.add_column(heading, justify="right")
    for name, bar in BARS.items():
        network, weights = _network(name)
        tokens = torch.randint(network.config.vocab_size, (ROWS, POSITIONS))
        measured = compare(partial(_full, network, tokens), partial(_last, network, tokens))
        table.add_row(
            name,
            weights,
            f"{measured.slow_seconds * 1e3:.1f} ms",
            f"{measured.fast_seconds * 1e3:.1f} ms",
            f"{measured.ratio:.2f}",
            _verdict(measured.ratio, bar),
        )
    console.print(table)


def _full(network: GeluTransformer, tokens: Tensor) -> Tensor:
    return network.hidden(tokens)[:, -1]


def _last(network: GeluTransformer, tokens: Tensor) -> Tensor:
    return network.activation(network.embedding[tokens])


def _verdict(ratio: float, bar: float | None) -> str:
    if bar is None:
        return "-"
    return f"≥ {bar:g} {'met' if ratio >= bar else '[bold red]MISSED[/]'}"


def _network(name: str) -> tuple[GeluTransformer, str]:
    """The shipped network, or one of its shape: speed does not depend on the numbers."""
    if (ZOO / name / "model.safetensors").is_file():
        network = load_model(name).network
        assert isinstance(network, GeluTransformer)
        return network, "shipped"
    network = GeluTransformer(GeluConfig(int(name[-2]), 64, 4, 16, 256, 64, 4096))
    network.initialise(torch.Generator().manual_seed(0))
    return network, "random"
