"""The same model in another precision: run in it, and right to what it can hold."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.models import Model
from tests.models.hf_models import hf_model, hf_tokenizer

SHIPPED = ("mini-1l", "mini-2l", "mini-4l")
NAMES = (*SHIPPED, "GPT2", "Llama", "Gemma2")


def loaded(name: str, dtype: torch.dtype) -> Model:
    if name in SHIPPED:
        return ls.load_model(name, dtype=dtype)
    return ls.load_model(hf_model(name, dtype), tokenizer=hf_tokenizer())


class Passes(NamedTuple):
    """Logits by each of a network's entry points, and the gradient of one."""

    plain: Tensor
    resumed: Tensor
    extended: Tensor
    gradient: Tensor


def run(model: Model) -> Passes:
    network: Any = model.network
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(len(model.embedding), (16, 9), generator=generator)
    whole, memory = model.embed(tokens).requires_grad_(), network.memory(16, 9)
    plain = network.activation(whole)
    with torch.no_grad():
        network.resume(model.embed(tokens[:, :4]), memory, 0)
        resumed = network.resume(model.embed(tokens[:, 4:]), memory, 4)
        extended = network.extend(model.embed(tokens[:, 7:])[:, None], memory, 7)[:, 0]
    assert plain.dtype == torch.promote_types(model.embedding.dtype, torch.float32)
    assert {layer.dtype for layer in memory} == {model.embedding.dtype}
    weight, bias = model.unembedding.double(), model.unembedding_bias.double()
    logits = [v.double() @ weight + bias for v in (plain, resumed, extended)]
    (gradient,) = torch.autograd.grad(logits[0][:, 3].sum(), whole)
    return Passes(*(x.detach().double() for x in (*logits, gradient)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_pass_is_as_right_as_its_precision(name: str, dtype: torch.dtype) -> None:
    """Against float64: wrong by about the precision of a number, and by no less than it."""
    exact, found = (run(loaded(name, d)) for d in (torch.float64, dtype))
    epsilon = torch.finfo(dtype).eps
    for what, right, ours in zip(Passes._fields, exact, found, strict=True):
        error = float((ours - right).norm() / right.norm())
        print(name, dtype, what, error / epsilon)
        assert 0.1 * epsilon < error < 30 * epsilon, what


@pytest.mark.parametrize("name", ["mini-1l", "Llama"])
def test_another_precision_is_another_model(name: str) -> None:
    """Its weights are rounded, so whatever was found out about one is not true of the other."""
    kinds = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    assert len({loaded(name, dtype).fingerprint for dtype in kinds}) == 4
