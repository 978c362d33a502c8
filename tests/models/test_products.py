"""Products by oneDNN: the right numbers, for any number of rows the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.flop_counter import FlopCounterMode

from longshot.models.products import LEAST, ONEDNN, dense, product

here = pytest.mark.skipif(ONEDNN is None, reason="torch was built without oneDNN")
SHAPES = [(64, 64), (64, 192), (256, 64), (48, 96), (512, 512), (17, 31)]


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
    """To the last bit, by oneDNN whatever the size; within the bound of rounding of the truth."""
    x, weight, bias = factors(2112, inner, outer)
    if transposed:
        weight = weight.mT.contiguous().mT
    whole = dense(x, weight, bias, LEAST)
    exact = linear(x.double(), weight.double(), bias.double())
    size = x.double().norm(dim=1)[:, None] * weight.double().norm(dim=1) + bias.abs()
    assert ((whole - exact).abs() <= (inner + 2) * 2**-24 * size).all()
    for start, count in ((0, 8), (3, 16), (8, 24), (33, 64), (100, 264), (0, 2048)):
        some = dense(x[start : start + count], weight, bias, LEAST)
        assert torch.equal(some, whole[start : start + count])
    assert torch.equal(dense(x[32::33], weight, bias, LEAST), whole[32::33])  # the last positions


@here
def test_the_share_of_an_input_decides_and_not_how_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = counted(monkeypatch)
    for rows in (8, 2048):
        x, weight, bias = factors(rows, 64, 64)
        dense(x, weight, bias, positions=LEAST // 64**2)
        dense(x, weight, bias, positions=LEAST // 64**2 - 1)
    assert calls == [8, 2048]
    dense(x.double(), weight.double(), bias.double(), LEAST)
    assert calls == [8, 2048]


@here
@pytest.mark.parametrize("learning", [0, 1, 2])
def test_what_is_differentiated_is_left_to_torch(
    monkeypatch: pytest.MonkeyPatch, learning: int
) -> None:
    """Be it the input, the weight or the bias."""
    calls, given = counted(monkeypatch), factors(66, 64, 192)
    given[learning].requires_grad_()
    y = product(*given, LEAST)
    (gradient,) = torch.autograd.grad(y.square().sum(), given[learning])
    (expected,) = torch.autograd.grad(linear(*given).square().sum(), given[learning])
    assert torch.equal(gradient, expected)
    assert calls == []
    with torch.no_grad():
        torch.testing.assert_close(product(*given, LEAST), y.detach())
    assert calls == [66]


def test_without_onednn_torch_makes_the_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = factors(128, 64, 192)
    monkeypatch.setattr("longshot.models.products.ONEDNN", None)
    assert torch.equal(dense(x, weight, bias, LEAST), linear(x, weight, bias))


@here
def test_torch_counts_its_operations() -> None:
    x, weight, bias = factors(128, 64, 192)
    with FlopCounterMode(display=False) as counter:
        dense(x, weight, bias, LEAST)
    assert counter.get_total_flops() == 2 * 128 * 64 * 192
