from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longshot.errors import LongshotError
from longshot.inputs import ProductInputs, TokenDistribution
from tests.inputs.chi_square import FALSE_ALARM, p_value

BOS = TokenDistribution.fixed(0)
WORD = TokenDistribution.from_weights([2, 5, 9], [1, 2, 5])
OTHER = TokenDistribution.from_weights([1, 2], [3, 2])
END = TokenDistribution.from_weights([1, 2], [3, 1])


def asymmetric() -> ProductInputs:
    return ProductInputs("toy", [BOS, WORD, TokenDistribution.fixed(7), WORD, END])


def test_shape() -> None:
    inputs = asymmetric()
    assert inputs.length == 5
    assert inputs.free_positions == (1, 3, 4)
    assert [group.positions for group in inputs.groups] == [(1, 3), (4,)]
    assert inputs.groups[0].distribution is WORD
    assert [inputs.fixed_token(i) for i in range(5)] == [0, None, 7, None, None]


def test_the_probabilities_of_all_inputs_sum_to_one() -> None:
    inputs = asymmetric()
    every = torch.tensor(list(itertools.product(*(d.support.tolist() for d in inputs.positions))))
    assert len(every) == 18
    assert float(inputs.log_prob(every).exp().sum()) == pytest.approx(1, abs=1e-12)


def test_draws_follow_the_joint_law(generator: torch.Generator) -> None:
    inputs = asymmetric()
    every = torch.tensor(list(itertools.product(*(d.support.tolist() for d in inputs.positions))))
    drawn = inputs.sample(100_000, generator)
    seen = torch.stack([(drawn == row).all(1).sum() for row in every])
    assert int(seen.sum()) == 100_000
    assert p_value(seen, inputs.log_prob(every).exp()) > FALSE_ALARM


def test_outside_the_support_is_minus_infinity() -> None:
    wrong = torch.tensor([[1, 2, 7, 2, 1], [0, 3, 7, 2, 1], [0, 2, 8, 2, 1], [0, 2, 7, 2, 9]])
    assert asymmetric().log_prob(wrong).tolist() == [-math.inf] * 4


@given(st.data())
def test_log_prob_is_the_sum_of_the_table_entries(data: st.DataObject) -> None:
    weights = st.dictionaries(st.integers(0, 99), st.floats(1e-9, 1e9), min_size=1, max_size=9)
    tables = data.draw(st.lists(weights, min_size=1, max_size=4))
    made = [TokenDistribution.from_weights(list(t), list(t.values())) for t in tables]
    order = data.draw(st.lists(st.sampled_from(made), min_size=1, max_size=12))
    inputs = ProductInputs("any", order)
    tokens = inputs.sample(5, torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    for row, log_prob in zip(tokens.tolist(), inputs.log_prob(tokens).tolist(), strict=True):
        entries = []
        for token, distribution in zip(row, order, strict=True):
            entry = dict(
                zip(distribution.support.tolist(), distribution.log_probs.tolist(), strict=True)
            )
            entries.append(entry[token])
        assert log_prob == pytest.approx(math.fsum(entries), rel=1e-13, abs=1e-13)


def test_draws_depend_on_the_generator_alone() -> None:
    inputs = asymmetric()
    first = inputs.sample(5000, torch.Generator().manual_seed(1))
    state = torch.random.get_rng_state()
    second = inputs.sample(5000, torch.Generator().manual_seed(1))
    assert torch.equal(first, second)
    assert torch.equal(state, torch.random.get_rng_state())
    assert not torch.equal(first, inputs.sample(5000, torch.Generator().manual_seed(2)))


def test_no_input_is_a_legal_number_of_inputs(generator: torch.Generator) -> None:
    assert asymmetric().sample(0, generator).shape == (0, 5)


def test_the_fingerprint_is_of_the_law_and_not_of_the_objects() -> None:
    again = TokenDistribution.from_weights([9, 5, 2], [50, 20, 10])
    same = ProductInputs("other name", [BOS, again, TokenDistribution.fixed(7), WORD, END])
    assert same.fingerprint == asymmetric().fingerprint
    assert len(same.fingerprint) == 16


@pytest.mark.parametrize(
    "positions",
    [
        [BOS, WORD, TokenDistribution.fixed(7), END, WORD],
        [BOS, WORD, TokenDistribution.fixed(8), WORD, END],
        [BOS, WORD, TokenDistribution.fixed(7), WORD],
        [
            BOS,
            WORD,
            TokenDistribution.fixed(7),
            WORD,
            TokenDistribution.from_weights([1, 2], [3, 2]),
        ],
    ],
)
def test_another_law_has_another_fingerprint(positions: list[TokenDistribution]) -> None:
    assert ProductInputs("toy", positions).fingerprint != asymmetric().fingerprint


def test_the_fingerprint_forgives_the_last_bit() -> None:
    nudged = TokenDistribution(WORD.support, WORD.log_probs * (1 + 1e-15))
    assert ProductInputs("x", [nudged]).fingerprint == ProductInputs("x", [WORD]).fingerprint


def test_describe() -> None:
    rows = asymmetric().describe(likeliest=2)
    assert [row.position for row in rows] == [0, 1, 2, 3, 4]
    assert rows[2].fixed == 7
    assert rows[2].entropy_bits == 0
    assert rows[1].fixed is None
    assert rows[1].size == 3
    assert [token for token, _ in rows[1].likeliest] == [9, 5]
    assert rows[1].likeliest[0][1] == pytest.approx(5 / 8)
    assert rows[4].entropy_bits == pytest.approx(0.811278, abs=1e-6)


def test_refusals() -> None:
    with pytest.raises(LongshotError, match="no position"):
        ProductInputs("empty", [])
    with pytest.raises(LongshotError, match="one distribution for each position"):
        ProductInputs("batch", [WORD.tilt(torch.zeros(2, 3), 1.0)])
