"""Products with weights, x·Wᵀ + b, in which a row does not depend on the rows beside it.

torch hands float32 products to MKL, which rounds a row otherwise when there are few beside it: on
AMD's processors one to three, on Intel's up to fifteen, or any number where there is no AVX-512.
oneDNN rounds a row alike among any others, on every processor type, but for a row alone, which gets
a second one here. It takes some microseconds more to begin and is as fast from a few hundred rows
on, or faster (`python -m benchmarks products`).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.flop_counter import register_flop_formula

ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
LARGE_HEAD = 2**12  # weights; a head has 16 · 64 in the shipped models and 64 · 512 in the paper's


def dense(
    x: Float[Tensor, "*rows inner"],
    weight: Float[Tensor, "outer inner"],
    bias: Float[Tensor, " outer"] | None = None,
) -> Float[Tensor, "*rows outer"]:
    """x·weightᵀ + bias. No gradient goes through."""
    if ONEDNN is None or x.dtype != torch.float32 or x.device.type != "cpu":
        return linear(x, weight, bias)
    if x.numel() == x.shape[-1]:  # a row alone
        pair: Tensor = ONEDNN(x.reshape(1, -1).repeat(2, 1), weight, bias, "none", [], "")
        return pair[0].view(*x.shape[:-1], -1)
    out: Tensor = ONEDNN(x, weight, bias, "none", [], "")
    return out


def to_width(
    x: Float[Tensor, "rows inner"], weight: Float[Tensor, "inner width"], heads: int
) -> Float[Tensor, "rows {heads} width"]:
    """W_hᵀ·x_h for each head h, whose part of x and of the weight's rows is a block.

    One product of batches would be MKL's. So large heads have a product each, and small ones, whose
    products take less than their beginning, are all in one: each row comes once for a head, with
    zeros in the places of the others, which add nothing.
    """
    if large(weight, heads):
        blocks = zip(x.chunk(heads, 1), weight.chunk(heads), strict=True)
        return torch.stack([dense(part, block.mT) for part, block in blocks], 1)
    apart = x.new_zeros(len(x), heads, heads, x.shape[1] // heads)
    apart.diagonal(dim1=1, dim2=2).copy_(x.unflatten(1, (heads, -1)).mT)
    return dense(apart.view(-1, x.shape[1]), weight.mT).view(len(x), heads, -1)


def from_width(
    x: Float[Tensor, "rows heads width"], weight: Float[Tensor, "inner width"]
) -> Float[Tensor, "rows inner"]:
    """W_h·x_h for each head h, side by side."""
    rows, heads, width = x.shape
    if large(weight, heads):
        blocks = zip(x.unbind(1), weight.chunk(heads), strict=True)
        return torch.cat([dense(part, block) for part, block in blocks], 1)
    every = dense(x.reshape(-1, width), weight).view(rows, heads, heads, -1)
    return every.diagonal(dim1=1, dim2=2).mT.flatten(1)


def large(weight: Float[Tensor, "inner width"], heads: int) -> bool:
    """Whether a product for each head is worth it; whatever the rows, which must not matter."""
    return weight.numel() > heads * LARGE_HEAD


def product(
    x: Float[Tensor, "*rows inner"],
    weight: Float[Tensor, "outer inner"],
    bias: Float[Tensor, " outer"],
) -> Float[Tensor, "*rows outer"]:
    """torch's own while something is differentiated, otherwise `dense`."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, weight, bias)):
        return linear(x, weight, bias)
    return dense(x, weight, bias)


if ONEDNN is not None:  # torch's own counter of operations knows only its own products

    @register_flop_formula(ONEDNN)
    def _flops(x: torch.Size, weight: torch.Size, *_: Any, **__: Any) -> int:
        return 2 * torch.Size(x).numel() * weight[0]
