"""Every input once, with its own activation, whatever beginnings the inputs share."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from longshot.evaluate import Enumeration, outcomes, tokens_to_run, winners
from longshot.evaluate import enumeration as module
from longshot.events import Continuation, Event, TokenIs
from longshot.inputs import Listed
from longshot.models import CachedNetwork, Model, Network, load_model
from longshot.testing import Enumerated, enumerated, toy_model
from tests.models.hf_models import hf_model, hf_tokenizer


class Plain:
    """A network that has no memory."""

    def __init__(self, network: Network) -> None:
        self.embedding, self.unembedding = network.embedding, network.unembedding
        self.unembedding_bias, self.network = network.unembedding_bias, network

    def activation(self, embedded: Tensor) -> Tensor:
        return self.network.activation(embedded)

    def macs(self, positions: int) -> int:
        return self.network.macs(positions)

    def backward_macs(self, positions: int) -> int:
        return self.network.backward_macs(positions)


def without_memory(model: Model) -> Model:
    return replace(model, network=Plain(model.network))


class Rows:
    """Some inputs of several lengths, all alike."""

    name, fingerprint = "rows", "rows"

    def __init__(self, rows: list[list[int]]) -> None:
        self.length, self.count = max(map(len, rows)), len(rows)
        self.rows = torch.tensor([row + [-1] * (self.length - len(row)) for row in rows])

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        raise NotImplementedError

    def redraw(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        raise NotImplementedError

    def listed(self, start: int, stop: int) -> Listed:
        share = torch.full((stop - start,), -math.log(self.count), dtype=torch.float64)
        return Listed(self.rows[start:stop], share)


def probability(toy: Enumerated, model: Model, event: Event) -> float:
    walked = Enumeration(model, toy.inputs, more=event.steps - 1)
    total = 0.0
    for leaves in walked:
        found = outcomes(model, event, leaves.activation, leaves.go_on)
        total += float(leaves.log_prob[found.rows].exp() @ found.grade)
    assert walked.macs > 0
    return total


@pytest.mark.parametrize("chunk", [7, 2**14])
@pytest.mark.parametrize("cached", [True, False])
def test_the_sum_over_all_inputs_is_the_probability(
    cached: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    monkeypatch.setattr(module, "ROWS", 5)
    toy = enumerated(6)
    model = toy.model if cached else without_memory(toy.model)
    assert isinstance(model.network, CachedNetwork) == cached
    for token in (4, 11):  # a rare one and the commonest
        assert probability(toy, model, TokenIs(token)) == pytest.approx(toy.exact(token), abs=1e-12)


@pytest.mark.parametrize("cached", [True, False])
def test_leaves_go_on_by_tokens_of_their_own(cached: bool) -> None:
    toy = enumerated(6)
    model = toy.model if cached else without_memory(toy.model)
    second = torch.cat([toy.tokens, toy.output[:, None]], 1)
    logits = model.network.activation(model.embed(second)) @ model.unembedding
    then = (logits + model.unembedding_bias).argmax(1)
    for path in set(zip(toy.output.tolist(), then.tolist(), strict=True)):
        said = (toy.output == path[0]) & (then == path[1])
        exact = float(toy.probability[said].sum())
        assert probability(toy, model, Continuation(path)) == pytest.approx(exact, abs=1e-12)


def rows() -> list[list[int]]:
    """Inputs of one to four tokens, some the beginning of others, one of them twice."""
    some = [list(row) for n in (1, 2, 3) for row in itertools.product([1, 2, 5], repeat=n)]
    return [[0, *row] for row in some[::-1]] + [[0, 2, 5]]


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize("network", ["gelu", "llama"])
def test_inputs_of_several_lengths_each_have_their_own_activation(
    network: str, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not they begin alike."""
    monkeypatch.setattr(module, "ROWS", 2)
    expected = [row[1 - known :] for row in rows()]
    if network == "gelu":
        model = toy_model(3, dtype=torch.float64)
    else:
        model = load_model(hf_model("Llama"), tokenizer=hf_tokenizer())
    inputs = Rows(expected)
    seen: list[list[int]] = []
    for leaves in Enumeration(model, inputs):
        for tokens, activation in zip(leaves.tokens, leaves.activation, strict=True):
            alone = model.network.activation(model.embed(tokens[None]))[0]
            torch.testing.assert_close(activation, alone.to(activation.dtype), atol=1e-5, rtol=1e-4)
            seen.append(tokens.tolist())
    assert sorted(seen) == sorted(expected)


def test_what_is_shared_is_run_once() -> None:
    """The tree of all words of three letters has 1 + 3 + 9 + 27 nodes, BOS included."""
    inputs = Rows(rows())
    assert tokens_to_run(inputs) == 1 + 3 + 9 + 27
    model = toy_model(3)
    walked = Enumeration(model, inputs)
    counted: list[int] = []

    def resume(embedded: Tensor, memory: object, start: int) -> Tensor:
        counted.append(embedded.shape[0] * embedded.shape[1])
        return type(model.network).resume(model.network, embedded, memory, start)

    model.network.resume = resume  # type: ignore[assignment]
    leaves = sum(len(found.tokens) for found in walked)
    assert leaves == len(rows())
    assert sum(counted) == 1 + 3 + 9 + 27
    assert walked.macs == sum(
        n * model.network.macs(1, start) for start, n in enumerate((1, 3, 9, 27))
    )


def test_winners_of_the_leaves_are_those_of_the_inputs() -> None:
    toy = enumerated(1)
    said = {
        tuple(row): int(token)
        for leaves in Enumeration(toy.model, toy.inputs)
        for row, token in zip(
            leaves.tokens.tolist(), winners(toy.model, leaves.activation).token, strict=True
        )
    }
    outputs = zip(toy.tokens.tolist(), toy.output.tolist(), strict=True)
    assert said == {tuple(row): token for row, token in outputs}
