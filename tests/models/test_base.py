"""A model's names around its network."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from longshot.models import CachedNetwork, Model
from tests.toys import toy_model, toy_network, toy_tokenizer


def test_sizes_and_embedding() -> None:
    model = toy_model(vocab=9, width=7)
    assert (model.vocab_size, model.width, model.context) == (9, 7, 8)
    tokens = torch.tensor([[0, 3], [8, 1]])
    assert torch.equal(model.embed(tokens), model.network.embedding[tokens])
    assert isinstance(model.network, CachedNetwork)


def test_logits_of_the_parts_are_the_network_s() -> None:
    model = toy_model()
    tokens = torch.tensor([[0, 3, 2], [0, 1, 7]])
    logits = model.network.activation(model.embed(tokens)) @ model.unembedding
    whole = model.network.logits(tokens)[:, -1]  # type: ignore[attr-defined]
    assert torch.allclose(logits + model.unembedding_bias, whole, atol=1e-5)
    assert not torch.allclose(logits, whole, atol=1e-2)


def test_fingerprint_is_of_the_weights_and_the_tokenizer() -> None:
    same = Model("another name", toy_network(), toy_tokenizer(), context=8, source="elsewhere")
    assert same.fingerprint == toy_model().fingerprint
    assert toy_model(1).fingerprint != toy_model().fingerprint
    assert Model("t", toy_network(), toy_tokenizer(9), 8).fingerprint != same.fingerprint


@pytest.mark.parametrize("name", sorted(dict(toy_network().named_parameters())))
def test_fingerprint_sees_the_last_bit_of_every_tensor(name: str) -> None:
    network = toy_network()
    weight = dict(network.named_parameters())[name].view(-1)
    weight[-1] = torch.nextafter(weight[-1], torch.tensor(torch.inf))
    changed = Model("changed", network, toy_tokenizer(), 8)
    assert changed.fingerprint != toy_model().fingerprint


@dataclass
class WithoutBias:
    """The least that an adapter may offer."""

    embedding: Tensor
    unembedding: Tensor
    unembedding_bias: None = None

    def activation(self, embedded: Tensor) -> Tensor:
        return embedded.sum(1)

    def macs(self, positions: int) -> int:
        return 0

    def backward_macs(self, positions: int) -> int:
        return 0


def test_a_network_without_bias_or_cache() -> None:
    model = Model("bare", WithoutBias(torch.eye(3), torch.eye(3)), toy_tokenizer(3), context=4)
    assert torch.equal(model.unembedding_bias, torch.zeros(3))
    assert not isinstance(model.network, CachedNetwork)
    other = Model("bare", WithoutBias(torch.eye(3), 2 * torch.eye(3)), toy_tokenizer(3), context=4)
    assert model.fingerprint != other.fingerprint
