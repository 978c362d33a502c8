"""What every method promises, as checks that anybody can run on their own.

    from longshot.testing import check_method
    check_method("mine")            # raises an AssertionError that says what does not hold

They run on toys: models of a handful of tokens on which every input can be listed, so that
probabilities are known exactly. Everything in them is random and nothing is symmetric: biases and
layer-norm gains are drawn too, and no two sizes agree, so that a flipped sign cannot hide.
"""

from __future__ import annotations

import itertools
import json
import math
import string
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import tokenizers
import torch
from jaxtyping import Float64, Int64
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from longshot.api import estimate, estimate_many
from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.methods import Method, make_method, settings_of
from longshot.models import Model, Tokenizer
from longshot.models.gelu import GeluConfig, GeluTransformer

BUDGET = 768
LETTERS = string.ascii_letters + string.digits
COMMON, SEEN, RARE, NEVER = 11, 8, 4, 1
"""Tokens of the enumerated toy 6: from one that is often the argmax to one that never is."""


def toy_tokenizer(vocab: int = 8) -> Tokenizer:
    """A byte-level tokenizer: token 0 is BOS, then one token a letter: a is 1, b is 2, …"""
    symbols = LETTERS[: vocab - 1]
    assert len(symbols) == vocab - 1, f"a toy vocabulary has at most {len(LETTERS) + 1} tokens"
    ids = {"<|BOS|>": 0} | {symbol: i for i, symbol in enumerate(symbols, start=1)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|BOS|>"])
    return Tokenizer(backend)


def toy_network(
    seed: int = 0,
    *,
    layers: int = 2,
    vocab: int = 8,
    width: int = 8,
    context: int = 8,
    attention_only: bool = False,
    dtype: torch.dtype = torch.float32,
) -> GeluTransformer:
    """A network of two heads of three with every parameter drawn from the seed."""
    mlp_width = 0 if attention_only else 2 * width + 1
    network = GeluTransformer(GeluConfig(layers, width, 2, 3, mlp_width, context, vocab))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.normal_(0, 0.5, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1)
    return network.to(dtype).requires_grad_(False)


def toy_model(seed: int = 0, *, vocab: int = 8, context: int = 8, **sizes: Any) -> Model:
    """A whole model of a handful of tokens; `sizes` are those of `toy_network`."""
    network = toy_network(seed, vocab=vocab, context=context, **sizes)
    return Model(f"toy-{seed}", network, toy_tokenizer(vocab), context)


class Enumerated(NamedTuple):
    """A toy model and inputs with all inputs, their probabilities and their outputs."""

    model: Model
    inputs: ProductInputs
    tokens: Int64[Tensor, "input position"]
    probability: Float64[Tensor, " input"]
    output: Int64[Tensor, " input"]

    def exact(self, token: int) -> float:
        return float(self.probability[self.output == token].sum())

    def targets(self, low: float, high: float) -> list[int]:
        """The tokens whose probability lies between the two."""
        return [t for t in range(self.model.vocab_size) if low <= self.exact(t) <= high]


@cache
def enumerated(seed: int = 1, dtype: torch.dtype = torch.float64) -> Enumerated:
    """Four free positions of two kinds, between and before fixed ones."""
    model = toy_model(seed, vocab=12, layers=2, width=8, dtype=dtype)
    model.embedding.mul_(3)  # tokens matter more than positions, as in a trained model
    generator = torch.Generator().manual_seed(seed)

    def some(support: list[int]) -> TokenDistribution:
        weights = torch.rand(len(support), generator=generator, dtype=torch.float64) ** 2
        return TokenDistribution.from_weights(support, weights + 0.01)

    wide, narrow = some([1, 2, 3, 5, 7, 9, 11]), some([0, 4, 6, 8, 10])
    positions = [TokenDistribution.fixed(0), wide, narrow, TokenDistribution.fixed(3), wide, narrow]
    inputs = ProductInputs("toy", positions)
    tokens = torch.tensor(list(itertools.product(*(d.support.tolist() for d in positions))))
    activation = model.network.activation(model.embed(tokens))
    logits = activation @ model.unembedding + model.unembedding_bias
    return Enumerated(model, inputs, tokens, inputs.log_prob(tokens).exp(), logits.argmax(1))


def check_method(method: str | Method, **settings: Any) -> None:
    """Run every check on a method, given itself or by its name and settings.

    The first promise that is not kept is raised as an AssertionError with a sentence.
    """
    made = make_method(method, **settings)
    for check in CHECKS:
        check(made)


def _ask(method: Method, event: int, seed: int = 0) -> Estimate:
    toy = enumerated(6)
    return estimate(toy.model, toy.inputs, event, method=method, budget=BUDGET, seed=seed)


def timeless(answer: Estimate) -> Estimate:
    """An estimate without its cost: seconds vary, and what is shared depends on the neighbours."""
    return replace(answer, cost=Cost(), shared_cost=Cost())


def _require(holds: object, method: Method, sentence: str) -> None:
    if not holds:
        raise AssertionError(f"{method.name}: {sentence}")


def same_seed_same_estimate(method: Method) -> None:
    """A seed decides everything."""
    first, second, other = (_ask(method, SEEN, seed) for seed in (3, 3, 4))
    _require(timeless(first) == timeless(second), method, "the same seed gave two estimates")
    _require(first.cost.macs == second.cost.macs, method, "the same seed had two costs")
    _require(timeless(first) != timeless(other), method, "two seeds gave the same estimate")


def neighbours_do_not_matter(method: Method) -> None:
    """To the last bit, in a model whose widths are multiples of 16 as real ones' are."""
    network = GeluTransformer(GeluConfig(2, 32, 2, 16, 64, 8, 32))
    network.initialise(torch.Generator().manual_seed(0))
    model = Model("small", network.requires_grad_(False), toy_tokenizer(32), context=8)
    inputs, events = enumerated(6).inputs, [COMMON, RARE, 6, 0]
    together = estimate_many(model, inputs, events, method=method, budget=BUDGET)
    found = sum(answer.probability > 0 for answer in together)
    _require(found > 1, method, "fewer than two of four targets were found on an easy toy")
    for event, answer in zip(events, together, strict=True):
        alone = estimate(model, inputs, event, method=method, budget=BUDGET)
        same = timeless(answer) == timeless(alone)
        _require(same, method, f"target {event} has another estimate beside others than alone")


def the_budget_is_kept(method: Method) -> None:
    """Forward calls stay within the budget, and what was spent is told."""
    answer = _ask(method, SEEN)
    spent = answer.cost + answer.shared_cost
    _require(0 < spent.forwards <= BUDGET, method, f"{spent.forwards} calls of {BUDGET}")
    _require(spent.macs > 0 and spent.seconds > 0, method, "no arithmetic or no time is counted")


def global_randomness_is_untouched(method: Method) -> None:
    """Nothing is seeded and nothing is drawn from torch's own generator."""
    before = torch.get_rng_state()
    _ask(method, SEEN)
    _require(torch.equal(before, torch.get_rng_state()), method, "torch's random state changed")


def everything_survives_a_round_trip(method: Method) -> None:
    """Settings and estimates are plain values."""
    plain = json.loads(json.dumps(settings_of(method)))
    _require(type(method)(**plain) == method, method, "its settings change on the way to JSON")
    for event in (SEEN, NEVER):
        answer = _ask(method, event)
        text = json.dumps(answer.to_dict(), allow_nan=False)
        same = Estimate.from_dict(json.loads(text)) == answer
        _require(same, method, "its estimate changes on the way to JSON")


def errors_are_told(method: Method) -> None:
    """Every probability has an interval that holds it, or the reason why not."""
    for event in (COMMON, SEEN, RARE, NEVER):
        answer = _ask(method, event)
        error, p = answer.standard_error, answer.probability
        _require(error is None or error >= 0, method, f"a standard error of {error}")
        _require(p > 0 or answer.warnings, method, "nothing was found and no warning says so")
        if answer.is_two_sided:
            low, high = answer.interval
            _require(0 <= low <= p <= high <= 1, method, f"{low} ≤ {p} ≤ {high} does not hold")


def what_never_occurs_is_not_seen(method: Method) -> None:
    """An event of probability zero has neither hits nor witnesses."""
    answer = _ask(method, NEVER)
    _require(not answer.hits and not answer.witnesses, method, "it saw what never occurs")


def witnesses_produce_the_target(method: Method) -> None:
    """Each is an input of its own, with its own probability, that has the target as output."""
    toy, answer = enumerated(6), _ask(method, COMMON)
    for witness in answer.witnesses:
        row = (toy.tokens == torch.tensor(witness.tokens)).all(1)
        _require(toy.output[row].tolist() == [COMMON], method, f"{witness} is no witness")
        log_p = math.log(float(toy.probability[row]))
        known = witness.log_prob
        _require(known is None or abs(known - log_p) < 1e-9, method, f"{witness}: log p = {log_p}")
    distinct = {witness.tokens for witness in answer.witnesses}
    _require(len(distinct) == len(answer.witnesses), method, "a witness stands twice")


def fixed_inputs_are_right_or_refused(method: Method) -> None:
    """Where every position is fixed the answer is 0 or 1, or one sentence."""
    model, tokens = enumerated(6).model, [0, 1, 4, 3, 5, 6]
    inputs = ProductInputs("one", [TokenDistribution.fixed(token) for token in tokens])
    activation = model.network.activation(model.embed(torch.tensor([tokens])))
    winner = int((activation @ model.unembedding + model.unembedding_bias).argmax())
    try:
        answers = estimate_many(
            model, inputs, [winner, (winner + 1) % 12], method=method, budget=BUDGET
        )
    except LongshotError as error:
        _require(len(str(error).splitlines()) == 1, method, f"more than a sentence: {error}")
    else:
        found = [answer.probability for answer in answers]
        _require(abs(found[0] - 1) < 1e-6 and found[1] == 0, method, f"{found}, not [1, 0]")


CHECKS: tuple[Callable[[Method], None], ...] = (
    same_seed_same_estimate,
    neighbours_do_not_matter,
    the_budget_is_kept,
    global_randomness_is_untouched,
    everything_survives_a_round_trip,
    errors_are_told,
    what_never_occurs_is_not_seen,
    witnesses_produce_the_target,
    fixed_inputs_are_right_or_refused,
)
