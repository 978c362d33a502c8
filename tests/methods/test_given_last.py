"""The extrapolation given the last token: its tail, its effects, and the whole on a toy."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

import longshot as ls
from longshot.methods.given_last import saddlepoint, two_way
from tests.methods.enumerable import enumerated

Z = torch.tensor([0.2, 1.0, 2.0, 3.0], dtype=torch.float64)


def draws(name: str, n: int) -> torch.Tensor:
    """Quantiles of a standardised law, in place of draws."""
    u = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    law = {"normal": stats.norm(), "skewed": stats.gamma(4)}[name]
    return torch.from_numpy((law.ppf(u.numpy()) - law.mean()) / law.std())


def exact(name: str) -> torch.Tensor:
    law = {"normal": stats.norm(), "skewed": stats.gamma(4)}[name]
    return torch.from_numpy(law.logsf(Z.numpy() * law.std() + law.mean()))


@pytest.mark.parametrize("name", ["normal", "skewed"])
def test_tails_are_those_of_the_law(name: str) -> None:
    """Within a tenth or, where a normal tail would be off by more than half, within a third."""
    found, plain = saddlepoint(Z, draws(name, 20_000)), torch.special.log_ndtr(-Z)
    wrong = (found - exact(name)).abs()
    assert float(wrong.max()) < (0.1 if name == "normal" else 0.35)
    if name != "normal":
        assert float((plain - exact(name)).abs().max()) > 0.5
    beyond = saddlepoint(torch.tensor([8.0, 12.0]).double(), draws(name, 2000))
    assert bool(beyond.isfinite().all())
    assert float(beyond[1]) < float(beyond[0])


def test_effects_of_prefixes_do_not_count_as_those_of_leaves() -> None:
    """With large effects of prefixes, the plain mean behind each leaf is far worse."""
    generator = torch.Generator().manual_seed(0)
    n, size, k = 60, 96, 8
    a, b = (torch.randn(m, generator=generator, dtype=torch.float64) for m in (n, size))
    x = torch.arange(n).repeat_interleave(k)
    passes = [torch.randperm(size, generator=generator) for _ in range(n * k // size)]
    y = torch.cat(passes)
    noise = 0.3 * torch.randn(n * k, generator=generator, dtype=torch.float64)
    gap = (-5 + 2 * a[x] + b[y] + noise)[None]
    mean, sigma, rest = two_way(gap, x, y, size)
    plain = torch.stack([gap[0, y == leaf].mean() for leaf in range(size)])
    true = -5 + b + 2 * a.mean()
    assert float((mean[0] - true).square().mean()) < 0.2 * float((plain - true).square().mean())
    assert float(sigma.mean()) == pytest.approx(math.hypot(2 * float(a.std()), 0.3), rel=0.15)
    assert float(rest.square().mean()) == pytest.approx(1, abs=0.3)


def test_a_rare_token_of_a_toy_comes_out_in_its_order() -> None:
    problem = enumerated(6)
    answer = ls.estimate(problem.model, problem.inputs, 8, method="given_last", budget=2000, seed=1)
    assert abs(answer.log_probability - math.log(problem.exact(8))) < 2.5
    assert answer.shared_cost.forwards <= 2000
