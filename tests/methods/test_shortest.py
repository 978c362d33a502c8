"""The acceptance region: optimality of the shortest vector, and the other directions into it."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from scipy import optimize, special
from torch import Tensor

from longshot.errors import LongshotError
from longshot.methods.shortest import (
    Region,
    column,
    conditional_mean,
    interval,
    random_constraint_projection,
    shortest_vector,
    truncated_normal,
)


def random_region(seed: int, width: int = 6, vocab: int = 40, target: int = 3) -> Region:
    """Skewed axes, columns of many sizes, and a bias: nothing is symmetric."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    A = normal(width, width).tril() / 2 + torch.eye(width, dtype=torch.float64)
    rows = normal(vocab, width) * (0.5 + torch.rand(vocab, 1, generator=generator).double())
    return Region(A, rows, rows @ normal(width) + normal(vocab) / 2, target)


@cache
def rare_regions(count: int = 4) -> list[Region]:
    """Regions that the mean is outside of, at a usual distance."""
    found = []
    for seed in range(100):
        region = random_region(seed)
        u = shortest_vector(region)
        if u is not None and 0.5 < float(u.norm()) < 3.5 and region.inward(u) is not None:
            found.append(region)
        if len(found) == count:
            break
    return found


def optimality(region: Region, u: Tensor) -> float:
    """How far u is from satisfying the optimality conditions: feasible, and u = Σ λ_i·g_i, λ ≥ 0.

    The multipliers may only stand on constraints that are tight.
    """
    leads = region.leads(u)
    infeasible = max(0.0, -float(leads.min()))
    tight = (leads <= 1e-7).nonzero()[:, 0]
    if not len(tight):
        return max(infeasible, float(u.norm()))
    _, residual = optimize.nnls(region.normals(tight).numpy().T, u.numpy())
    return max(infeasible, float(residual))


def test_leads_are_differences_of_logits() -> None:
    region = random_region(0)
    u = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logits = region.rows @ (region.A @ u) + region.mean_logits
    rivals = torch.tensor([0, 1, 2, 4, 39])
    expected = logits[region.target] - logits[rivals]
    assert torch.allclose(region.leads(u)[rivals], expected)
    assert torch.allclose(region.leads_over(rivals, (region.A @ u)[None])[0], expected)
    assert region.leads(u)[region.target] == math.inf


def test_the_shortest_vector_is_optimal() -> None:
    regions = rare_regions(8)
    assert len(regions) == 8
    for region in regions:
        u = shortest_vector(region)
        assert u is not None
        assert optimality(region, u) < 1e-6


def test_the_optimality_check_can_fail() -> None:
    """The negative controls: too long, too short, or feasible but not the shortest."""
    for region in rare_regions():
        u = shortest_vector(region)
        inward = region.inward(u) if u is not None else None
        assert u is not None
        assert inward is not None
        assert optimality(region, 1.01 * u) > 1e-3
        assert optimality(region, 0.99 * u) > 1e-3
        assert optimality(region, u + 0.01 * inward) > 1e-3


def test_another_solver_finds_the_same_vector() -> None:
    for region in rare_regions(2):
        u = shortest_vector(region)
        assert u is not None
        rivals = torch.tensor([i for i in range(40) if i != region.target])
        G, h = region.normals(rivals).numpy(), region.h[rivals].numpy()
        other = optimize.minimize(
            lambda x: x @ x,
            1.1 * u.numpy() + 0.1,
            constraints=optimize.LinearConstraint(G, -h, math.inf),
            method="SLSQP",
            tol=1e-12,
        )
        assert other.x == pytest.approx(u.numpy(), abs=1e-5)


def test_constraint_generation_ends_for_a_large_vocabulary() -> None:
    region = random_region(5, width=16, vocab=3000)
    region.rows[3] *= 2
    region = Region(region.A, region.rows, region.mean_logits, 3)
    u = shortest_vector(region)
    assert u is not None
    assert optimality(region, u) < 1e-6
    assert region.macs < 60 * region.rows.numel()  # a few dozen looks at the vocabulary


def test_an_accepted_mean_needs_no_vector() -> None:
    region = random_region(0)
    best = int(region.mean_logits.argmax())
    accepted = Region(region.A, region.rows, region.mean_logits, best)
    u = shortest_vector(accepted)
    assert u is not None
    assert not u.any()
    assert accepted.inward(u) is not None


def test_a_column_among_the_others_has_no_interior() -> None:
    region = random_region(0)
    rows = region.rows.clone()
    rows[3] = 0.2 * rows[5] + 0.5 * rows[7] + 0.3 * rows[9]
    mu = torch.linspace(-1, 1, 6, dtype=torch.float64)
    inside = Region(region.A, rows, rows @ mu, 3)
    u = shortest_vector(inside)  # without a bias the zero activation satisfies every ≥ 0
    assert u is not None
    assert inside.leads(u).min() > -1e-8
    assert inside.inward(u) is None
    # A bias in its favour gives it a region, one against it takes even the closure away.
    bias = torch.zeros(40, dtype=torch.float64)
    bias[3] = 1e-3
    favoured, against = (Region(region.A, rows, rows @ mu + b, 3) for b in (bias, -bias))
    u = shortest_vector(favoured)
    assert u is not None
    assert favoured.inward(u) is not None
    assert shortest_vector(against) is None


def test_a_column_that_stands_twice_has_no_interior() -> None:
    region = random_region(1)
    region.rows[7] = region.rows[3]
    region.mean_logits[7] = region.mean_logits[3]
    twin = Region(region.A, region.rows, region.mean_logits, 3)
    u = shortest_vector(twin)
    assert u is None or twin.inward(u) is None


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_projection_agrees_with_the_exact_direction(shift: float) -> None:
    """Also where a constant is added to all logits: leads are differences."""
    for plain in rare_regions(2):
        region = Region(plain.A, plain.rows, plain.mean_logits + shift, plain.target)
        u = shortest_vector(region)
        assert u is not None
        x = random_constraint_projection(region, 2000, torch.Generator().manual_seed(0))
        assert float(torch.cosine_similarity(x, u, dim=0)) > 0.999


def test_a_short_projection_does_not_agree() -> None:
    """The negative control: without repetitions it stops at any accepting vector."""
    cosines = []
    for region in rare_regions():
        u = shortest_vector(region)
        assert u is not None
        x = random_constraint_projection(region, 2, torch.Generator().manual_seed(0))
        cosines.append(float(torch.cosine_similarity(x, u, dim=0)))
    assert min(cosines) < 0.99


def test_projection_says_so_when_there_is_nothing_to_find() -> None:
    rows = torch.tensor([[0.0], [1.0], [-1.0]], dtype=torch.float64)
    logits = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    region = Region(torch.ones(1, 1, dtype=torch.float64), rows, logits, 0)
    with pytest.raises(LongshotError, match="found no accepting vector"):
        random_constraint_projection(region, 1, torch.Generator().manual_seed(0))


def test_the_column_raises_the_target_fastest() -> None:
    region = random_region(2)
    step = 1e-6 * column(region) / column(region).norm()
    gain = region.rows[3] @ (region.A @ step)
    assert float(gain) == pytest.approx(1e-6 * float(column(region).norm()))


def test_truncated_normal_has_its_distribution() -> None:
    """Quantiles and means against the textbook, in both tails and far out."""
    uniform = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    for low, high in [(-1.0, 2.0), (-math.inf, 0.3), (0.5, math.inf), (-3.0, -2.0), (2.0, 2.5)]:
        ends = torch.full((3,), low).double(), torch.full((3,), high).double()
        draw, mean = truncated_normal(*ends, uniform)
        mass = special.ndtr(high) - special.ndtr(low)
        share = (special.ndtr(draw.numpy()) - special.ndtr(low)) / mass
        assert share == pytest.approx(uniform.numpy() if low <= 0 else 1 - uniform.numpy())
        density = [math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) for x in (low, high)]
        assert mean.tolist() == pytest.approx([(density[0] - density[1]) / mass] * 3)
    far = torch.tensor([40.0], dtype=torch.float64)
    draw, mean = truncated_normal(far, far + 1, torch.tensor([0.5], dtype=torch.float64))
    assert float(draw) == pytest.approx(40 + math.log(2) / 40, abs=1e-4)
    assert float(mean) == pytest.approx(40 + 1 / 40, abs=1e-4)
    point = torch.tensor([1.5], dtype=torch.float64)
    assert [float(x) for x in truncated_normal(point, point, uniform[:1])] == [1.5, 1.5]


def test_conditional_mean_of_a_half_space() -> None:
    """E[u | g·u ≥ c] = φ(c)/Φ(−c) along g, and nothing across it."""
    g = torch.tensor([0.6, -0.48, 0.64], dtype=torch.float64)
    rows = torch.stack([g, torch.zeros(3, dtype=torch.float64)])
    region = Region(torch.eye(3).double(), rows, torch.tensor([0.0, 1.5]).double(), 0)
    u = shortest_vector(region)
    assert u is not None
    inward = region.inward(u)
    assert inward is not None
    mean = conditional_mean(region, u, inward, 200, torch.Generator().manual_seed(0))
    expected = math.exp(-(1.5**2) / 2) / math.sqrt(2 * math.pi) / special.ndtr(-1.5)
    assert mean.tolist() == pytest.approx((expected * g).tolist(), abs=0.05)


def test_conditional_mean_of_a_wedge() -> None:
    """Two walls at an acute angle, against numerical integration."""
    rows = torch.tensor([[1.0, 0.3], [0.0, 0.9], [0.4, -0.6]], dtype=torch.float64)
    region = Region(torch.eye(2).double(), rows, torch.tensor([0.0, 1.0, 0.7]).double(), 0)
    u = shortest_vector(region)
    assert u is not None
    inward = region.inward(u)
    assert inward is not None

    def moment(power_x: int, power_y: int) -> float:
        grid = torch.linspace(-5, 6, 221, dtype=torch.float64)
        x, y = torch.meshgrid(grid, grid, indexing="ij")
        points = torch.stack([x.flatten(), y.flatten()], 1)
        inside = (region.leads_over(torch.tensor([1, 2]), points) > 0).all(1)
        values = points[:, 0] ** power_x * points[:, 1] ** power_y
        return float((values * (-points.square().sum(1) / 2).exp() * inside).sum())

    expected = [moment(1, 0) / moment(0, 0), moment(0, 1) / moment(0, 0)]
    mean = conditional_mean(region, u, inward, 200, torch.Generator().manual_seed(0))
    assert mean.tolist() == pytest.approx(expected, abs=0.05)


def test_interval_ends_are_open_where_nothing_binds() -> None:
    lead = torch.tensor([[-2.0, 3.0, 1.0], [-2.0, 3.0, -1.0]], dtype=torch.float64)
    low, high = interval(lead, torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64))
    assert low.tolist() == [2, 2]
    assert high.tolist() == [3, -math.inf]  # a flat rival that leads leaves nothing
    low, high = interval(lead[:1], torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64))
    assert (low.tolist(), high.tolist()) == ([2], [math.inf])
    low, high = interval(lead[:1], torch.tensor([-1.0, -1.0, 0.0], dtype=torch.float64))
    assert (low.tolist(), high.tolist()) == ([-math.inf], [-2])
