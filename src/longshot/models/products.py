"""Products with weights, x·Wᵀ + b, by oneDNN where it pays.

torch hands float32 products to MKL, which on processors that are not Intel's may leave half of each
vector unused; oneDNN uses all of it and takes some microseconds more to begin (`python -m
benchmarks products`). Each rounds a row alike whatever the number of rows, but not like the other.
So an input's own share of a product decides, not how many inputs run side by side: its numbers do
not depend on its neighbours.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.flop_counter import register_flop_formula

ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
LEAST = 2**16  # multiply-accumulates of one input: with eight of them oneDNN is no slower


def dense(
    x: Float[Tensor, "*rows inner"],
    weight: Float[Tensor, "outer inner"],
    bias: Float[Tensor, " outer"] | None = None,
    positions: int = 1,
) -> Float[Tensor, "*rows outer"]:
    """x·weightᵀ + bias, where so many rows of x belong to one input. No gradient goes through."""
    is_large = positions * weight.numel() >= LEAST
    if ONEDNN is None or not is_large or x.dtype != torch.float32 or x.device.type != "cpu":
        return linear(x, weight, bias)
    out: Tensor = ONEDNN(x, weight, bias, "none", [], "")
    return out


def product(
    x: Float[Tensor, "*rows inner"],
    weight: Float[Tensor, "outer inner"],
    bias: Float[Tensor, " outer"],
    positions: int,
) -> Float[Tensor, "*rows outer"]:
    """torch's own while something is differentiated, otherwise `dense`."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, weight, bias)):
        return linear(x, weight, bias)
    return dense(x, weight, bias, positions)


if ONEDNN is not None:  # torch's own counter of operations knows only its own products

    @register_flop_formula(ONEDNN)
    def _flops(x: torch.Size, weight: torch.Size, *_: Any, **__: Any) -> int:
        return 2 * torch.Size(x).numel() * weight[0]
