"""Everything that meets a network stays on its device: on one that is not there, numbers agree."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.models import Model
from tests.models.hf_models import hf_model, hf_tokenizer
from tests.pretended import FarTensor, pretended_device

SHIPPED = ("mini-1l", "mini-2l")
FAMILIES = ("GPT2", "Llama", "Gemma2")  # learned and rotary positions, a window and a cap


@pytest.fixture
def device() -> Iterator[str]:
    with pretended_device() as name:
        yield name


def on(device: str, name: str) -> Model:
    """A shipped model or one of a family, on a device."""
    if name in SHIPPED:
        return ls.load_model(name, device=device)
    theirs = copy.deepcopy(hf_model(name)).to(device)
    theirs.set_attn_implementation("eager")  # torch's own looks for a kernel of the device
    return ls.load_model(theirs, tokenizer=hf_tokenizer())


def back(x: Tensor) -> Tensor:
    """On the CPU, from where it must have been."""
    assert isinstance(x, FarTensor)
    return x.here


def test_what_meets_the_cpu_is_refused(device: str) -> None:
    """The check can fail: of everything but numbers without an axis and indices."""
    far, near = torch.ones(2, 3, device=device), torch.ones(2, 3)
    for meet in (lambda: far + near, lambda: far @ near.mT, lambda: torch.cat([far, near])):
        with pytest.raises(RuntimeError, match="on pretended and on the CPU"):
            meet()
    assert torch.equal((far * torch.tensor(2.0)).cpu(), 2 * near)
    assert far[torch.tensor([1])].device.type == device
    near += far.cpu()
    assert torch.equal(near, torch.full((2, 3), 2.0))


@pytest.mark.parametrize("name", [*SHIPPED, *FAMILIES])
def test_a_network_stays_on_its_device(device: str, name: str) -> None:
    """Activations, gradients, memories and continuations: the same numbers as on the CPU."""
    near, far = on("cpu", name), on(device, name)
    assert far.device.type == device
    assert far.fingerprint == near.fingerprint
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(len(near.embedding), (4, 9), generator=generator)
    tails = torch.randint(len(near.embedding), (4, 3, 2), generator=generator)

    def run(model: Model) -> dict[str, Tensor]:
        network: Any = model.network
        whole = model.embed(tokens).requires_grad_()
        plain = network.activation(whole)
        memory = network.memory(4, 9)
        with torch.no_grad():
            network.resume(model.embed(tokens.roll(1, 0)), memory, 0)
            network.resume(model.embed(tokens)[:, :3], memory, 0)
        tail = model.embed(tokens[:, 3:]).requires_grad_()
        resumed = network.resume(tail, memory, 3)
        (slope,) = torch.autograd.grad(plain.square().sum(), whole)
        (of_tail,) = torch.autograd.grad(resumed.square().sum(), tail)
        leaves = model.embed(tails.flatten(0, 1)).view(4, 3, 2, -1)
        extended = network.extend(leaves, memory, 7)
        found = {"plain": plain, "resumed": resumed, "extended": extended}
        return found | {"slope": slope, "of tail": of_tail, "memory": memory[-1]}

    expected = run(near)
    for what, value in run(far).items():
        right = expected[what].detach()
        assert right.abs().max() > 0.1
        error = float((back(value.detach()) - right).abs().max() / right.abs().max())
        assert error < 1e-4, what
