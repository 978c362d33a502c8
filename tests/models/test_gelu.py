"""The network's entry points share their arithmetic: each must equal the full pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from longshot.errors import LongshotError
from longshot.models.gelu import GeluConfig, GeluTransformer
from tests.toys import toy_network

SHAPES = [(1, False), (2, False), (4, False), (1, True), (2, True)]
shapes = pytest.mark.parametrize(("layers", "attention_only"), SHAPES)
# The shipped shape, one layer: large enough that a wrong summation would show at 1e-5.
MINI = GeluConfig(1, 64, 4, 16, 256, 64, 4096)


def full_pass(network: GeluTransformer, tokens: Tensor) -> Tensor:
    """The reference: every position of every layer, then the last one."""
    return network.hidden(tokens)[:, -1]


def difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    assert a.std() > 0.01  # two constants would agree too
    return float((a - b).abs().max())


def draw(vocab: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randint(vocab, shape, generator=torch.Generator().manual_seed(seed))


@shapes
def test_full_pass_is_the_formula(layers: int, attention_only: bool) -> None:
    """Against the docstring's formula, written out with one loop over heads and positions."""
    network = toy_network(3, layers=layers, attention_only=attention_only, dtype=torch.float64)
    tokens = draw(8, 3, 5)
    assert difference(network.logits(tokens), written_out(network, tokens)) < 1e-12


def written_out(network: GeluTransformer, tokens: Tensor) -> Tensor:
    w = dict(network.named_parameters())
    c = network.config

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred**2).mean(-1, keepdim=True)
        return centred / (variance + c.epsilon).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["embedding"][tokens] + w["positions"][: tokens.shape[1]]
    for layer in range(c.layers):
        b = f"blocks.{layer}."
        y = norm(x, f"{b}norm_attention")
        q = y @ w[f"{b}attention.query.weight"].T + w[f"{b}attention.query.bias"]
        kv = y @ w[f"{b}attention.key_value.weight"].T + w[f"{b}attention.key_value.bias"]
        k, v = kv.chunk(2, -1)
        mixed = torch.zeros_like(q)
        for head in range(c.heads):
            columns = slice(head * c.head_width, (head + 1) * c.head_width)
            for i in range(tokens.shape[1]):
                scores = (k[:, : i + 1, columns] @ q[:, i, columns, None])[..., 0]
                weights = (scores / c.head_width**0.5).softmax(-1)
                mixed[:, i, columns] = (weights[..., None] * v[:, : i + 1, columns]).sum(1)
        x = x + mixed @ w[f"{b}attention.output.weight"].T + w[f"{b}attention.output.bias"]
        if c.mlp_width:
            z = norm(x, f"{b}norm_mlp") @ w[f"{b}mlp_in.weight"].T + w[f"{b}mlp_in.bias"]
            z = z * (1 + torch.erf(z / 2**0.5)) / 2
            x = x + z @ w[f"{b}mlp_out.weight"].T + w[f"{b}mlp_out.bias"]
    return norm(x, "norm_final") @ w["unembedding"] + w["unembedding_bias"]


@shapes
@pytest.mark.parametrize("positions", [1, 4, 8])
def test_last_position_equals_full_pass(layers: int, attention_only: bool, positions: int) -> None:
    network = toy_network(layers, layers=layers, attention_only=attention_only)
    tokens = draw(8, 6, positions)
    last = network.activation(network.embedding[tokens])
    assert difference(last, full_pass(network, tokens)) < 1e-5


def remembered(network: GeluTransformer, tokens: Tensor, room: int = 0) -> list[Tensor]:
    """The memory of prefixes, with zeros where there is more room than they need."""
    memory = network.memory(len(tokens), max(room, tokens.shape[1]))
    for layer in memory:
        layer.zero_()
    network.resume(network.embedding[tokens], memory, 0)
    return memory


@shapes
@pytest.mark.parametrize("tail", [1, 2, 3])
@pytest.mark.parametrize("continuations", [1, 5])
def test_prefix_and_extension_equal_full_pass(
    layers: int, attention_only: bool, tail: int, continuations: int
) -> None:
    network = toy_network(layers, layers=layers, attention_only=attention_only)
    prefixes, tails = draw(8, 3, 4), draw(8, 3, continuations, tail, seed=2)
    memory = remembered(network, prefixes, room=9)
    before = [layer.clone() for layer in memory]
    extended = network.extend(network.embedding[tails], memory, 4)
    assert all(torch.equal(a, b) for a, b in zip(memory, before, strict=True))
    whole = torch.cat([prefixes[:, None].expand(-1, continuations, -1), tails], dim=2)
    assert difference(extended.flatten(0, 1), full_pass(network, whole.flatten(0, 1))) < 1e-5


def test_a_prefix_of_one_token() -> None:
    network = toy_network()
    tokens = draw(8, 5, 2)
    memory = remembered(network, tokens[:, :1])
    extended = network.extend(network.embedding[tokens[:, None, 1:]], memory, 1)
    assert difference(extended[:, 0], full_pass(network, tokens)) < 1e-5


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_the_shipped_shape_agrees_too(layers: int, generator: torch.Generator) -> None:
    config = GeluConfig(layers, 64, 4, 16, 256, 64, 4096)
    network = GeluTransformer(config).requires_grad_(False)
    network.initialise(generator)
    tokens = draw(4096, 16, 33)
    full, embedded = full_pass(network, tokens), network.embedding[tokens]
    assert difference(network.activation(embedded), full) < 1e-5
    memory = remembered(network, tokens[:, :-2])
    extended = network.extend(embedded[:, None, -2:], memory, 31)
    assert difference(extended[:, 0], full) < 1e-5


def test_a_later_token_changes_nothing_before_it() -> None:
    network = toy_network(layers=4)
    tokens = draw(8, 4, 6)
    other = tokens.clone()
    other[:, 3] = (tokens[:, 3] + 1) % 8
    a, b = network.hidden(tokens), network.hidden(other)
    assert torch.equal(a[:, :3], b[:, :3])
    assert not torch.isclose(a[:, 3:], b[:, 3:]).all(-1).any()


@shapes
def test_gradients_agree_with_finite_differences(layers: int, attention_only: bool) -> None:
    network = toy_network(5, layers=layers, attention_only=attention_only, dtype=torch.float64)
    embedded = network.embedding[draw(8, 2, 4)].requires_grad_()
    assert torch.autograd.gradcheck(network.activation, embedded)


@shapes
def test_continuations_have_gradients_too(layers: int, attention_only: bool) -> None:
    network = toy_network(5, layers=layers, attention_only=attention_only, dtype=torch.float64)
    memory = remembered(network, draw(8, 2, 3))
    tails = network.embedding[draw(8, 2, 3, 2)].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: network.extend(x, memory, 3), tails)


def counted(function: object, *arguments: object) -> int:
    with FlopCounterMode(display=False) as counter:
        function(*arguments)  # type: ignore[operator]
    flops: int = counter.get_total_flops()
    assert flops % 2 == 0
    return flops // 2


@shapes
@pytest.mark.parametrize(("positions", "start"), [(1, 0), (2, 0), (7, 0), (7, 3), (7, 6)])
def test_macs_are_those_of_both_passes(
    layers: int, attention_only: bool, positions: int, start: int
) -> None:
    """Of an activation and its gradient, whole or from a known beginning on."""
    network = toy_network(layers=layers, attention_only=attention_only)
    rows, memory = network.embedding[draw(8, 3, positions)], network.memory(3, positions)
    if start:
        network.resume(rows[:, :start], memory, 0)
    tail = rows[:, start:].clone().requires_grad_()
    found = []
    zeros = with_zeros(network) * 3
    forward = counted(lambda: found.append(network.resume(tail, memory, start))) - zeros
    assert network.macs(positions - start, start) * 3 == forward
    backward = counted(found[0].sum().backward) - zeros
    assert network.backward_macs(positions - start, start) * 3 == backward
    assert tail.grad is not None
    if not start:
        assert forward == counted(network.activation, rows) - zeros


def with_zeros(network: GeluTransformer) -> int:
    """What is multiplied with zeros for an input, where the last layer's heads share a product."""
    c = network.config
    return 2 * (c.heads - 1) * c.heads * c.head_width * c.width


@shapes
@pytest.mark.parametrize("tail", [1, 3])
def test_macs_are_those_of_a_continuation(layers: int, attention_only: bool, tail: int) -> None:
    network = toy_network(layers=layers, attention_only=attention_only)
    leaves = network.embedding[draw(8, 2, 3, tail)]
    price = counted(network.extend, leaves, remembered(network, draw(8, 2, 5)), 5)
    assert network.extend_macs(3, tail, prefix=5) * 2 == price


def test_initialise_is_given_by_its_generator() -> None:
    def fresh(seed: int) -> GeluTransformer:
        network = GeluTransformer(MINI)
        network.initialise(torch.Generator().manual_seed(seed))
        return network

    before = torch.random.get_rng_state()
    a, b, c = fresh(0), fresh(0), fresh(1)
    same = [torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(a.embedding, c.embedding)
    assert float(a.logits(draw(4096, 4, 8)).detach().std()) < 3  # logits of a sensible size
    # Modules draw their own first values on creation; only `initialise` is under test here.
    torch.random.set_rng_state(before)
    a.initialise(torch.Generator().manual_seed(2))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(("prefix", "tail"), [(7, 2), (8, 1), (3, 9)])
def test_past_the_context_is_an_error_not_a_broadcast(prefix: int, tail: int) -> None:
    network = toy_network(context=8)
    memory = remembered(network, draw(8, 2, prefix))
    with pytest.raises(LongshotError, match=f"{prefix + tail} tokens, but the model's context"):
        network.extend(network.embedding[draw(8, 2, 1, tail)], memory, prefix)
    with pytest.raises(LongshotError, match="context is 8"):
        network.activation(torch.zeros(1, prefix + tail, 8))
