"""QLD as a method: on a model, at the edges, and where nothing can be searched for."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.errors import LongshotError
from longshot.estimate import Estimate, Job
from longshot.events import TokenIs
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.methods import pairs
from longshot.methods.pairs import Pairs, Split, Strongest, acceptance_intervals, count_pairs, split
from longshot.methods.qld import NO_INTERIOR, NO_PAIR, NOT_RARE, QLD, Shared, share, strongest
from longshot.methods.shortest import (
    Region,
    column,
    conditional_mean,
    random_constraint_projection,
    shortest_vector,
)
from longshot.models import Model
from tests.methods.test_qld import everything, unknown
from tests.toys import toy_model, toy_tokenizer

VOCAB, N = 20, 150


@pytest.fixture(scope="module")
def model() -> Model:
    return toy_model(3, vocab=VOCAB, width=8)


@pytest.fixture(scope="module")
def inputs() -> ProductInputs:
    weights = torch.rand(VOCAB - 1, generator=torch.Generator().manual_seed(0)) + 0.05
    wide = TokenDistribution.from_weights(range(1, VOCAB), weights)
    return ProductInputs("toy", [TokenDistribution.fixed(0), wide, wide, wide])


@pytest.fixture(scope="module")
def answers(model: Model, inputs: ProductInputs) -> list[Estimate]:
    """With the usual settings, for every token."""
    return ls.estimate_many(model, inputs, range(VOCAB), method="qld", budget=N)


def run(model: Model, inputs: ProductInputs, target: int, **settings: object) -> Estimate:
    return ls.estimate(model, inputs, target, method="qld", budget=N, **settings)


def test_the_method_counts_all_pairs(model: Model, inputs: ProductInputs) -> None:
    """Each pair unembedded on its own, in float64."""
    shared = share(Job(model, inputs, (TokenIs(1),), N), 1e-6)
    A, mu, u = shared.whitened.A, shared.whitened.mu, shared.whitened.u
    answers = ls.estimate_many(
        model, inputs, range(VOCAB), method="qld", budget=N, direction="column"
    )
    seen = 0
    for target, answer in enumerate(answers):
        if not answer.statistics:
            continue
        pulled_back = A.mT @ model.unembedding[:, target].double()
        d = pulled_back / pulled_back.norm()
        a = u @ d
        v = ((a[:, None] - a[None])[..., None] * d + u[None]) @ A.mT + mu
        logits = v @ model.unembedding.double() + model.unembedding_bias.double()
        two = logits.topk(2)
        wins = (two.indices[..., 0] == target) & (two.values[..., 0] > two.values[..., 1])
        count = int(wins.sum())
        assert answer.statistics["pairs"] == count
        if count:
            assert answer.log_probability == pytest.approx(math.log(count / N**2), abs=1e-12)
            seen += 1
    assert seen >= 4


def test_the_screen_changes_nothing(
    model: Model, inputs: ProductInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strongest tokens of each sample only save work, however few are known."""
    monkeypatch.setattr(pairs, "ROWS", 40)
    monkeypatch.setattr(pairs, "RIVALS", 1)
    shared = share(Job(model, inputs, (TokenIs(1),), N), 1e-6)
    differs = 0
    for target in range(VOCAB):
        region = Region(shared.whitened.A, shared.rows, shared.mean_logits, target)
        parts = split(region, shared.whitened.u, column(region) / column(region).norm())

        def count(top: Strongest, region: Region = region, parts: Split = parts) -> Pairs:
            return count_pairs(parts.a, acceptance_intervals(region, parts, everything(N), top))

        exact = count(unknown(N))
        tops = [strongest(model, shared.drawn.values, known) for known in (1, 3, VOCAB)]
        assert all(count(top) == exact for top in tops)
        # The negative control: a bound that is too low leaves out rivals that matter.
        differs += count(tops[0]._replace(others=tops[0].others - 5)) != exact
    assert differs >= 3


def vector(
    direction: str, region: Region, u: Tensor, inward: Tensor, generator: torch.Generator
) -> Tensor:
    """The direction of that name, as `shortest.py` finds it."""
    if direction == "projection":
        return random_constraint_projection(region, 200, generator)
    return u if direction == "shortest" else conditional_mean(region, u, inward, 40, generator)


def count(region: Region, shared: Shared, d: Tensor) -> int:
    """Pairs along a direction, without what saves work."""
    parts = split(region, shared.whitened.u, d / d.norm())
    intervals = acceptance_intervals(region, parts, everything(N), shared.top)
    return count_pairs(parts.a, intervals).inside


@pytest.mark.parametrize("direction", ["shortest", "projection", "conditional-mean"])
def test_pairs_are_counted_along_the_direction_that_is_named(
    model: Model, inputs: ProductInputs, direction: str
) -> None:
    """The count along the vector that `shortest.py` finds is the method's, and only that one."""
    settings = {"direction": direction, "repetitions": 200, "sweeps": 40}
    shared = share(Job(model, inputs, (TokenIs(0),), N), QLD().epsilon)
    seen = differs = 0
    for target in range(VOCAB):
        region = Region(shared.whitened.A, shared.rows, shared.mean_logits, target)
        u = shortest_vector(region)
        if u is None or not u.any() or (inward := region.inward(u)) is None or seen == 5:
            continue
        generator = Job(model, inputs, (), N).generator("qld", TokenIs(target))
        pairs = count(region, shared, vector(direction, region, u, inward, generator))
        assert run(model, inputs, target, **settings).statistics["pairs"] == pairs
        differs += pairs != count(region, shared, column(region))
        seen += 1
    assert differs >= 3


def test_dependent_halves_are_doubted() -> None:
    """One scale for all of an activation: where one part is far out, so is the other."""
    generator = torch.Generator().manual_seed(0)
    model, vocab = Scales(vocab=30, width=4, generator=generator), 30
    wide = TokenDistribution.from_weights(range(vocab), torch.ones(vocab))
    inputs = ProductInputs("scales", [wide, wide, wide])
    whole = Model("scales", model, toy_tokenizer(vocab), 8)
    answers = ls.estimate_many(whole, inputs, range(vocab), method="qld", budget=2**12)
    doubted = [answer for answer in answers if "are dependent" in str(answer.warnings)]
    assert doubted
    for answer in doubted:
        z = max(abs(answer.statistics["level_z"]), abs(answer.statistics["spread_z"]))
        assert z > 3
    assert len(doubted) < len(answers)


@pytest.mark.parametrize("direction", ["shortest", "projection", "column", "conditional-mean"])
def test_every_direction_answers(
    model: Model, inputs: ProductInputs, answers: list[Estimate], direction: str
) -> None:
    far = [a.statistics.get("shortest", 0.0) or math.inf for a in answers]
    nearest = far.index(min(far))  # but for the mean's own
    settings = {"direction": direction, "repetitions": 100, "sweeps": 4}
    answer = run(model, inputs, nearest, **settings)
    assert answer == without_seconds(run(model, inputs, nearest, **settings), answer)
    assert answer.statistics["shortest"] > 0
    assert not answer.is_two_sided
    assert "sampling noise" in str(answer.no_interval)
    assert answer.settings["direction"] == direction
    assert Estimate.from_dict(answer.to_dict()) == answer


def without_seconds(answer: Estimate, like: Estimate) -> Estimate:
    return replace(answer, cost=like.cost, shared_cost=like.shared_cost)


def test_neighbours_change_nothing(
    model: Model, inputs: ProductInputs, answers: list[Estimate]
) -> None:
    state = torch.get_rng_state()
    for target in (2, 7, 11):
        alone, beside = run(model, inputs, target), answers[target]
        assert without_seconds(alone, beside) == beside
        assert alone.cost.macs == beside.cost.macs
        assert alone.cost.forwards == 0
        assert alone.shared_cost.forwards == N
    assert torch.equal(torch.get_rng_state(), state)


def test_hits_are_those_of_plain_sampling(
    model: Model, inputs: ProductInputs, answers: list[Estimate]
) -> None:
    plain = ls.estimate_many(model, inputs, range(VOCAB), method="naive", budget=N)
    assert [a.hits for a in answers] == [a.hits for a in plain]
    assert [a.witnesses for a in answers] == [a.witnesses for a in plain]
    assert all(("extrapolation" in str(a.warnings)) == (a.hits == 0) for a in answers)


def test_a_usual_event_is_said_not_to_be_rare(answers: list[Estimate]) -> None:
    (usual,) = [a for a in answers if NOT_RARE in a.warnings]
    assert usual.hits is not None
    assert usual.probability == pytest.approx(usual.hits / N, rel=0.3)


def test_fixed_inputs_are_certain(model: Model) -> None:
    inputs = ProductInputs("fixed", [TokenDistribution.fixed(t) for t in (0, 4, 9)])
    answers = ls.estimate_many(model, inputs, range(VOCAB), method="qld", budget=64)
    certain = [a for a in answers if a.log_probability == 0]
    assert len(certain) == 1
    assert certain[0].hits == 64
    others = [a for a in answers if a is not certain[0]]
    assert all(a.log_probability == -math.inf and a.standard_error is None for a in others)
    assert all(NO_PAIR in a.warnings or NO_INTERIOR in a.warnings for a in others)


def test_one_sample_is_enough_not_to_fail(model: Model, inputs: ProductInputs) -> None:
    (answer,) = ls.estimate_many(model, inputs, [5], method="qld", budget=1)
    assert answer.log_probability in (0.0, -math.inf)
    assert answer.standard_error is None


def test_a_token_that_cannot_win(inputs: ProductInputs) -> None:
    model = toy_model(3, vocab=VOCAB, width=8)
    model.unembedding[:, 5] = model.unembedding[:, [2, 3, 4]].mean(1)
    model.unembedding_bias[5] = model.unembedding_bias[[2, 3, 4]].min() - 1
    model = toy_like(model)
    answer = run(model, inputs, 5)
    assert answer.log_probability == -math.inf
    assert answer.standard_error is None
    assert NO_INTERIOR in answer.warnings


def toy_like(model: Model) -> Model:
    """The same network behind new caches."""
    return Model(model.name, model.network, model.tokenizer, model.context)


def test_huge_logits_change_nothing(inputs: ProductInputs, answers: list[Estimate]) -> None:
    """Logits of ±1e4: the argmax is the same, so is the count on the same samples."""
    model = toy_model(3, vocab=VOCAB, width=8)
    model.unembedding.mul_(4096)
    model.unembedding_bias.mul_(4096)
    huge = SameSamples(model.name, model.network, model.tokenizer, model.context)
    for target in (2, 7, 11, 13):
        answer = run(huge, inputs, target)
        assert answer.log_probability == answers[target].log_probability
        assert answer.standard_error == answers[target].standard_error


class SameSamples(Model):
    """A model that draws what the toy draws."""

    fingerprint = toy_model(3, vocab=VOCAB, width=8).fingerprint


def test_mistakes_are_said_before_anything_runs(model: Model, inputs: ProductInputs) -> None:
    with pytest.raises(LongshotError, match="qld needs an event of a single token"):
        ls.estimate(model, inputs, [1, 2], method="qld")
    with pytest.raises(LongshotError, match=r"direction of qld named 'shorter'.*'shortest'"):
        ls.estimate(model, inputs, 1, method="qld", direction="shorter")
    with pytest.raises(LongshotError, match="epsilon must be positive"):
        ls.estimate(model, inputs, 1, method="qld", epsilon=0)


class HashNetwork:
    """Activations that are a pseudo-random function of the input: nothing can be searched for."""

    def __init__(self, vocab: int, width: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.embedding = torch.randn(vocab, 4, generator=generator)
        self.unembedding = torch.randn(width, vocab, generator=generator)
        self.unembedding_bias = None
        self._mix = torch.randn(4 * 3, width, generator=generator, dtype=torch.float64)

    def activation(self, embedded: Tensor) -> Tensor:
        chaos = 1e6 * torch.sin(1e4 * (embedded.flatten(1).double() @ self._mix))
        return torch.special.ndtri((chaos - chaos.floor()).clamp(1e-9, 1 - 1e-9)).float()

    def macs(self, positions: int) -> int:
        return self._mix.numel()

    def backward_macs(self, positions: int) -> int:
        return self._mix.numel()


class Scales:
    """Gaussian directions times a scale that the last token alone decides: tails come together."""

    def __init__(self, vocab: int, width: int, generator: torch.Generator) -> None:
        self.embedding = torch.randn(vocab, width, generator=generator)
        self.unembedding = torch.randn(width, vocab, generator=generator)
        self.unembedding_bias = torch.randn(vocab, generator=generator)
        self._scale = torch.linspace(0, 3, vocab).exp()

    def activation(self, embedded: Tensor) -> Tensor:
        last = torch.cdist(embedded[:, -1], self.embedding).argmin(1)
        return embedded[:, :-1].sum(1) * self._scale[last, None] / 10

    def macs(self, positions: int) -> int:
        return 1

    def backward_macs(self, positions: int) -> int:
        return 1


def test_extrapolation_is_right_where_nothing_can_be_searched() -> None:
    """Gaussian activations without structure: QLD sees what none of its samples shows.

    The truth is the share among all 40³ inputs, itself a draw of the hash: 1/hits is its variance.
    """
    vocab, n = 40, 2**10
    model = Model("hash", HashNetwork(vocab, 5), toy_tokenizer(vocab), 3)
    letters = TokenDistribution.from_weights(range(vocab), torch.ones(vocab))
    inputs = ProductInputs("letters", [letters] * 3)
    everything = torch.tensor(list(itertools.product(range(vocab), repeat=3)))
    v = model.network.activation(model.embed(everything))
    wins = torch.bincount((v @ model.unembedding).argmax(1), minlength=vocab)
    targets = [t for t in range(vocab) if 4 <= wins[t] <= len(everything) / n]
    assert len(targets) >= 3
    answers = ls.estimate_many(model, inputs, targets, method="qld", budget=n)
    unseen = [(t, a) for t, a in zip(targets, answers, strict=True) if not a.hits]
    assert len(unseen) >= 2
    for target, answer in unseen:
        assert answer.standard_error is not None
        relative = answer.standard_error / answer.probability
        error = answer.log_probability - math.log(wins[target] / len(everything))
        assert abs(error) < 4 * math.sqrt(relative**2 + 1 / float(wins[target]))
    searched = [target for target, _ in unseen]
    for method in ("itgis", "mhis"):
        found = ls.estimate_many(model, inputs, searched, method=method, budget=n)
        assert all(answer.probability < 1e-6 for answer in found)  # no hit, or one of no weight
