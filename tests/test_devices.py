"""Everything that meets a network stays on its device: on one that is not there, numbers agree."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.estimate import Job
from longshot.evaluate import Decision, Evaluation, Evaluator
from longshot.events import Score
from longshot.inputs import Tree
from longshot.methods import METHODS
from longshot.models import Model
from longshot.numerics import derived_generator
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


# --- what is made of networks

RUNS: dict[str, tuple[int, dict[str, object]]] = {
    "naive": (256, {}),
    "conditional": (2048, {}),
    "itgis": (64, {}),
    "mhis": (60, {"chains": 4}),
    "qld": (512, {}),
    "gld": (256, {}),
    "auto": (512, {}),
    "exact": (4096, {}),
    "given_last": (2048, {}),
    "splitting": (512, {}),
    "leafwise": (512, {}),
}


def inputs_for(method: str, model: ls.Model) -> ls.Inputs:
    """Hexadecimal tokens; few enough to run them all where that is what a method does."""
    inputs = ls.load_inputs("hex", model)
    if method != "exact":
        return inputs
    assert isinstance(inputs, ls.ProductInputs)
    fixed = [ls.TokenDistribution.fixed(16)] * 30
    return ls.ProductInputs("few", [inputs.positions[0], *fixed, *inputs.positions[-2:]])


EVENTS = (ls.TokenIs(16), ls.Continuation((16, 201)))  # of six and of four inputs in ten


@pytest.mark.parametrize("score", ["logit", "gap"])
@pytest.mark.parametrize("event", [ls.TokenIs(3), ls.Continuation((3, 5))], ids=["token", "path"])
def test_an_evaluation_stays_there_and_what_it_finds_comes_back(
    device: str, event: ls.Event, score: Score
) -> None:
    near, far = on("cpu", "mini-2l"), on(device, "mini-2l")
    tokens = ls.load_inputs("camel", near).sample(20, torch.Generator().manual_seed(1))
    owner = torch.zeros(20, dtype=torch.int64)

    def run(model: Model) -> tuple[Evaluation, Decision]:
        evaluator = Evaluator(model, [event], score)
        found = evaluator(tokens, owner, gradient=True)
        return found, evaluator.decide(tokens, found.activation, owner)

    (expected, decided), (found, decision) = run(near), run(far)
    assert expected.gradient is not None
    assert found.gradient is not None
    for a, b in ((expected.activation, found.activation), (expected.gradient, found.gradient)):
        torch.testing.assert_close(back(b), a, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.score, expected.score, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(decision.gap, decided.gap, rtol=1e-3, atol=1e-3)


def test_the_leaves_of_a_tree_stay_there(device: str) -> None:
    near, far = on("cpu", "mini-1l"), on(device, "mini-1l")
    inputs = ls.load_inputs("camel", near)
    prefixes = Tree(near, inputs).sample(2, torch.Generator().manual_seed(1))
    both = zip(Tree(near, inputs).grow(prefixes), Tree(far, inputs).grow(prefixes), strict=True)
    for i, (right, found) in enumerate(both):
        torch.testing.assert_close(back(found.activation), right.activation, rtol=1e-4, atol=1e-4)
        if i == 2:
            break


@pytest.mark.parametrize("method", RUNS)
def test_a_method_answers_there_as_on_the_cpu(device: str, method: str) -> None:
    near, far = on("cpu", "mini-1l"), on(device, "mini-1l")
    inputs, (budget, settings) = inputs_for(method, near), RUNS[method]
    for event in EVENTS[: 1 if "token" in METHODS[method].needs else 2]:
        right, found = (
            ls.estimate(model, inputs, event, method=method, budget=budget, **settings)
            for model in (near, far)
        )
        assert right.hits or method == "given_last"
        assert found.hits == right.hits
        assert found.log_probability == pytest.approx(right.log_probability, abs=1e-3)


def test_every_method_of_the_package_is_asked() -> None:
    ours = {name for name, made in METHODS.items() if made.__module__.startswith("longshot.")}
    assert set(RUNS) == ours


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("method", RUNS)
def test_a_method_answers_in_another_precision(
    method: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU, really. Rounded weights are another model, given the same randomness."""
    monkeypatch.setattr(Job, "_derived", lambda job, *parts: derived_generator(2, *parts))
    usual, rounded = ls.load_model("mini-1l"), ls.load_model("mini-1l", dtype=dtype)
    assert rounded.embedding.dtype == dtype
    inputs, (budget, settings) = inputs_for(method, usual), RUNS[method]
    right, found = (
        ls.estimate(model, inputs, 16, method=method, budget=budget, **settings)
        for model in (usual, rounded)
    )
    near = 1e-3 if dtype == torch.float64 else 0.3
    if method != "given_last":
        assert right.hits
        assert found.hits == pytest.approx(right.hits, rel=near)
    assert found.log_probability == pytest.approx(right.log_probability, abs=near)
