"""What a step of ITGIS or MHIS spends its time on, and how fast its products run alone."""

from __future__ import annotations

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.samplers import mini_shape, paper_shape, steppers
from benchmarks.timing import compare
from longshot.models.gelu import GeluTransformer
from longshot.models.products import dense

KINDS = {
    "products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::"),
    "GELU": ("aten::gelu", "aten::gelu_backward"),
    "softmax and norms": ("softmax", "layer_norm"),
    "copies": ("aten::copy_", "aten::cat", "aten::clone", "aten::fill_", "aten::index"),
    "sampling": ("aten::searchsorted", "aten::cumsum", "aten::uniform_", "aten::gather"),
}


def main(console: Console) -> None:
    """Shares of the time inside torch's operations, one thread."""
    torch.set_num_threads(1)
    table = Table(title="Where a step's time goes, one target")
    for heading in ("method", "shape", *KINDS, "other", "products", "of their peak"):
        table.add_column(heading, justify="right")
    for shape, make, batch, chains in (
        ("mini-4l", mini_shape, 64, 8),
        ("paper", paper_shape, 256, 32),
    ):
        model, inputs = make()
        assert isinstance(model.network, GeluTransformer)
        for name in ("itgis", "mhis"):
            _, step, _ = steppers(name, model, inputs, 1, batch, chains)
            step()
            with profile() as seen:
                step()
            with FlopCounterMode(display=False) as counter:
                step()
            spent = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
            total = sum(spent.values())
            shares = {
                kind: sum(time for key, time in spent.items() if any(part in key for part in parts))
                for kind, parts in KINDS.items()
            }
            rate = counter.get_total_flops() / 2 / shares["products"] / 1e3  # microseconds
            table.add_row(
                name,
                shape,
                *(f"{share / total:.0%}" for share in shares.values()),
                f"{1 - sum(shares.values()) / total:.0%}",
                f"{rate:.0f} GMAC/s",
                f"{rate / peak(model.network, inputs.length):.0%}",
            )
    console.print(table)


def peak(network: GeluTransformer, length: int) -> float:
    """GMAC/s of the network's largest product alone: a block of inputs into the MLP."""
    rows, width, out = 64 * length, network.config.width, network.config.mlp_width
    x, weight = torch.randn(rows, width), torch.randn(out, width)
    measured = compare(*[lambda: dense(x, weight)] * 2, pairs=5)
    return rows * width * out / measured.fast_seconds / 1e9
