from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longshot.errors import LongshotError
from longshot.inputs import TokenDistribution
from tests.inputs.chi_square import FALSE_ALARM, p_value

positive = st.floats(min_value=5e-324, max_value=1.7e308)
tables = st.dictionaries(st.integers(0, 2**40), positive, min_size=1, max_size=40)


def distribution(weights: list[int | float]) -> TokenDistribution:
    return TokenDistribution.from_weights(range(10, 10 + len(weights)), weights)


@given(tables)
def test_any_weights_give_sorted_normalised_probabilities(table: dict[int, float]) -> None:
    made = TokenDistribution.from_weights(list(table), list(table.values()))
    assert made.support.tolist() == sorted(table)
    assert abs(float(made.probabilities.sum()) - 1) < 1e-12
    heaviest = max(table, key=lambda token: table[token])
    ratios = made.log_probs - made.log_probs[made.index_of(torch.tensor(heaviest))]
    expected = [math.log(table[token]) - math.log(table[heaviest]) for token in sorted(table)]
    assert ratios.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(
    st.lists(st.integers(-5, 5), max_size=6),
    st.lists(st.floats() | st.integers(-3, 3), max_size=6),
)
def test_any_support_and_weights_work_or_are_refused(
    support: list[int], weights: list[int | float]
) -> None:
    try:
        made = TokenDistribution.from_weights(support, weights)
    except LongshotError:
        return
    kept = {token: weight for token, weight in zip(support, weights, strict=True) if weight > 0}
    assert made.support.tolist() == sorted(kept)


def test_a_zero_weight_leaves_the_support() -> None:
    made = TokenDistribution.from_weights([7, 3, 5], [1, 0, 3])
    assert made.support.tolist() == [5, 7]
    torch.testing.assert_close(made.probabilities, torch.tensor([0.75, 0.25]).double())


@pytest.mark.parametrize(
    ("support", "weights", "said"),
    [
        ([1, 1], [1, 2], "Token 1 stands twice"),
        ([4], [-1], "Token 4 has weight -1.0"),
        ([4, 9], [1, math.nan], "Token 9 has weight nan"),
        ([4], [math.inf], "Token 4 has weight inf"),
        ([4], [0], "positive weight"),
        ([], [], "positive weight"),
        ([1, 2], [1], r"shapes \(2,\) and \(1,\)"),
    ],
)
def test_refusals(support: list[int], weights: list[int | float], said: str) -> None:
    with pytest.raises(LongshotError, match=said):
        TokenDistribution.from_weights(support, weights)


def test_fixed() -> None:
    made = TokenDistribution.fixed(3)
    assert made.is_fixed
    assert made.size == 1
    assert float(made.entropy) == 0
    assert made.sample(4, torch.Generator()).tolist() == [0, 0, 0, 0]


def test_entropy_is_in_nats() -> None:
    assert float(distribution([1.0] * 8).entropy) == pytest.approx(math.log(8))


def test_index_of_finds_the_support_and_nothing_else() -> None:
    made = TokenDistribution.from_weights([2, 5, 9], [1, 1, 1])
    tokens = torch.tensor([[5, 9, 2], [0, 3, 10]])
    assert made.index_of(tokens).tolist() == [[1, 2, 0], [-1, -1, -1]]


@given(
    st.lists(st.floats(0.01, 100), min_size=4, max_size=4),
    st.lists(st.floats(-1e4, 1e4), min_size=8, max_size=8),
    st.floats(1e-3, 1e3),
)
def test_a_tilt_has_the_log_ratio_of_its_scores(
    weights: list[int | float], scores: list[float], temperature: float
) -> None:
    base = distribution(weights)
    rows = torch.tensor(scores).double().view(2, 4)
    tilted = base.tilt(rows, temperature)
    assert tilted.log_probs.shape == (2, 4)
    torch.testing.assert_close(tilted.probabilities.sum(1), torch.ones(2).double())
    ratio = tilted.log_probs - base.log_probs - rows / temperature
    spread = ratio.amax(1) - ratio.amin(1)  # the normaliser only: the same for every token
    assert float(spread.max()) <= 1e-12 * (1 + max(map(abs, scores)) / temperature)


def test_a_tilt_by_nothing_is_the_distribution_itself() -> None:
    base = distribution([1.0, 2.0, 5.0])
    torch.testing.assert_close(base.tilt(torch.zeros(3), 1.0).log_probs, base.log_probs)


def test_a_tilt_of_a_batch_broadcasts() -> None:
    base = distribution([1.0, 2.0]).tilt(torch.zeros(3, 1, 2), 1.0)
    assert base.tilt(torch.ones(4, 2), 0.5).log_probs.shape == (3, 4, 2)


@pytest.mark.parametrize("scores", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_a_tilt_without_a_normaliser_is_refused(scores: list[float]) -> None:
    rows = torch.tensor([[0.0, 0.0], scores])
    with pytest.raises(LongshotError, match="tilt a token distribution to NaN"):
        distribution([1.0, 2.0]).tilt(rows, 1.0)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    with pytest.raises(LongshotError, match="temperature must be positive"):
        distribution([1.0, 2.0]).tilt(torch.zeros(2), temperature)


@given(st.lists(st.just(-math.inf) | st.floats(-800, 0), min_size=1, max_size=30))
def test_no_number_inverts_to_probability_zero(scores: list[float]) -> None:
    """Uniform numbers at and around every step of the running sums, and at both ends."""
    if max(scores) == -math.inf:
        scores.append(0.0)
    made = distribution([1.0] * len(scores)).tilt(torch.tensor(scores).double(), 1.0)
    sums = made.probabilities.cumsum(0)
    last = math.nextafter(1.0, 0.0)  # the largest number torch.rand can give
    ends = torch.tensor([0.0, last]).double()
    uniform = torch.cat([ends, sums, sums.nextafter(sums * 0), sums.nextafter(sums + 1)])
    index = made.invert(uniform.clamp(0, last))
    assert bool((made.probabilities[index] > 0).all())


def test_a_million_draws_follow_the_table(generator: torch.Generator) -> None:
    made = TokenDistribution.from_weights(range(1024), [1 / (i + 1) for i in range(1024)])
    drawn = torch.bincount(made.sample(10**6, generator), minlength=1024)
    assert p_value(drawn, made.probabilities) > FALSE_ALARM


def test_the_chi_square_test_sees_a_small_error(generator: torch.Generator) -> None:
    weights = torch.tensor([1 / (i + 1) for i in range(1024)])
    made = TokenDistribution.from_weights(range(1024), weights)
    weights[3] *= 1.1
    wrong = TokenDistribution.from_weights(range(1024), weights)
    drawn = torch.bincount(wrong.sample(10**6, generator), minlength=1024)
    assert p_value(drawn, made.probabilities) < FALSE_ALARM


def test_each_row_of_a_batch_is_drawn_from_its_own_distribution(
    generator: torch.Generator,
) -> None:
    scores = torch.tensor([[[0.0, 1.0, 2.0], [2.0, 0.0, 1.0]], [[0.0, 0.0, 0.0], [5.0, 0.0, 0.0]]])
    made = distribution([1.0, 2.0, 3.0]).tilt(scores, 1.0)
    drawn = made.sample(20_000, generator)
    assert drawn.shape == (2, 2, 20_000)
    for i in range(2):
        for j in range(2):
            seen = torch.bincount(drawn[i, j], minlength=3)
            assert p_value(seen, made.probabilities[i, j]) > FALSE_ALARM
