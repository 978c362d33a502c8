"""Plain and conditional samples of one cell combine, each with the weight of its precision."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor

from longshot.estimate import CellKey
from longshot.truth import Truth, run_span
from longshot.truth.summary import row, summarise
from longshot.truth.tally import Shard, Span, Stream, Tally
from tests.truth.toys import exact_probabilities, toy_cell

KEY = CellKey("m", "1", "i", "2", 3)


def plain(counts: list[int], half: int) -> Shard:
    total = torch.tensor(counts, dtype=torch.float64)
    samples = sum(counts)
    return Shard(Span(Stream("brute", -1, half), 0, 1), Tally(samples, samples, 0, total, total))


def prefixes(masses: list[list[float]], half: int) -> Shard:
    """A prefix for each row: the mass of every token."""
    m = torch.tensor(masses, dtype=torch.float64)
    tally = Tally(len(m), 100 * len(m), 0, m.sum(0), m.square().sum(0))
    return Shard(Span(Stream("conditional", 0, half), 0, 1), tally)


def test_a_few_prefixes_do_not_undo_many_plain_samples() -> None:
    counts = [2**31 - 5000, 5000, 0]
    many = [plain(counts, half) for half in (0, 1)]
    few = [prefixes([[1.0, 0, 0]] * 50 + [[0.999, 0, 0.001]], half) for half in (0, 1)]
    alone, both = Truth.from_shards(KEY, many), Truth.from_shards(KEY, [*many, *few])
    assert both.samples == {"brute": 2**32, "conditional": 102}
    assert both.leaves == 2**32 + 10200
    for one, other in zip((alone, *alone.halves), (both, *both.halves), strict=True):
        assert torch.allclose(one.probability[:2], other.probability[:2], rtol=1e-5)
        assert torch.allclose(one.standard_error[1], other.standard_error[1], rtol=1e-3)
    # What 2³² inputs never showed is not believed to have the probability that one prefix says.
    assert 0 < float(both.probability[2]) < 1e-6
    assert float(both.standard_error[2]) > float(both.probability[2]) / 2


def test_one_kind_alone_is_its_plain_mean_and_spread() -> None:
    masses = [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.25, 0.5, 0.25]]
    truth = Truth.from_shards(KEY, [prefixes(masses, 0)])
    m = torch.tensor(masses, dtype=torch.float64)
    assert torch.equal(truth.probability, m.sum(0) / 3)
    assert torch.allclose(truth.standard_error, m.std(0) / 3**0.5)
    nothing = Truth.from_shards(KEY, [])
    assert float(nothing.probability.sum()) == 0
    assert nothing.standard_error.isinf().all()


def test_the_order_of_the_kinds_does_not_matter_and_a_tiny_one_hardly() -> None:
    cell = toy_cell()
    shards = [run_span(cell, Span(Stream("conditional", 0, half), 0, 20)) for half in (0, 1)]
    one = [run_span(cell, Span(Stream("brute", 0, half), 0, 1)) for half in (0, 1)]
    alone, both = Truth.from_shards(cell.key, shards), Truth.from_shards(cell.key, [*shards, *one])
    turned = Truth.from_shards(cell.key, [*one, *shards])
    assert torch.allclose(both.probability, turned.probability, rtol=1e-14)
    assert torch.allclose(both.standard_error, turned.standard_error, rtol=1e-12)
    exact, seen = exact_probabilities(cell), both.probability > 0
    z = (both.probability - exact)[seen] / both.standard_error[seen]
    assert float(z.abs().max()) < 5
    rare = seen & (exact < 0.1)
    assert int(rare.sum()) > 1
    shift = (both.probability - alone.probability)[rare] / alone.standard_error[rare]
    assert float(shift.abs().max()) < 2


def outcomes(q: float, m: float, prefixes: int, inputs: int) -> tuple[Tensor, Truth, Truth, Truth]:
    """Every outcome with its chance, as if each were a token: of prefixes, of inputs, of both.

    A prefix has mass m with chance q and none otherwise, so that the token's probability is q·m.
    """
    seen, hits = (
        torch.arange(stats.binom.ppf(1 - 1e-13, n, p) + 2, dtype=torch.float64)
        for n, p in ((prefixes, q), (inputs, q * m))
    )
    chances = [
        torch.from_numpy(stats.binom.pmf(x.numpy(), n, p))
        for x, n, p in ((seen, prefixes, q), (hits, inputs, q * m))
    ]
    chance = torch.outer(*chances).flatten()
    a, b = (x.flatten() for x in torch.meshgrid(seen, hits, indexing="ij"))
    tallies = {
        "conditional": Tally(prefixes, prefixes, 0, a * m, a * m * m),
        "brute": Tally(inputs, inputs, 0, b, b),
    }
    key = KEY._replace(vocab_size=len(chance))
    alone = [Truth(key, {kind: tally}) for kind, tally in tallies.items()]
    return chance, *alone, Truth(key, tallies)


@pytest.mark.parametrize(
    ("q", "m", "inputs", "bias"),
    [
        (0.005, 0.05, 4000, 0.10),  # one sighting is expected of each kind
        (0.02, 0.05, 4000, 0.035),
        (0.02, 0.5, 400, 0.035),
        (0.1, 0.05, 4000, 0.003),
        (0.02, 0.05, 400, 0.03),  # of the prefixes alone
        (0.02, 0.05, 40_000, 0.01),  # of the inputs alone
    ],
)
def test_by_enumeration_both_are_better_than_either(
    q: float, m: float, inputs: int, bias: float
) -> None:
    """Over all outcomes: the bias, the mean squared error, and the error that is claimed."""
    p = q * m
    chance, first, second, both = outcomes(q, m, 200, inputs)
    assert float(chance.sum()) == pytest.approx(1, abs=1e-10)

    def mean(x: Tensor) -> float:
        return float(chance @ x)

    for unbiased in (first, second):
        assert mean(unbiased.probability) == pytest.approx(p, rel=1e-9)
    assert 0 <= mean(both.probability) / p - 1 < bias
    square = [mean((t.probability - p).square()) for t in (first, second, both)]
    assert square[2] < 1.05 * min(square[:2])
    if inputs * m == 200:  # as precise as each other: half the variance but for the bias
        assert square[2] < 0.8 * min(square[:2])
    claimed = mean(both.standard_error.nan_to_num(posinf=0.0).square())
    assert 0.95 < claimed / square[2] < 1.7


def test_weights_by_each_kinds_own_spread_would_be_wrong() -> None:
    """The control: the textbook's inverse variances, each from the samples that it weighs."""
    chance, first, second, both = outcomes(0.02, 0.05, 200, 4000)
    variances = [t.standard_error.nan_to_num(posinf=0.0).square() + 1e-12 for t in (first, second)]
    weights = [1 / variance for variance in variances]
    pooled = (weights[0] * first.probability + weights[1] * second.probability) / sum(weights)
    assert float(chance @ pooled) < 0.9 * 1e-3
    assert float(chance @ both.probability) > 0.99 * 1e-3


def test_a_summary_says_how_many_of_each() -> None:
    halves = [plain([900, 90, 10], 0), prefixes([[1.0, 0, 0]] * 4, 0), plain([900, 90, 10], 1)]
    summary = summarise(Truth.from_shards(KEY, halves), 0, 1)
    assert summary.samples == {"brute": 2000, "conditional": 4}
    assert "2,000 plain + 4" in row(summary)
