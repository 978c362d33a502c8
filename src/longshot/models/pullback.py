"""The activation at the last position and its gradient, written out by hand.

Each half of a layer is a function of the residual stream that also gives its pullback: what takes
the gradient of its output to that of its input. Weights are constants here.

    x ↦ y = x + W_O·Σ_j a_j·v_j,    a = softmax_j(q·k_j/√d),    q, k, v = W_Q·n, W_K·n, W_V·n
    x ↦ y = x + W_out·GELU(W_in·n),                             n = LN(x)

In the last layer only the last position asks, so keys and values need not be made: its scores are
(W_Kᵀ·q)·n_j and what it reads is W_V·Σ_j a_j·n_j. (A key's bias is the same for all j, which the
softmax does not see; the weights a sum to 1, so a value's bias is added once.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu, linear

if TYPE_CHECKING:
    from longshot.models.gelu import Block, GeluTransformer, LayerNorm

Pullback = Callable[[Tensor], Tensor]
Half = Callable[[Tensor], tuple[Tensor, Pullback]]
Memory = list[Float[Tensor, "_ rows _ position _"]]
"""What later positions attend to: keys and values of each layer, and the last layer's n."""


class LastActivation(torch.autograd.Function):
    """The network from its residual stream to the activation at the last position.

    Positions before `start` are known from `memory`, which takes up those computed here.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "rows tail width"],
        network: GeluTransformer,
        memory: Memory,
        start: int,
    ) -> Float[Tensor, "rows width"]:
        ctx.pullbacks = []
        for half in _halves(network, memory, start):
            x, pullback = half(x)
            if ctx.needs_input_grad[0]:
                ctx.pullbacks.append(pullback)
        return x[:, 0]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Float[Tensor, "rows width"]
    ) -> tuple[Tensor, None, None, None]:
        gradient = gradient[:, None]
        for pullback in reversed(ctx.pullbacks):
            gradient = pullback(gradient)
        return gradient, None, None, None


def _halves(network: GeluTransformer, memory: Memory, start: int) -> Iterator[Half]:
    """What the residual stream goes through, in order; the last layer keeps its last position."""
    for block, known in zip(network.blocks, memory, strict=True):
        attend = _attend_last if block is network.blocks[-1] else _attend
        yield partial(attend, block, known, start)
        if block.has_mlp:
            yield partial(_mlp, block)
    yield partial(_normalise, network.norm_final)


def _normalise(norm: LayerNorm, x: Tensor) -> tuple[Tensor, Pullback]:
    shape, gain, bias = norm.weight.shape, norm.weight, norm.bias
    y, mean, scale = torch.native_layer_norm(x, shape, gain, bias, norm.epsilon)

    def pullback(g: Tensor) -> Tensor:
        only_x = [True, False, False]
        back = torch.ops.aten.native_layer_norm_backward
        out: Tensor = back(g, x, shape, mean, scale, gain, bias, only_x)[0]
        return out

    return y, pullback


def _mlp(block: Block, x: Tensor) -> tuple[Tensor, Pullback]:
    normed, through_norm = _normalise(block.norm_mlp, x)
    inner, outer = block.mlp_in, block.mlp_out
    z = linear(normed, inner.weight, inner.bias)
    y = linear(gelu(z), outer.weight, outer.bias).add_(x)

    def pullback(g: Tensor) -> Tensor:
        at_z = g @ outer.weight
        torch.ops.aten.gelu_backward(at_z, z, grad_input=at_z)
        return through_norm(at_z @ inner.weight).add_(g)

    return y, pullback


def _attend(block: Block, memory: Tensor, start: int, x: Tensor) -> tuple[Tensor, Pullback]:
    n, through_norm = _normalise(block.norm_attention, x)
    layer, end = block.attention, start + x.shape[1]
    heads, query, key_value, output = layer.heads, layer.query, layer.key_value, layer.output
    q = _split(linear(n, query.weight, query.bias), 1, heads).flatten(0, 2)
    memory[..., start:end, :] = _split(linear(n, key_value.weight, key_value.bias), 2, heads)
    k, v = (part[..., :end, :].flatten(0, 1) for part in memory)
    scale = 1 / math.sqrt(q.shape[-1])
    future = q.new_full((end, end - start), -math.inf).tril(-1 - start)
    a = torch.baddbmm(future, k, q.mT, alpha=scale).softmax(1)  # a column for each query
    mixed = _merge(torch.bmm(a.mT, v)[None], heads)
    y = linear(mixed, output.weight, output.bias).add_(x)

    def pullback(g: Tensor) -> Tensor:
        at_mixed = _split(g @ output.weight, 1, heads).flatten(0, 2)
        at_a = torch.bmm(v, at_mixed.mT)
        at_scores = torch._softmax_backward_data(at_a, a, 1, a.dtype).mul_(scale)
        at_q = _merge(torch.bmm(at_scores.mT, k)[None], heads)
        at_kv = q.new_empty(2, *q.shape)
        torch.bmm(at_scores[:, start:], q, out=at_kv[0])
        torch.bmm(a[:, start:], at_mixed, out=at_kv[1])
        at_n = (_merge(at_kv, heads) @ key_value.weight).add_(at_q @ query.weight)
        return through_norm(at_n).add_(g)

    return y, pullback


def _attend_last(block: Block, memory: Tensor, start: int, x: Tensor) -> tuple[Tensor, Pullback]:
    n, through_norm = _normalise(block.norm_attention, x)
    layer, end = block.attention, start + x.shape[1]
    heads, query, key_value, output = layer.heads, layer.query, layer.key_value, layer.output
    w_k, w_v = key_value.weight.unflatten(0, (2, heads, -1))  # [head, head_width, width]
    memory[0, :, 0, start:end] = n
    seen = memory[0, :, 0, :end]
    q = linear(n[:, -1], query.weight, query.bias).unflatten(1, (heads, -1)).transpose(0, 1)
    scale = 1 / math.sqrt(q.shape[-1])
    u = torch.bmm(q, w_k).transpose(0, 1).contiguous()  # W_Kᵀ·q: [rows, head, width]
    a = torch.bmm(u, seen.mT).mul_(scale).softmax(-1)
    read = torch.bmm(a, seen).transpose(0, 1)
    mixed = torch.bmm(read, w_v.mT).transpose(0, 1).flatten(1)
    mixed += key_value.bias.unflatten(0, (2, -1))[1]
    y = linear(mixed, output.weight, output.bias)[:, None].add_(x[:, -1:])

    def pullback(g: Tensor) -> Tensor:
        at_mixed = (g[:, 0] @ output.weight).unflatten(1, (heads, -1)).transpose(0, 1)
        at_read = torch.bmm(at_mixed, w_v).transpose(0, 1).contiguous()
        at_a = torch.bmm(at_read, seen.mT)
        at_scores = torch._softmax_backward_data(at_a, a, -1, a.dtype).mul_(scale)
        at_u = torch.bmm(at_scores, seen).transpose(0, 1)
        at_q = torch.bmm(at_u, w_k.mT).transpose(0, 1).flatten(1)
        at_n = torch.bmm(a[..., start:].mT, at_read)
        at_n = torch.baddbmm(at_n, at_scores[..., start:].mT, u)
        at_n[:, -1] += at_q @ query.weight
        at_x = through_norm(at_n)
        at_x[:, -1:] += g
        return at_x

    return y, pullback


def _split(x: Tensor, parts: int, heads: int) -> Float[Tensor, "part rows head position width"]:
    """[rows, position, part·head·width] to [part, rows, head, position, width], a view."""
    return x.reshape(*x.shape[:2], parts, heads, -1).permute(2, 0, 3, 1, 4)


def _merge(x: Tensor, heads: int) -> Float[Tensor, "rows position parts_heads_width"]:
    """[part, rows·head, position, width] to [rows, position, part·head·width]."""
    by_head = x.reshape(len(x), -1, heads, *x.shape[2:])
    return by_head.permute(1, 3, 0, 2, 4).flatten(2)
