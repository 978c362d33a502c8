"""The gradient written out by hand is autograd's, and going on from a memory changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from longshot.models.gelu import GeluConfig, GeluTransformer
from tests.toys import toy_network

SHAPES = [(1, False), (2, False), (4, False), (1, True), (2, True)]
shapes = pytest.mark.parametrize(("layers", "attention_only"), SHAPES)
POSITIONS = 6


def embedded(network: GeluTransformer, rows: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    vocab = len(network.embedding)
    return network.embedding[torch.randint(vocab, (rows, POSITIONS), generator=generator)]


def remembered(network: GeluTransformer, x: Tensor, start: int) -> list[Tensor]:
    """The memory of the first `start` positions, with nothing usable behind them."""
    memory = network.memory(len(x), POSITIONS)
    for layer in memory:
        layer.fill_(torch.nan)
    if start:
        network.resume(x[:, :start], memory, 0)
    return memory


def by_autograd(network: GeluTransformer, x: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """The full pass of every position, differentiated node by node."""
    x = x.clone().requires_grad_()
    y = x + network.positions[:POSITIONS]
    for block in network.blocks:
        y = block(y, network._no_past(len(x)))
    v = network.norm_final(y)[:, -1]
    (gradient,) = torch.autograd.grad((v * direction).sum(), x)
    return v.detach(), gradient


@shapes
@pytest.mark.parametrize("start", [0, 1, 4, 5])
def test_value_and_gradient_are_those_of_autograd(
    layers: int, attention_only: bool, start: int
) -> None:
    network = toy_network(4, layers=layers, attention_only=attention_only, dtype=torch.float64)
    x = embedded(network, 3)
    direction = torch.randn(3, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected, expected_gradient = by_autograd(network, x, direction)
    tail = x[:, start:].clone().requires_grad_()
    v = network.resume(tail, remembered(network, x, start), start)
    (gradient,) = torch.autograd.grad((v * direction).sum(), tail)
    torch.testing.assert_close(v.detach(), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient[:, start:], rtol=1e-11, atol=1e-11)
    assert float(gradient.abs().min()) > 0


@shapes
@pytest.mark.parametrize("start", [0, 2])
def test_gradients_agree_with_finite_differences(
    layers: int, attention_only: bool, start: int
) -> None:
    network = toy_network(5, layers=layers, attention_only=attention_only, dtype=torch.float64)
    x = embedded(network, 2)

    def resumed(tail: Tensor) -> Tensor:
        return network.resume(tail, remembered(network, x, start), start)

    assert torch.autograd.gradcheck(resumed, x[:, start:].clone().requires_grad_())


@pytest.mark.parametrize("start", range(POSITIONS))
def test_a_row_does_not_depend_on_its_neighbours(start: int) -> None:
    """To the last bit, wherever the inputs go on."""
    network = GeluTransformer(GeluConfig(3, 32, 4, 16, 64, 8, 40)).requires_grad_(False)
    network.initialise(torch.Generator().manual_seed(0))
    x = embedded(network, 64)

    def both(rows: Tensor) -> tuple[Tensor, Tensor]:
        tail = x[rows, start:].requires_grad_()
        v = network.resume(tail, remembered(network, x[rows], start), start)
        return v.detach(), torch.autograd.grad(v.square().sum(), tail)[0]

    v, gradient = both(torch.arange(64))
    for count in (64, 8, 24):
        rows = torch.randperm(64, generator=torch.Generator().manual_seed(count))[:count]
        some_v, some_gradient = both(rows)
        assert torch.equal(some_v, v[rows])
        assert torch.equal(some_gradient, gradient[rows])


def test_weights_in_training_get_their_gradient() -> None:
    network = toy_network().requires_grad_(True)
    network.activation(embedded(network, 2)).sum().backward()
    unused = {"unembedding", "unembedding_bias"}
    for name, parameter in network.named_parameters():
        assert (parameter.grad is None) == (name in unused), name


@pytest.mark.parametrize("part", sorted(dict(toy_network().named_parameters())))
def test_a_part_in_training_gets_its_gradient(part: str) -> None:
    """Whichever part it is, also of products that oneDNN makes where nothing learns."""
    network = toy_network()
    parameter = dict(network.named_parameters())[part].requires_grad_(True)
    x = network.embedding.detach()[:6].expand(2, -1, -1).clone().requires_grad_()
    v = network.activation(x)
    uses = part not in ("embedding", "unembedding", "unembedding_bias")
    (gradient,) = torch.autograd.grad(v.square().sum(), parameter, allow_unused=True)
    assert (gradient is not None) == uses
    if gradient is None or part.endswith("1.attention.key_value.bias"):
        return
    place = torch.unravel_index(gradient.abs().argmax(), gradient.shape)

    def moved(step: float) -> float:
        with torch.no_grad():
            parameter[place] += step
            value = float(network.activation(x).double().square().sum())
            parameter[place] -= step
        return value

    slope = (moved(1e-2) - moved(-1e-2)) / 2e-2
    assert slope == pytest.approx(float(gradient[place]), rel=0.02)
