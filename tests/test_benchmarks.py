"""The benchmarks' own machinery; their figures belong to `make bench`."""

from __future__ import annotations

import itertools

import pytest
import torch

from benchmarks import known
from benchmarks.__main__ import registered, run
from benchmarks.literal import LiteralMHIS, gradient_of
from benchmarks.timing import compare, compare_least
from longshot.errors import LongshotError
from longshot.inputs import ProductInputs, TokenDistribution
from tests.toys import toy_model


def test_the_ratio_is_of_slow_to_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the two functions move."""
    now = [0.0]

    def takes(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("benchmarks.timing.time.perf_counter", lambda: now[0])
    measured = compare(lambda: takes(8.0), lambda: takes(2.0), pairs=5)
    assert (measured.ratio, measured.slow_seconds, measured.fast_seconds) == (4, 8, 2)


def test_the_least_turn_of_each_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slow, fast = [0.0], iter([9.0, 8.0, 6.0, 9.0]), iter([9.0, 2.0, 5.0, 4.0])

    def takes(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("benchmarks.timing.time.process_time", lambda: now[0])
    measured = compare_least(lambda: takes(next(slow)), lambda: takes(next(fast)), turns=3)
    assert (measured.ratio, measured.slow_seconds, measured.fast_seconds) == (3, 6, 2)


def test_functions_take_turns_after_one_warm_up() -> None:
    calls: list[str] = []
    compare(lambda: calls.append("slow"), lambda: calls.append("fast"), pairs=3)
    assert calls == ["slow", "fast"] * 4


def test_a_module_with_a_main_is_registered_and_helpers_are_not() -> None:
    assert "model_paths" in registered()
    assert "timing" not in registered()


def test_a_misspelt_benchmark_gets_the_nearest() -> None:
    with pytest.raises(LongshotError, match="did you mean 'model_paths'"):
        run(["model_path"])


def test_the_yardstick_knows_its_state_without_evaluating_it_again() -> None:
    model = toy_model()
    some = TokenDistribution.from_weights([1, 2, 3, 5], [4, 3, 2, 1])
    inputs = ProductInputs("toy", [TokenDistribution.fixed(0), *[some] * 3])
    walk = LiteralMHIS(model, inputs, 3, 1.0, chains=6)
    before = walk.tokens
    for _ in range(8):
        walk.step()
    assert not torch.equal(walk.tokens, before)
    for kept, fresh in zip(walk.state, gradient_of(model, walk.tokens, 3), strict=True):
        assert torch.allclose(kept, fresh, atol=1e-5)


def test_a_scored_problem_is_as_rare_as_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of matrices against the sum over all inputs; another threshold is far off."""
    for name, size in {"LENGTH": 4, "VOCAB": 5, "LAST": 6, "RARE_FIRST": 0.3}.items():
        monkeypatch.setattr(known, name, size)
    monkeypatch.setattr(known, "LOW", 1e-3)
    monkeypatch.setattr(known, "HIGH", 1e-2)
    for seed in range(5):
        problem = known.scored(seed)
        network = problem.model.network
        assert isinstance(network, known.Scored)
        assert network.effects.second.any()
        tokens = torch.tensor(list(itertools.product(range(5), range(5), range(5), range(6))))
        p, lead = (
            problem.inputs.log_prob(tokens).exp(),
            network.activation(problem.model.embed(tokens)),
        )
        assert float(p[lead[:, 0] > 0].sum()) == pytest.approx(problem.truth, rel=1e-9)
        assert float(p[lead[:, 0] > 1].sum()) < 0.9 * problem.truth
        assert float(lead.abs().min()) == known.STEP / 2
