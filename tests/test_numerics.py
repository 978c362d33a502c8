from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from longshot.numerics import (
    autocorrelated_size,
    binomial_interval,
    chain_effective_size,
    derived_generator,
    effective_sample_size,
    log_mean,
    pareto_k,
    r_hat,
    relative_error,
)

unhurried = settings(deadline=None)  # a shared machine stalls now and then
INF = math.inf
finite_logs = st.lists(st.floats(-700, 700), min_size=1, max_size=40)
any_logs = st.lists(st.one_of(st.just(-INF), st.floats(-1e4, 1e4)), min_size=1, max_size=40)


def tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- means and their errors


@unhurried
@given(any_logs)
def test_log_mean_is_the_logarithm_of_the_mean(logs: list[float]) -> None:
    with mpmath.workdps(40):
        mean = mpmath.fsum(mpmath.exp(x) for x in logs) / len(logs)
        expected = float(mpmath.log(mean)) if mean else -INF
    assert log_mean(tensor(logs)) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("function", [log_mean, relative_error, effective_sample_size, pareto_k])
def test_nan_is_an_error(function) -> None:
    with pytest.raises(FloatingPointError, match="NaN"):
        function(tensor([0.0, math.nan, -INF]))


@unhurried
@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=2, max_size=40),
    st.floats(-1e4, 1e4),
)
def test_relative_error_is_the_textbook_one(values: list[float], shift: float) -> None:
    x = tensor(values)
    error = relative_error(x.log())
    spread = float(x.std()) / math.sqrt(len(x))
    if spread <= 1e-6 * float(x.mean()):
        assert error is None or error < 2e-6  # equal values: nothing, or the last bits
        return
    assert error == pytest.approx(spread / float(x.mean()), rel=1e-6)
    assert relative_error(x.log() + shift) == pytest.approx(error, rel=1e-6)  # only ratios matter


def test_relative_error_is_none_where_nothing_tells_it() -> None:
    assert relative_error(tensor([0.0])) is None
    assert relative_error(tensor([-INF, -INF])) is None
    assert relative_error(tensor([2.0, 2.0, 2.0])) is None


@unhurried
@given(finite_logs, st.floats(-9e3, 9e3))
def test_effective_size_lies_between_one_and_n_and_ignores_scale(
    logs: list[float], shift: float
) -> None:
    size = effective_sample_size(tensor(logs))
    assert 1 - 1e-9 <= size <= len(logs) * (1 + 1e-9)
    assert effective_sample_size(tensor(logs) + shift) == pytest.approx(size, rel=1e-6)
    zeros = tensor([*logs, -INF, -INF])
    assert effective_sample_size(zeros) == pytest.approx(size, rel=1e-12)


@unhurried
@given(st.floats(-1e4, 1e4), st.integers(1, 50))
def test_equal_weights_are_worth_their_number(log_weight: float, n: int) -> None:
    assert effective_sample_size(tensor([log_weight] * n)) == pytest.approx(n, rel=1e-9)
    assert effective_sample_size(tensor([-INF] * n)) == 0


def test_effective_size_is_kishs() -> None:
    w = tensor([0.5, 2.0, 3.0, 0.0])
    assert effective_sample_size(w.log()) == pytest.approx(5.5**2 / (0.25 + 4 + 9), rel=1e-12)


# --- the tail


@pytest.mark.parametrize("shape", [-0.3, 0.1, 0.5, 0.9, 1.5])
def test_pareto_k_finds_the_shape_of_generalised_pareto_weights(shape: float) -> None:
    """400 values of the tail: the estimate's own error is (1 + k)/√400; the prior pulls by 0.03."""
    draws = stats.genpareto(shape).rvs((20, 20_000), random_state=7)
    found = tensor([pareto_k(torch.from_numpy(row).log()) for row in draws])
    error = (1 + abs(shape)) / math.sqrt(3 * math.sqrt(20_000)) / math.sqrt(20)
    assert float(found.mean()) == pytest.approx(shape, abs=4 * error + 0.04)


def test_pareto_k_of_degenerate_tails() -> None:
    assert pareto_k(tensor([1.5] * 100)) == -INF  # no tail at all
    assert pareto_k(tensor([0.0] * 95 + [1.0] * 5)) < -1  # a tail of one height: a wall
    assert pareto_k(tensor([0.0] * 98 + [1.0, 2.0])) is None  # two values above the threshold
    assert pareto_k(tensor([0.1 * i for i in range(10)])) is None  # a tail of two
    assert pareto_k(tensor([-INF] * 100)) is None
    assert pareto_k(tensor([])) is None
    two_heights = tensor([0.0] * 1400 + [1.0] * 20 + [1.3] * 80)  # a likelihood at θ = 0 itself
    assert pareto_k(two_heights) == pytest.approx(pareto_k(two_heights[:-1]), abs=0.1)
    spread = torch.linspace(-1e4, 1e4, 200, dtype=torch.float64)
    assert pareto_k(spread) == INF  # every value is nothing beside the next


@unhurried
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=8), st.integers(1, 60), st.integers())
def test_pareto_k_is_never_nan(values: list[float], n: int, seed: int) -> None:
    """Any spread of values with any number of ties."""
    chosen = torch.randint(len(values), (n,), generator=derived_generator(seed))
    logs = tensor(values)[chosen]
    k = pareto_k(logs)
    assert k is None or not math.isnan(k)
    shuffled = logs[torch.randperm(n, generator=derived_generator(seed, "order"))]
    assert pareto_k(shuffled) == k


def test_pareto_k_does_not_depend_on_scale(generator: torch.Generator) -> None:
    logs = torch.randn(500, generator=generator, dtype=torch.float64) * 2
    k = pareto_k(logs)
    for shift in (-1e4, 300.0, 1e4):
        assert pareto_k(logs + shift) == pytest.approx(k, rel=1e-6)


# --- intervals


@pytest.mark.parametrize("n", [1, 7, 40, 120])
def test_the_binomial_interval_covers_at_every_probability(n: int) -> None:
    """Coverage by enumeration of all outcomes, at a grid of probabilities and just off the ends."""
    intervals = [binomial_interval(hits, n) for hits in range(n + 1)]
    ends = [x + d for low, high in intervals for x in (low, high) for d in (-1e-9, 1e-9)]
    for p in [*(i / 97 for i in range(98)), *(x for x in ends if 0 <= x <= 1)]:
        law = stats.binom(n, p).pmf(range(n + 1))
        covered = sum(q for q, (low, high) in zip(law, intervals, strict=True) if low <= p <= high)
        assert covered >= 0.95 - 1e-9


def test_the_binomial_interval_at_the_ends() -> None:
    assert binomial_interval(0, 100) == (0.0, pytest.approx(1 - 0.025 ** (1 / 100)))
    assert binomial_interval(100, 100) == (pytest.approx(0.025 ** (1 / 100)), 1.0)
    low, high = binomial_interval(3, 10, level=0.5)
    assert binomial_interval(3, 10)[0] < low < 0.3 < high < binomial_interval(3, 10)[1]


# --- chains


def test_r_hat_tells_chains_that_agree_from_those_that_do_not(generator: torch.Generator) -> None:
    draws = torch.randn(8, 400, generator=generator, dtype=torch.float64)
    assert r_hat(draws) == pytest.approx(1, abs=0.02)
    shifted = draws + torch.arange(8)[:, None]
    assert r_hat(shifted) > 1.2
    drifting = draws + torch.linspace(0, 4, 400, dtype=torch.float64)
    assert r_hat(drifting) > 1.2  # the halves of each chain disagree
    assert r_hat(torch.ones(3, 10, dtype=torch.float64)) == 1
    assert r_hat(torch.ones(3, 10, dtype=torch.float64) * torch.arange(3)[:, None]) == INF
    assert math.isnan(r_hat(draws[:, :3]))


def test_r_hat_is_gelman_and_rubins() -> None:
    chains = tensor([1.0, 2.0, 4.0, 3.0, 0.0, 1.0, 5.0, 2.0]).reshape(2, 4)
    halves = chains.reshape(4, 2)
    within, between = halves.var(1).mean(), 2 * halves.mean(1).var()
    expected = torch.sqrt((within / 2 + between / 2) / within)
    assert r_hat(chains) == pytest.approx(float(expected), rel=1e-12)


def test_the_size_of_chains_is_that_of_their_independent_draws(generator: torch.Generator) -> None:
    """Each draw repeated ten times is worth one; 64 chains know it within 4·√(2/63)."""
    draws = torch.randn(64, 100, generator=generator, dtype=torch.float64)
    assert autocorrelated_size(draws.repeat_interleave(10, 1)) == pytest.approx(6400, rel=0.72)
    assert autocorrelated_size(torch.ones(4, 10, dtype=torch.float64)) == 40
    assert math.isnan(autocorrelated_size(draws[:1]))


def test_repeated_hits_are_worth_one(generator: torch.Generator) -> None:
    """Kish's size takes every state for a draw of its own: ten times too many here."""
    log_weight = torch.randn(64, 100, generator=generator, dtype=torch.float64)
    log_weight[torch.rand(64, 100, generator=generator) < 0.7] = -INF
    once = effective_sample_size(log_weight.flatten())
    repeated = log_weight.repeat_interleave(10, 1)
    assert effective_sample_size(repeated.flatten()) == pytest.approx(10 * once)
    assert chain_effective_size(repeated) == pytest.approx(once, rel=0.5)
    assert chain_effective_size(log_weight) == pytest.approx(once, rel=0.5)
    assert chain_effective_size(torch.full((4, 10), -INF, dtype=torch.float64)) == 0


# --- derived randomness


def first(*parts: str | int) -> list[int]:
    return torch.randint(2**62, (4,), generator=derived_generator(*parts)).tolist()


@unhurried
@given(
    st.lists(st.one_of(st.integers(), st.text(max_size=4)), max_size=3),
    st.lists(st.one_of(st.integers(), st.text(max_size=4)), max_size=3),
)
def test_generators_agree_exactly_when_their_parts_do(
    a: list[str | int], b: list[str | int]
) -> None:
    same = [str(part) for part in a] == [str(part) for part in b]
    assert (first(0, *a) == first(0, *b)) == same


def test_parts_do_not_run_together() -> None:
    seen = [first(0, "a", "bc"), first(0, "ab", "c"), first(0, "abc"), first(0, "a\x1fbc")]
    seen += [first(0, "1:a"), first(0, 1, "a"), first(1, "a"), first(11, "a"), first(1, "1", "a")]
    assert len({tuple(row) for row in seen}) == len(seen)


def test_a_generator_holds_more_than_torchs_32_bits_of_seed() -> None:
    """The control: by torch's own seeding 2¹⁷ streams hold about 2 equal ones, as 2³³ pairs do."""
    low, high = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5 + 2**32)
    assert torch.equal(torch.rand(9, generator=low), torch.rand(9, generator=high))
    state = derived_generator(0, "a").get_state()[24 : 24 + 8 * 624].view(torch.int64)
    assert len(set(state.tolist())) == 624
    assert 0 <= int(state.min()) < 2**28 < 2**32 - 2**28 < int(state.max()) < 2**32


def test_derived_numbers_are_uniform_and_independent() -> None:
    """64 streams of 4096: chi-square over 256 cells, and over pairs of neighbouring streams."""
    x = torch.stack([torch.rand(4096, generator=derived_generator(1, i)) for i in range(64)])
    cells = (x.flatten() * 256).long().bincount()
    assert stats.chisquare(cells.numpy()).pvalue > 1e-6
    pairs = ((x[:-1] * 16).long() * 16 + (x[1:] * 16).long()).flatten().bincount()
    assert stats.chisquare(pairs.numpy()).pvalue > 1e-6


def test_a_generator_is_the_same_in_every_process_and_leaves_the_global_one_alone() -> None:
    """Held to numbers written here: stored results could not be rerun if they changed."""
    before = torch.get_rng_state()
    assert first(3, "model", "inputs", 7)[:2] == [244691865428678197, 3045177773550005860]
    assert torch.equal(torch.get_rng_state(), before)


@settings(max_examples=20, deadline=None)
@given(st.integers(-(2**70), 2**70))
def test_any_whole_number_is_a_seed(seed: int) -> None:
    assert first(seed) == first(seed) != first(seed + 1)
