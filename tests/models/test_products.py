"""Products by oneDNN: the right numbers, for any number of rows the same, on any processor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.flop_counter import FlopCounterMode

from longshot.models import load_model
from longshot.models.products import ONEDNN, dense, from_width, product, to_width

here = pytest.mark.skipif(ONEDNN is None, reason="torch was built without oneDNN")
SHAPES = [(64, 64), (64, 192), (256, 64), (48, 96), (512, 512), (17, 31)]
SOME = [(0, 1), (5, 1), (0, 2), (7, 3), (1, 5), (64, 7), (0, 8), (3, 16), (8, 24), (33, 64)]
"""Where some of the rows start, and how many they are."""


def factors(rows: int, inner: int, outer: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(inner + outer)
    x, weight = (torch.randn(n, inner, generator=generator) for n in (rows, outer))
    return x, weight, torch.randn(outer, generator=generator)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every product that oneDNN makes from now on."""
    calls: list[int] = []

    def noting(x: Tensor, *rest: object) -> Tensor:
        calls.append(len(x))
        assert ONEDNN is not None
        out: Tensor = ONEDNN(x, *rest)
        return out

    monkeypatch.setattr("longshot.models.products.ONEDNN", noting)
    return calls


@here
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_row_is_the_same_among_any_others(inner: int, outer: int, transposed: bool) -> None:
    """To the last bit, one row or many; within the bound of rounding of the truth."""
    x, weight, bias = factors(2112, inner, outer)
    if transposed:
        weight = weight.mT.contiguous().mT
    whole = dense(x, weight, bias)
    exact = linear(x.double(), weight.double(), bias.double())
    size = x.double().norm(dim=1)[:, None] * weight.double().norm(dim=1) + bias.abs()
    assert ((whole - exact).abs() <= (inner + 2) * 2**-24 * size).all()
    for start, count in (*SOME, (100, 264), (0, 2048)):
        some = dense(x[start : start + count], weight, bias)
        assert torch.equal(some, whole[start : start + count]), (start, count)
    assert torch.equal(dense(x[32::33], weight, bias), whole[32::33])  # the last positions


@pytest.mark.parametrize(("heads", "width"), [(4, 64), (2, 16), (8, 512), (1, 8)])
def test_heads_by_one_product(heads: int, width: int) -> None:
    """Each head's product by itself, and a row the same among any others."""
    weight = factors(0, width, heads * 16)[1]
    blocks, parts = weight.unflatten(0, (heads, -1)), factors(128, heads * 16, 1)[0]
    spread = to_width(parts, weight, heads)
    read = from_width(spread, weight)
    for head, block in enumerate(blocks.unbind()):
        own = parts.unflatten(1, (heads, -1))[:, head]
        torch.testing.assert_close(spread[:, head], own @ block, rtol=1e-4, atol=1e-4)
        back = read.unflatten(1, (heads, -1))[:, head]
        torch.testing.assert_close(back, spread[:, head] @ block.mT, rtol=1e-4, atol=1e-2)
    if ONEDNN is not None:
        for start, count in SOME:
            some = slice(start, start + count)
            assert torch.equal(to_width(parts[some], weight, heads), spread[some]), (start, count)
            assert torch.equal(from_width(spread[some], weight), read[some]), (start, count)


@here
@pytest.mark.parametrize("name", ["mini-1l", "mini-4l"])
def test_an_input_is_the_same_among_any_others(name: str) -> None:
    """The activation of a shipped model and its gradient, to the last bit."""
    model = load_model(name)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.vocab_size, (80, 20), generator=generator)
    direction = torch.randn(80, model.width, generator=generator)

    def both(some: slice) -> tuple[Tensor, Tensor]:
        embedded = model.embed(tokens[some]).detach().requires_grad_()
        v = model.network.activation(embedded)
        (gradient,) = torch.autograd.grad((v * direction[some]).sum(), embedded)
        return v.detach(), gradient

    v, gradient = both(slice(None))
    for start, count in SOME:
        some = slice(start, start + count)
        own, own_gradient = both(some)
        assert torch.equal(own, v[some]), (start, count)
        assert torch.equal(own_gradient, gradient[some]), (start, count)


@here
def test_all_products_of_float32_are_by_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row alone goes with a second one; another precision is left to torch."""
    calls = counted(monkeypatch)
    for rows in (8, 2048, 1):
        x, weight, bias = factors(rows, 64, 64)
        assert dense(x, weight, bias).shape == (rows, 64)
    assert dense(x[0], weight, bias).shape == (64,)
    assert dense(x[None], weight).shape == (1, 1, 64)
    assert dense(x[:0], weight).shape == (0, 64)
    assert calls == [8, 2048, 2, 2, 2, 0]
    dense(x.double(), weight.double(), bias.double())
    assert len(calls) == 6


@here
@pytest.mark.parametrize("learning", [0, 1, 2])
def test_what_is_differentiated_is_left_to_torch(
    monkeypatch: pytest.MonkeyPatch, learning: int
) -> None:
    """Be it the input, the weight or the bias."""
    calls, given = counted(monkeypatch), factors(66, 64, 192)
    given[learning].requires_grad_()
    y = product(*given)
    (gradient,) = torch.autograd.grad(y.square().sum(), given[learning])
    (expected,) = torch.autograd.grad(linear(*given).square().sum(), given[learning])
    assert torch.equal(gradient, expected)
    assert calls == []
    with torch.no_grad():
        torch.testing.assert_close(product(*given), y.detach())
    assert calls == [66]


def test_without_onednn_torch_makes_the_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = factors(128, 64, 192)
    monkeypatch.setattr("longshot.models.products.ONEDNN", None)
    assert torch.equal(dense(x, weight, bias), linear(x, weight, bias))


@here
def test_torch_counts_its_operations() -> None:
    x, weight, bias = factors(128, 64, 192)
    with FlopCounterMode(display=False) as counter:
        dense(x, weight, bias)
    assert counter.get_total_flops() == 2 * 128 * 64 * 192
