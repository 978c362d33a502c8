"""The adapter on small random models of each family: its logits, gradients, cache and answers.

What is right comes from `transformers` alone: token ids in, logits out.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.models import CachedNetwork, Model, SizedNetwork, in_blocks
from longshot.models.decoder import DecoderNetwork, KeysValues
from longshot.models.decoder_check import checked_network
from longshot.models.huggingface import HuggingFaceDecoder, frozen
from tests.methods.enumerable import Enumerated
from tests.models.hf_models import CONTEXT, FAMILIES, VOCAB, hf_model, hf_tokenizer

families = pytest.mark.parametrize("family", FAMILIES)


@cache
def loaded(family: str) -> Model:
    return ls.load_model(hf_model(family), tokenizer=hf_tokenizer())


def tokens(length: int, count: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(VOCAB, (count, length), generator=generator)


@torch.no_grad()
def their_logits(model: Any, inputs: Tensor) -> Tensor:
    out: Tensor = model(input_ids=inputs).logits[:, -1]
    return out


def our_logits(model: Model, inputs: Tensor) -> Tensor:
    """Before any cap."""
    v = model.network.activation(model.embed(inputs))
    return v @ model.unembedding.float() + model.unembedding_bias.float()


def capped(logits: Tensor, model: Any) -> Tensor:
    cap = getattr(model.config, "final_logit_softcapping", None)
    return cap * torch.tanh(logits / cap) if cap else logits


@families
@pytest.mark.parametrize("length", [1, 2, 7, CONTEXT])
def test_logits_are_theirs(family: str, length: int) -> None:
    theirs = their_logits(hf_model(family), tokens(length))
    ours = our_logits(loaded(family), tokens(length))
    assert theirs.std() > 0.3  # large enough that 1e-4 means something
    assert (capped(ours, hf_model(family)) - theirs).abs().max() < 1e-4
    assert torch.equal(ours.argmax(1), theirs.argmax(1))


@families
def test_the_gradient_is_that_of_the_logit(family: str) -> None:
    """Against differences of their own logits at inputs whose embedding is moved."""
    theirs, model = hf_model(family, torch.float64), loaded(family)
    inputs, target = tokens(5, 1), 4
    exact = ls.load_model(theirs, tokenizer=hf_tokenizer())
    embedded = exact.embed(inputs).requires_grad_()
    (ours,) = torch.autograd.grad(our_logits_from(exact, embedded)[0, target], embedded)
    # Norms are taken in float32 whatever the weights are, so the step must not be too small.
    step = torch.randn(embedded.shape, generator=torch.Generator().manual_seed(1)).double() * 5e-4
    with torch.no_grad():
        up, down = (
            theirs(inputs_embeds=embedded + sign * step).logits[0, -1, target] for sign in (1, -1)
        )
        if cap := getattr(theirs.config, "final_logit_softcapping", None):
            up, down = (cap * torch.atanh(x / cap) for x in (up, down))
    tolerance = 3e-3 * float(ours.norm() * step.norm())
    assert abs(float((ours * step).sum()) - float(up - down) / 2) < tolerance
    assert abs(float((ours.flip(1) * step).sum()) - float(up - down) / 2) > 3 * tolerance
    assert not any(p.requires_grad for p in model.network.parameters())  # type: ignore[attr-defined]


def our_logits_from(model: Model, embedded: Tensor) -> Tensor:
    return model.network.activation(embedded) @ model.unembedding + model.unembedding_bias


@families
@pytest.mark.parametrize("cut", [1, 4, 8])
def test_a_cached_prefix_changes_nothing(family: str, cut: int) -> None:
    """Two continuations of each of three prefixes; windows of three are shorter than most."""
    model, inputs = loaded(family), tokens(10, 3)
    network: Any = model.network
    assert isinstance(network, CachedNetwork)
    other = inputs.roll(1, 0)[:, cut:]
    whole = torch.stack([inputs, torch.cat([inputs[:, :cut], other], 1)], 1)
    with torch.no_grad():
        memory = network.memory(3, 10)
        for layer in memory:
            layer.fill_(99)  # of no use behind what is known
        network.resume(model.embed(inputs[:, :cut]), memory, 0)
        kept = copy.deepcopy(memory)
        tails = model.embedding[torch.stack([inputs[:, cut:], other], 1)]
        found = network.extend(tails, memory, cut)
        plain = network.activation(model.embed(whole.flatten(0, 1)))
        assert (found.flatten(0, 1) - plain).abs().max() < 1e-4
        again = network.extend(tails.flip(1), memory, cut).flip(1)  # the memory is not used up
    assert torch.allclose(again, found, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(kept, memory, strict=True))


@families
@pytest.mark.parametrize("start", [0, 1, 4, 9])
def test_inputs_that_change_go_on_from_a_memory(family: str, start: int) -> None:
    """Values and gradients are those of whole inputs, and the memory those of the new ones."""
    model, inputs = loaded(family), tokens(10, 3)
    network: Any = model.network
    changed = torch.cat([inputs[:, :start], inputs.roll(1, 0)[:, start:]], 1)
    memory, expected = network.memory(3, 10), network.memory(3, 10)
    with torch.no_grad():
        network.resume(model.embed(inputs), memory, 0)
        network.resume(model.embed(changed), expected, 0)
    whole = model.embed(changed).requires_grad_()
    tail = model.embed(changed[:, start:]).requires_grad_()
    plain, resumed = network.activation(whole), network.resume(tail, memory, start)
    (slope,) = torch.autograd.grad(plain.square().sum(), whole)
    (ours,) = torch.autograd.grad(resumed.square().sum(), tail)
    assert (resumed - plain).abs().max() < 1e-4
    assert slope[:, start:].abs().max() > 0.1
    assert (ours - slope[:, start:]).abs().max() < 1e-4 * slope.abs().max()
    for layer, right in zip(memory, expected, strict=True):
        torch.testing.assert_close(layer, right, rtol=1e-4, atol=1e-4)


@cache
def problem(family: str) -> Enumerated:
    """Four free positions, every input listed, and what `transformers` says of each."""
    generator = torch.Generator().manual_seed(1)

    def some(support: list[int]) -> TokenDistribution:
        weights = torch.rand(len(support), generator=generator, dtype=torch.float64) ** 2
        return TokenDistribution.from_weights(support, weights + 0.01)

    wide, narrow = some([1, 2, 3, 5, 7, 9, 11]), some([0, 4, 6, 8, 10])
    positions = [TokenDistribution.fixed(0), wide, narrow, TokenDistribution.fixed(3), wide, narrow]
    inputs = ProductInputs("toy", positions)
    rows = torch.tensor(list(itertools.product(*(d.support.tolist() for d in positions))))
    output = their_logits(hf_model(family), rows).argmax(1)
    return Enumerated(loaded(family), inputs, rows, inputs.log_prob(rows).exp(), output)


BUDGETS = {"naive": 2048, "conditional": 128, "itgis": 1024, "mhis": 3072, "splitting": 2048}


@pytest.mark.parametrize("family", list(FAMILIES)[:9])
@pytest.mark.parametrize("method", BUDGETS)
def test_estimates_are_what_enumeration_gives(family: str, method: str) -> None:
    """Within four standard errors, which are themselves small enough to mean something."""
    whole = problem(family)
    target = min(whole.targets(0.03, 0.6), key=whole.exact)
    settings: dict[str, Any] = {"mhis": {"chains": 16}}.get(method, {})
    if method in ("itgis", "mhis"):  # a gentle tilt, in the units that the logits have
        spread = our_logits(whole.model, whole.tokens)[:, target].std()
        settings["temperature"] = 2 * float(spread)
    answer = ls.estimate(
        whole.model, whole.inputs, target, method=method, budget=BUDGETS[method], **settings
    )
    exact, error = whole.exact(target), answer.standard_error
    print(family, method, f"{answer.probability:.4f} ± {error} against {exact:.4f}")
    assert error is not None
    assert 0 < error < 0.5 * exact
    assert abs(answer.probability - exact) < 4 * error
    for witness in answer.witnesses:
        row = (whole.tokens == torch.tensor(witness.tokens)).all(1)
        assert whole.output[row].tolist() == [target]


@families
def test_conditional_sampling_of_one_free_position_is_exact(family: str) -> None:
    whole = problem(family)
    fixed = [TokenDistribution.fixed(t) for t in (0, 5, 2, 3)]
    leaf = whole.inputs.positions[4]
    inputs = ProductInputs("leaf", [*fixed, leaf, TokenDistribution.fixed(7)])
    rows = torch.tensor([[0, 5, 2, 3, t, 7] for t in leaf.support.tolist()])
    output = their_logits(hf_model(family), rows).argmax(1)
    for target in set(output.tolist()):
        answer = ls.estimate(whole.model, inputs, target, method="conditional", budget=64)
        expected = float(leaf.probabilities[output == target].sum())
        assert answer.probability == pytest.approx(expected, abs=1e-12)


def test_a_soft_cap_changes_no_argmax_and_no_score() -> None:
    """The same weights with and without the cap: one model to us, two to transformers."""
    plain, capping = (hf_model("Gemma2", final_logit_softcapping=c) for c in (None, 2.0))
    rows = tokens(6, 64)
    assert not torch.allclose(their_logits(plain, rows), their_logits(capping, rows), atol=0.1)
    ours = [ls.load_model(m, tokenizer=hf_tokenizer()) for m in (plain, capping)]
    assert torch.equal(our_logits(ours[0], rows), our_logits(ours[1], rows))
    assert torch.equal(their_logits(capping, rows).argmax(1), our_logits(ours[1], rows).argmax(1))


@pytest.mark.parametrize(
    ("family", "dtype"), [("Llama", torch.bfloat16), ("Gemma2", torch.float16)]
)
def test_half_precision_is_kept_and_scores_are_not_in_it(family: str, dtype: torch.dtype) -> None:
    model = ls.load_model(hf_model(family, dtype), tokenizer=hf_tokenizer())
    assert model.embedding.dtype == model.unembedding.dtype == dtype
    assert model.network.activation(model.embed(tokens(6))).dtype == torch.float32
    whole = problem(family)
    target = max(range(VOCAB), key=whole.exact)
    for method in ("naive", "conditional", "itgis", "mhis", "gld", "qld"):
        answer = ls.estimate(model, whole.inputs, target, method=method, budget=256)
        assert 0 < answer.probability <= 1


def test_a_model_in_training_is_used_without_dropout_and_left_as_it_is() -> None:
    theirs = copy.deepcopy(hf_model("GPT2")).train()
    model = ls.load_model(theirs, tokenizer=hf_tokenizer())
    ours = our_logits(model, tokens(6))
    assert torch.allclose(ours, their_logits(hf_model("GPT2"), tokens(6)), atol=1e-5)
    assert theirs.training
    assert all(p.requires_grad for p in theirs.parameters())
    shared = model.embedding.data_ptr()
    assert shared == theirs.get_input_embeddings().weight.data_ptr()


def test_a_recurrent_model_has_no_prefix_cache_and_says_so() -> None:
    theirs = hf_model("Mamba", intermediate_size=32)
    model = ls.load_model(theirs, tokenizer=hf_tokenizer())
    assert not isinstance(model.network, CachedNetwork)
    assert torch.allclose(our_logits(model, tokens(6)), their_logits(theirs, tokens(6)), atol=1e-4)
    with pytest.raises(ls.LongshotError, match="no prefix cache"):
        ls.estimate(model, problem("GPT2").inputs, 3, method="conditional", budget=64)


class OffByOne(HuggingFaceDecoder):
    """A cache that gives every row the keys and values of another."""

    def cache(self, layers: Sequence[KeysValues] = (), rows: int = 0) -> Any:
        return super().cache([(keys.roll(1, 0), values.roll(1, 0)) for keys, values in layers])


class FirstPositions(HuggingFaceDecoder):
    """Behind a cache, tokens take the positions that they would have without it."""

    def hidden(self, embedded: Tensor, cache: Any = None) -> Tensor:
        at = torch.arange(embedded.shape[1])[None]
        last: Tensor = self.model.get_decoder()(
            inputs_embeds=embedded, past_key_values=cache, position_ids=at
        ).last_hidden_state
        return last


class FlatBehindACache(HuggingFaceDecoder):
    """The right values, but half of their gradient is lost where there is a cache."""

    def hidden(self, embedded: Tensor, cache: Any = None) -> Tensor:
        if cache is not None and cache.get_seq_length():
            embedded = embedded / 2 + embedded.detach() / 2
        return super().hidden(embedded, cache)


@pytest.mark.parametrize("decoder", [OffByOne, FirstPositions, FlatBehindACache])
def test_a_cache_that_disagrees_is_no_capability(decoder: type[HuggingFaceDecoder]) -> None:
    model = frozen(copy.deepcopy(hf_model("Llama")))
    assert isinstance(checked_network(HuggingFaceDecoder(model, "right"), "right"), CachedNetwork)
    network = checked_network(decoder(model, "wrong"), "wrong")
    assert not isinstance(network, CachedNetwork)
    embedded = network.embedding[tokens(6)]
    assert (
        network.activation(embedded) - loaded("Llama").network.activation(embedded)
    ).abs().max() < 1e-5


def test_macs_follow_the_weights() -> None:
    network = loaded("Llama").network
    assert isinstance(network, DecoderNetwork)
    width, inner, mlp = 16, 12, 24
    layer = width * (inner + 2 * 6) + inner * width + 3 * width * mlp
    assert network.macs(4) == 4 * 2 * (layer + 2 * inner * 4)
    assert network.macs(1, prefix=3) == 2 * (layer + 2 * inner * 4)
    assert network.extend_macs(5, 1, prefix=3) == 5 * network.macs(1, prefix=3)


def test_batches_are_sized_to_the_memory() -> None:
    network = loaded("Llama").network
    assert isinstance(network, SizedNetwork)
    assert isinstance(network, DecoderNetwork)
    assert network.bytes_per_token > 4 * 2 * 24  # more than one layer's MLP keeps
    assert network.rows(6) == 64
    large = DecoderNetwork(network.decoder, bytes_per_token=2**20)
    assert large.rows(64) == 8
    assert large.rows(2**20) == 1


def crowded(most: int) -> tuple[Model, list[int]]:
    """A model on a machine for which more than so many rows are too many; and what it ran."""
    theirs = copy.deepcopy(hf_model("Llama")).requires_grad_(False)
    model = ls.load_model(theirs, tokenizer=hf_tokenizer())
    ran: list[int] = []

    def run(module: Any, args: Any, options: dict[str, Any]) -> None:
        if (rows := len(options["inputs_embeds"])) > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        ran.append(rows)

    theirs.get_decoder().register_forward_pre_hook(run, with_kwargs=True)
    return model, ran


@pytest.mark.parametrize("method", BUDGETS)
def test_out_of_memory_means_smaller_batches_and_a_warning(method: str) -> None:
    whole, (model, ran) = problem("Llama"), crowded(5)
    target = min(whole.targets(0.03, 0.6), key=whole.exact)
    with pytest.warns(UserWarning, match="did not suffice for .* going on with") as warned:
        found = ls.estimate(model, whole.inputs, target, method=method, budget=128)
    assert len(warned) <= 5  # 64, 32, … 4: said once for each size, not once for each batch
    assert max(ran) <= 5
    plain = ls.estimate(whole.model, whole.inputs, target, method=method, budget=128)
    assert found.probability == pytest.approx(plain.probability, rel=1e-4)


def test_memory_for_not_even_one() -> None:
    whole, (model, _) = problem("Llama"), crowded(0)
    with (
        pytest.warns(UserWarning, match="did not suffice"),
        pytest.raises(ls.LongshotError, match="does not suffice for one input of 6 tokens"),
    ):
        ls.estimate(model, whole.inputs, 3, method="naive", budget=64)


def test_another_error_is_not_taken_for_one_of_memory() -> None:
    def run(here: slice) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        in_blocks(loaded("Llama").network, 40, 6, run, 64)


def test_the_allocator_of_the_cpu_is_understood() -> None:
    """What torch itself says when it asks for more than there is."""
    network: Any = DecoderNetwork(loaded("Llama").network.decoder)  # type: ignore[attr-defined]
    sizes = []

    def run(here: slice) -> None:
        sizes.append(here.stop - here.start)
        if sizes[-1] >= 20:
            torch.empty(2**60, dtype=torch.uint8)

    with pytest.warns(UserWarning, match="going on with"):
        in_blocks(network, 40, 6, run, 64)
    assert sizes == [40, 16, 16, 8]
