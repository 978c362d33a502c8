"""Products with weights by oneDNN against torch's own, in the shapes of small and larger models.

`rows` is inputs times positions. All products of float32 on a processor run by oneDNN, since only
there a row does not depend on its neighbours; the first columns show what that costs few rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import linear

from benchmarks.timing import compare
from longshot.models.products import dense

SHAPES = ((64, 192), (64, 64), (64, 256), (256, 64), (64, 4096), (512, 2048))
ROWS = (8, 64, 256, 2048)


def main(console: Console) -> None:
    """GMAC/s of torch's own product and how many times faster oneDNN's is."""
    table = Table(title="Products by oneDNN: GMAC/s of torch's own, and times faster")
    for heading in ("weights", *(f"{rows} rows" for rows in ROWS)):
        table.add_column(heading, justify="right")
    for inner, outer in SHAPES:
        cells = (against_torch(rows, inner, outer) for rows in ROWS)
        table.add_row(f"{inner} × {outer}", *cells)
    console.print(table)


def against_torch(rows: int, inner: int, outer: int) -> str:
    """One product of this shape, both ways."""
    x, weight, bias = torch.randn(rows, inner), torch.randn(outer, inner), torch.randn(outer)
    macs = rows * inner * outer
    times = math.ceil(2e7 / macs)

    def repeated(product: Callable[[], object]) -> Callable[[], None]:
        return lambda: [product() for _ in range(times)].clear()

    measured = compare(
        repeated(lambda: linear(x, weight, bias)),
        repeated(lambda: dense(x, weight, bias)),
    )
    return f"{times * macs / measured.slow_seconds / 1e9:.0f}, {measured.ratio:.2f}×"
