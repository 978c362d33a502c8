"""QLD on activations: its count against all n² pairs, its error against the spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from scipy import special
from torch import Tensor

from longshot.methods.pairs import (
    Pairs,
    Split,
    Strongest,
    acceptance_intervals,
    count_pairs,
    intervals_against,
    split,
    tail_dependence,
)
from longshot.methods.qld import Whitened, whiten
from longshot.methods.shortest import Ends, Region, column, shortest_vector

WIDTH, VOCAB, N = 5, 12, 60
TARGET = 2  # of probability about 0.03


class Samples:
    """Activations of no simple distribution, and an unembedding with a bias."""

    def __init__(self, seed: int, n: int = N) -> None:
        generator = torch.Generator().manual_seed(seed)
        fixed = torch.Generator().manual_seed(7)
        mix = torch.randn(WIDTH, WIDTH, generator=fixed, dtype=torch.float64)
        noise = torch.randn(n, WIDTH, generator=generator, dtype=torch.float64)
        self.v = (noise + 0.3 * noise.square()) @ mix + torch.arange(WIDTH)
        self.W = torch.randn(WIDTH, VOCAB, generator=fixed, dtype=torch.float64)
        self.bias = torch.randn(VOCAB, generator=fixed, dtype=torch.float64)

    def region(self, white: Whitened, target: int) -> Region:
        return Region(white.A, self.W.mT.contiguous(), white.mu @ self.W + self.bias, target)


def accepted_pairs(samples: Samples, white: Whitened, d: Tensor, target: int) -> Tensor:
    """Whether the target wins strictly at v_j with its part along d replaced by v_i's: [i, j].

    In activation space and with the logits of every pair; it shares no code with the method.
    """
    v, A = samples.v, white.A
    a = torch.linalg.solve(A, (v - v.mean(0)).mT).mT @ d
    pairs = v[None] + (a[:, None] - a[None])[..., None] * (A @ d)
    logits = pairs @ samples.W + samples.bias
    two = logits.topk(2)
    return (two.indices[..., 0] == target) & (two.values[..., 0] > two.values[..., 1])


def everything(n: int) -> Ends:
    """What is known of the intervals before any rival is seen."""
    return Ends(torch.full((n,), -math.inf).double(), torch.full((n,), math.inf).double())


def unknown(n: int) -> Strongest:
    """Nothing is known of the samples' logits: every b meets every rival."""
    none = torch.empty(n, 0)
    return Strongest(none.double(), none.long(), torch.full((n,), math.inf).double())


def qld(
    samples: Samples,
    target: int,
    direction: Callable[[Region], Tensor | None] = shortest_vector,
    whitening: Callable[[Tensor, float], Whitened] = whiten,
    splitting: Callable[[Region, Tensor, Tensor], Split] = split,
) -> tuple[Pairs, Tensor]:
    """The method's own steps, any of which a test may break; with the true pairs."""
    white = whitening(samples.v, 1e-9)
    region = samples.region(white, target)
    d = direction(region)
    assert d is not None
    if not d.any():
        d = column(region)
    d = d / d.norm()
    parts = splitting(region, white.u, d)
    intervals = acceptance_intervals(region, parts, everything(len(samples.v)), unknown(N))
    return count_pairs(parts.a, intervals), accepted_pairs(samples, white, d, target)


def feasible(samples: Samples) -> list[int]:
    white = whiten(samples.v, 1e-9)
    regions = [samples.region(white, t) for t in range(VOCAB)]
    return [t for t, r in enumerate(regions) if shortest_vector(r) is not None]


@pytest.mark.parametrize("direction", [shortest_vector, column])
def test_the_count_is_that_of_all_pairs(direction: Callable[[Region], Tensor | None]) -> None:
    counts = []
    for samples in (Samples(0), Samples(1)):
        for target in feasible(samples):
            pairs, accepted = qld(samples, target, direction)
            assert pairs.inside == int(accepted.sum())
            counts.append(pairs.inside)
    assert sum(count > 0 for count in counts) >= 8
    assert sum(0 < count < N * N / 20 for count in counts) >= 2


def test_the_standard_error_is_that_of_the_v_statistic() -> None:
    samples = Samples(1)
    for target in feasible(samples):
        pairs, accepted = qld(samples, target)
        share = accepted.double()
        f, g = share.mean(1), share.mean(0)  # over all b for each a, and over all a for each b
        expected = math.sqrt(float((f + g).var(correction=0)) / N)
        assert pairs.standard_error == (pytest.approx(expected) if expected else None)


class CountedTwice(Split):
    """The published code's slip: the interval of a·d + b instead of b."""

    def b(self, rows: Tensor) -> Tensor:
        return self.u[rows]


def test_a_direction_counted_twice_would_be_seen() -> None:
    samples = Samples(0)

    def twice(region: Region, u: Tensor, d: Tensor) -> Split:
        return CountedTwice(*split(region, u, d))

    results = [qld(samples, t, splitting=twice) for t in feasible(samples)]
    assert any(pairs.inside != int(accepted.sum()) for pairs, accepted in results)


def not_whitened(v: Tensor, epsilon: float) -> Whitened:
    """The published code's slip: A⁻¹v − μ."""
    right = whiten(v, epsilon)
    u = torch.linalg.solve_triangular(right.A, v.mT, upper=False).mT - right.mu
    return Whitened(right.mu, right.A, u)


def whiteness(white: Whitened) -> float:
    """How far u is from mean 0 and covariance Id."""
    u = white.u
    off = u.mT @ u / len(u) - torch.eye(WIDTH, dtype=torch.float64)
    return max(float(u.mean(0).abs().max()), float(off.abs().max()))


def test_whitened_samples_are_white() -> None:
    samples = Samples(3)
    white = whiten(samples.v, 1e-9)
    assert whiteness(white) < 1e-6
    assert torch.allclose(white.u @ white.A.mT + white.mu, samples.v)
    assert torch.equal(white.A, white.A.tril())


def test_whitening_dropped_would_be_seen() -> None:
    samples = Samples(0)
    assert whiteness(not_whitened(samples.v, 1e-9)) > 0.1
    results = [qld(samples, t, whitening=not_whitened) for t in feasible(samples)]
    assert any(pairs.inside != int(accepted.sum()) for pairs, accepted in results)


def test_few_rivals_leave_intervals_that_contain_the_exact_ones() -> None:
    samples = Samples(2)
    white = whiten(samples.v, 1e-9)
    for target in feasible(samples):
        region = samples.region(white, target)
        d = column(region) / column(region).norm()
        parts = split(region, white.u, d)
        exact = acceptance_intervals(region, parts, everything(N), unknown(N))
        outer = intervals_against(region, parts, torch.tensor([(target + 1) % VOCAB]))
        assert (outer.low <= exact.low + 1e-9).all()
        assert (outer.high >= exact.high - 1e-9).all()
        screened = acceptance_intervals(region, parts, outer, unknown(N))
        assert count_pairs(parts.a, screened) == count_pairs(parts.a, exact)


def gaussian_pairs(seed: int, n: int, known: bool) -> Pairs:
    """QLD on Gaussian activations, where its presumption holds; with the true whitening or not."""
    samples = Samples(0)
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(n, WIDTH, generator=generator, dtype=torch.float64)
    truth = whiten(samples.v, 1e-9)
    v = u @ truth.A.mT + truth.mu
    white = Whitened(truth.mu, truth.A, u) if known else whiten(v, 1e-9)
    d = shortest_vector(samples.region(truth if known else white, TARGET))
    assert d is not None
    region = samples.region(white, TARGET)
    parts = split(region, white.u, d / d.norm())
    rivals = torch.tensor([t for t in range(VOCAB) if t != TARGET])
    return count_pairs(parts.a, intervals_against(region, parts, rivals))


@pytest.mark.parametrize(("known", "tolerance"), [(True, 0.2), (False, 0.4)])
def test_the_standard_error_matches_the_spread_over_seeds(known: bool, tolerance: float) -> None:
    """A standard deviation from 200 seeds is off by 5%.

    The formula takes whitening and direction as given; estimating them too adds a little.
    """
    n, seeds = 300, 200
    pairs = [gaussian_pairs(seed, n, known) for seed in range(seeds)]
    shares = torch.tensor([p.inside / n**2 for p in pairs], dtype=torch.float64)
    spread, p = float(shares.std()), float(shares.mean())
    typical = math.sqrt(sum((pair.standard_error or 0.0) ** 2 for pair in pairs) / seeds)
    assert 1e-3 < p < 0.1
    assert typical == pytest.approx(spread, rel=tolerance)
    # The negative control: the error of n² independent pairs would be far too small.
    assert math.sqrt(p * (1 - p)) / n < 0.5 * spread


@cache
def gaussian(seed: int, n: int = 2000) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 2, generator=generator, dtype=torch.float64)


def samples_needed(alpha: float, p: float, seed: int) -> int:
    """How many Gaussian samples it takes to see α·a + β·b > c, where Pr = p, in some pair."""
    threshold = -float(special.ndtri(p))
    beta = math.sqrt(1 - alpha**2)
    rows = torch.tensor([[alpha, beta], [0.0, 0.0]], dtype=torch.float64)
    logits = torch.tensor([0.0, threshold], dtype=torch.float64)
    region = Region(torch.eye(2, dtype=torch.float64), rows, logits, 0)
    u = gaussian(seed, 2**16)
    d = torch.tensor([1.0, 0.0], dtype=torch.float64)

    def seen(n: int) -> bool:
        parts = split(region, u[:n], d)
        outer = intervals_against(region, parts, torch.tensor([1]))
        return (
            count_pairs(parts.a, acceptance_intervals(region, parts, outer, unknown(n))).inside > 0
        )

    high = 1
    while not seen(high):
        high *= 2
        assert high < len(u)
    low = high // 2
    while high - low > 1 + low // 16:
        middle = (low + high) // 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


@pytest.mark.parametrize(
    ("alpha", "p", "replicas", "expected"),
    [
        (1.0, (1e-1, 1e-2, 1e-3), 16, 1.0),
        (math.sqrt(1 / 2), (1e-3, 1e-5, 1e-7), 8, 1 / 2),
        (math.sqrt(1 / 5), (1e-3, 1e-5, 1e-7), 8, 5 / 9),
    ],
    ids=["no split", "even split", "uneven split"],
)
def test_samples_needed_by_the_papers_scenarios(
    alpha: float, p: tuple[float, ...], replicas: int, expected: float
) -> None:
    """Log n against log 1/p has the slope that the paper's appendix derives."""
    needed = [
        sum(math.log(samples_needed(alpha, q, seed)) for seed in range(replicas)) / replicas
        for q in p
    ]
    slope = (needed[-1] - needed[0]) / (math.log(p[0]) - math.log(p[-1]))
    assert slope == pytest.approx(expected, abs=0.05 if expected < 1 else 0.2)


def dependence(u: Tensor) -> tuple[float, float]:
    rows = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    logits = torch.tensor([0.0, 3.0], dtype=torch.float64)
    region = Region(torch.eye(2, dtype=torch.float64), rows, logits, 0)
    parts = split(region, u, torch.tensor([1.0, 0.0], dtype=torch.float64))
    found = tail_dependence(parts.a, intervals_against(region, parts, torch.tensor([1])).low)
    assert found is not None
    return found


def test_dependence_is_standard_normal_under_independence() -> None:
    """Of 400 numbers 1 should exceed 3; 6 would be seen once in 2,000 runs."""
    z = torch.tensor([dependence(gaussian(seed)) for seed in range(200)])
    assert int((z.abs() > 3).sum()) < 6
    assert z.std(0).tolist() == pytest.approx([1, 1], abs=0.2)


def test_dependence_is_seen() -> None:
    """Uncorrelated halves that shift, or that share their scale."""
    u = gaussian(0)
    shifted = torch.stack([u[:, 0] + 0.5 * (u[:, 1].square() - 1), u[:, 1]], 1)
    level, _ = dependence(shifted)
    assert level > 5
    scale = torch.randn(2000, 1, generator=torch.Generator().manual_seed(1)).double().exp()
    _, spread = dependence(u * scale)
    assert spread > 5


def test_dependence_needs_samples() -> None:
    few = torch.arange(100, dtype=torch.float64)
    assert tail_dependence(few, few.flip(0)) is None
    many = torch.arange(1000, dtype=torch.float64)
    assert tail_dependence(torch.zeros_like(many), many) is None
