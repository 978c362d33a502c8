from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch.utils._python_dispatch import TorchDispatchMode

from longshot.errors import LongshotError
from longshot.evaluate import Decider, Evaluator, activations, winners
from longshot.evaluate.blocks import BLOCK
from longshot.events import Score, TokenIn, TokenIs
from longshot.inputs import ProductInputs, TokenDistribution, load_inputs
from longshot.models import Model, load_model
from longshot.models.gelu import GeluConfig, GeluTransformer
from longshot.names import ZOO_NAMES
from tests.toys import toy_model, toy_tokenizer

EVENTS: list[TokenIn] = [TokenIs(3), TokenIn(frozenset({1, 6, 2})), TokenIs(0)]
SCORES: list[Score] = ["logit", "gap"]


def by_kind(event: TokenIn, logits: Tensor, kind: Score) -> Tensor:
    return event.logit(logits) if kind == "logit" else event.score(logits)


def some_tokens(model: Model, rows: int, length: int = 5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.vocab_size, (rows, length), generator=generator)


def network_of(model: Model) -> GeluTransformer:
    assert isinstance(model.network, GeluTransformer)
    return model.network


@pytest.mark.parametrize("kind", SCORES)
def test_the_score_is_the_networks_own(kind: Score) -> None:
    model = toy_model(dtype=torch.float64)
    tokens, owner = some_tokens(model, 70), torch.arange(70) % 3
    found = Evaluator(model, EVENTS, kind)(tokens, owner)
    logits = network_of(model).logits(tokens)[:, -1]
    expected = torch.stack(
        [by_kind(EVENTS[i], row, kind) for row, i in zip(logits, owner.tolist(), strict=True)]
    )
    torch.testing.assert_close(found.score, expected, rtol=1e-12, atol=1e-12)
    hidden = network_of(model).hidden(tokens)[:, -1]
    torch.testing.assert_close(found.activation, hidden, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(activations(model, tokens), hidden, rtol=1e-12, atol=1e-12)
    assert found.gradient is None


@pytest.mark.parametrize("kind", SCORES)
def test_the_gradient_meets_the_embedding_as_that_of_the_one_hot_input(kind: Score) -> None:
    """gradient_onehot[i, x] = gradient_i · W_E[x], for every position and token."""
    model = toy_model(dtype=torch.float64, vocab=11)
    tokens, owner = some_tokens(model, 40), torch.arange(40) % 3
    found = Evaluator(model, EVENTS, kind)(tokens, owner, gradient=True)
    x = one_hot(tokens, model.vocab_size).double().requires_grad_()
    logits = model.network.activation(x @ model.embedding) @ model.unembedding
    logits = logits + model.unembedding_bias
    total = sum(
        by_kind(EVENTS[i], row, kind) for row, i in zip(logits, owner.tolist(), strict=True)
    )
    (expected,) = torch.autograd.grad(total, x)
    assert found.gradient is not None
    torch.testing.assert_close(found.gradient @ model.embedding.mT, expected)


@pytest.mark.parametrize("kind", SCORES)
def test_the_gradient_is_the_slope_of_the_score(kind: Score) -> None:
    model = toy_model(dtype=torch.float64)
    tokens, owner = some_tokens(model, 3), torch.arange(3)
    gradient = Evaluator(model, EVENTS, kind)(tokens, owner, gradient=True).gradient
    assert gradient is not None
    embedded, step = model.embed(tokens), 1e-5
    generator = torch.Generator().manual_seed(5)
    for _ in range(5):
        direction = torch.randn(embedded.shape, generator=generator, dtype=torch.float64)
        ends = []
        for sign in (1, -1):
            v = model.network.activation(embedded + sign * step * direction)
            logits = v @ model.unembedding + model.unembedding_bias
            ends.append(torch.stack([by_kind(EVENTS[i], logits[i], kind) for i in range(3)]))
        slope = (ends[0] - ends[1]) / (2 * step)
        expected = (gradient * direction).sum((1, 2))
        torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", SCORES)
def test_a_row_does_not_depend_on_its_neighbours(kind: Score) -> None:
    """To the last bit, for any number of rows and any place among them.

    Of a network whose rows begin at whole vectors, as those of every real one do: products of odd
    sizes, such as the toy's 17 or its two heads, round by a row's place in memory.
    """
    network = GeluTransformer(GeluConfig(2, 32, 4, 16, 64, 8, 40))
    network.initialise(torch.Generator().manual_seed(0))
    model = Model("round", network.requires_grad_(False), toy_tokenizer(40), 8)
    tokens, owner = some_tokens(model, 2 * BLOCK + 7), torch.arange(2 * BLOCK + 7) % 3
    whole = Evaluator(model, EVENTS, kind)(tokens, owner, gradient=True)
    assert whole.gradient is not None
    order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(2))
    for chosen in (order, order[:1], order[:BLOCK], order[: BLOCK + 1], torch.tensor([70])):
        alone = Evaluator(model, EVENTS, kind)(tokens[chosen], owner[chosen], gradient=True)
        assert alone.gradient is not None
        assert torch.equal(alone.score, whole.score[chosen])
        assert torch.equal(alone.activation, whole.activation[chosen])
        assert torch.equal(alone.gradient, whole.gradient[chosen])
        assert torch.equal(activations(model, tokens[chosen]), whole.activation[chosen])
        single = Evaluator(model, [EVENTS[int(owner[chosen[0]])]], kind)
        assert torch.equal(
            single(tokens[chosen[:1]], torch.tensor([0])).score, whole.score[chosen[:1]]
        )


@pytest.mark.parametrize("fixed", [0, 1, 3, 5])
def test_a_fixed_beginning_is_run_once_and_changes_nothing(fixed: int) -> None:
    model = toy_model(dtype=torch.float64)
    some = TokenDistribution.from_weights(range(8), torch.ones(8))
    positions = [TokenDistribution.fixed(i % 3) for i in range(fixed)] + [some] * (5 - fixed)
    inputs = ProductInputs("begun", positions)
    tokens = inputs.sample(70, torch.Generator().manual_seed(0))
    owner = torch.arange(70) % 3
    whole = Evaluator(model, EVENTS)(tokens, owner, gradient=True)
    begun = Evaluator(model, EVENTS, inputs=inputs)(tokens, owner, gradient=True)
    assert whole.gradient is not None
    assert begun.gradient is not None
    free = min(fixed, 4)
    torch.testing.assert_close(begun.score, whole.score, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(begun.activation, whole.activation, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(
        begun.gradient[:, free:], whole.gradient[:, free:], rtol=1e-10, atol=1e-10
    )
    assert begun.gradient[:, :free].isnan().all()


def test_only_real_rows_are_counted() -> None:
    model = toy_model()
    evaluator = Evaluator(model, EVENTS, "gap")
    evaluator(some_tokens(model, 5), torch.tensor([0, 0, 1, 1, 1]))
    assert evaluator.passes[0].reader.decider.unembedded.tolist() == [2, 3, 0]


class Largest(TorchDispatchMode):
    """The most numbers that any tensor made inside it holds."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.numbers = max(self.numbers, out.numel())
        return out


def test_no_one_hot_tensor_is_built() -> None:
    """A block's one-hot input would hold block × position × vocabulary numbers."""
    model = toy_model(vocab=60, width=4)
    evaluator, tokens = Evaluator(model, EVENTS), some_tokens(model, BLOCK)
    owner = torch.zeros(BLOCK, dtype=torch.int64)
    with Largest() as seen:
        evaluator(tokens, owner, gradient=True)
    assert 0 < seen.numbers < tokens.numel() * 60 / 2
    with Largest() as seen:  # the control
        one_hot(tokens, 60)
    assert seen.numbers >= tokens.numel() * 60


def test_numbers_that_are_not_finite_name_the_tokens() -> None:
    model = toy_model(seed=9)
    with torch.no_grad():
        network_of(model).embedding[5, 0] = math.nan
    tokens = torch.tensor([[0, 1, 2], [0, 5, 2], [0, 3, 5]])
    for call in (
        lambda: Evaluator(model, EVENTS)(tokens, torch.zeros(3, dtype=torch.int64), True),
        lambda: activations(model, tokens),
    ):
        with pytest.raises(LongshotError, match=r"toy-9 .* not finite on \[0, 5, 2\]"):
            call()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_are_scored_in_float32(dtype: torch.dtype) -> None:
    model = toy_model(dtype=dtype)
    tokens, owner = some_tokens(model, 40), torch.zeros(40, dtype=torch.int64)
    found = Evaluator(model, [TokenIs(3)])(tokens, owner, gradient=True)
    assert found.score.dtype == found.activation.dtype == torch.float32
    logits = found.activation.double() @ model.unembedding.double()
    logits += model.unembedding_bias.double()
    torch.testing.assert_close(found.score.double(), logits[:, 3], rtol=1e-5, atol=1e-5)
    assert torch.equal(winners(model, found.activation).token, logits.argmax(1))
    gap = Decider(model, [TokenIs(3)])(found.activation, owner)
    assert torch.equal(gap > 0, TokenIs(3).score(logits) > 0)


# --- the shipped models


def real_activations(model: Model, n: int, names: tuple[str, ...]) -> Tensor:
    """Activations behind every prefix of sampled inputs: each is one of the model's own."""
    pieces, network = [], network_of(model)
    for i, name in enumerate(names):
        inputs = load_inputs(name, model)
        rows = math.ceil(n / len(names) / (inputs.length - 1))
        tokens = inputs.sample(rows, torch.Generator().manual_seed(i))
        with torch.no_grad():
            hidden = [network.hidden(block)[:, 1:].flatten(0, 1) for block in tokens.split(64)]
        pieces.append(torch.cat(hidden)[: math.ceil(n / len(names))])
    return torch.cat(pieces)[:n]


def check_argmax(model: Model, v: Tensor) -> tuple[int, int]:
    """Winners, and the decisions on rare and common events, against float64; (near ties, hits)."""
    weight, bias = model.unembedding.double(), model.unembedding_bias.double()
    found = winners(model, v)
    counts = torch.bincount(found.token.clamp(min=0), minlength=model.vocab_size)
    by_count = counts.argsort(descending=True, stable=True)[: int((counts > 0).sum())]
    rare, common = by_count[-40::2].tolist(), by_count[:4].tolist()
    events = [*map(TokenIs, rare), *map(TokenIs, common)]
    events += [TokenIn(frozenset(rare[:9])), TokenIn(frozenset(common[1:3])), TokenIs(0)]
    owner = torch.arange(len(v)) % len(events)
    decider, hits = Decider(model, events), 0
    gap = decider(v, owner)
    for start in range(0, len(v), 128):  # the logits of 128 rows stay in the cache
        here = slice(start, start + 128)
        logits = v[here].double() @ weight + bias
        best = logits.amax(1)
        assert torch.equal(logits.gather(1, found.token[here, None])[:, 0], best)
        mine = logits.gather(1, decider.members[owner[here]]).amax(1) == best
        assert torch.equal(gap[here] > 0, mine)
        hits += int(mine.sum())
    assert int(decider.unembedded.sum()) < 0.5 * len(v)  # and lazily
    return found.near_ties, hits


@pytest.mark.parametrize("name", ZOO_NAMES)
def test_the_lazy_argmax_is_exact_on_the_shipped_models(name: str) -> None:
    model = load_model(name)
    v = real_activations(model, 40_000, ("camel", "english"))
    assert len(v) == 40_000
    near_ties, hits = check_argmax(model, v)
    assert near_ties < 800
    assert hits > 40
