"""Quadratic Logit Decomposition (Wu and Hilton 2024, section 3.2.1 and Algorithm 3).

From n activations v with mean μ and covariance Σ, and a unit direction d into the region S where
the target wins,

    A·Aᵀ = Σ + ε·Id,    u = A⁻¹(v − μ),    a = d·u,    b = u − a·d,
    p̂ = (1/n²)·|{ (i, j) : a_i·d + b_j ∈ S }|.

Presuming a and b independent, n samples are worth n²; S is convex, so the pairs need not be visited
(see `pairs`). The standard error is sampling noise alone: the bias of the presumption has no error
bar, so there is no interval, and a test for dependence in the tails can only raise doubts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from longshot.errors import LongshotError, unknown_name
from longshot.estimate import Cost, Estimate, Job, Problem, best_witnesses
from longshot.evaluate.argmax import UNEMBED_BLOCK, Decider, readout
from longshot.events import Event, members_of
from longshot.methods import shortest as directions
from longshot.methods.base import (
    Activations,
    Clock,
    Method,
    Need,
    register,
    require_positive,
)
from longshot.methods.gld import EXTRAPOLATED
from longshot.methods.pairs import (
    Pairs,
    Strongest,
    acceptance_intervals,
    count_pairs,
    intervals_against,
    own_logits,
    split,
    tail_dependence,
)
from longshot.methods.shortest import Region, shortest_vector
from longshot.models import Model

NO_INTERVAL = (
    "QLD presumes that two parts of the activation are independent: its bias has no error bar, "
    "and the standard error is sampling noise only."
)
NOT_RARE = (
    "The mean activation already produces the target: the event is not rare, and the target's "
    "column served as the direction."
)
NO_INTERIOR = (
    "No activation makes the target the strict winner: its column lies among those of its rivals."
)
NO_PAIR = "None of the synthetic activations produces the target."
DEPENDENT = (
    "The parts that QLD presumes independent are dependent where it matters (z = {:.1f} for the "
    "level and {:.1f} for the spread of one in the tail of the other): the bias may be large."
)
STRONGEST = 64  # tokens that each sample is screened with
DOUBTFUL = 3.0  # standard deviations: one false alarm in 190 targets

DIRECTIONS = ("shortest", "projection", "column", "conditional-mean")


class Whitened(NamedTuple):
    """The samples in whitened space, v = A·u + μ."""

    mu: Float64[Tensor, " width"]
    A: Float64[Tensor, "width width"]
    u: Float64[Tensor, "n width"]


def whiten(v: Float[Tensor, "n width"], epsilon: float) -> Whitened:
    """Mean, Cholesky factor of Σ + ε·Id, and u = A⁻¹(v − μ) by a triangular solve, on the CPU."""
    v = v.double().cpu()
    mu = v.mean(0)
    centred = v - mu
    sigma = centred.mT @ centred / len(v)
    try:
        A = torch.linalg.cholesky(sigma + epsilon * torch.eye(len(mu), dtype=torch.float64))
    except RuntimeError as error:  # torch.linalg's own is one
        raise LongshotError(
            f"qld: the activations' covariance plus {epsilon:g} has no Cholesky factor; "
            "a larger epsilon or more samples may help."
        ) from error
    u = torch.linalg.solve_triangular(A, centred.mT, upper=False).mT.contiguous()
    return Whitened(mu, A, u)


def strongest(model: Model, v: Float[Tensor, "n width"], count: int = STRONGEST) -> Strongest:
    """From all logits, in blocks that stay in the cache; the largest again in float64."""
    out, count = readout(model), min(count, model.vocab_size)
    v = v.to(out.dtype)
    tops = [out.logits(rows).topk(count) for rows in v.split(UNEMBED_BLOCK)]
    tokens = torch.cat([top.indices for top in tops])
    others = torch.cat([top.values[:, -1] for top in tops]).double() + out.margin(v)
    if count == model.vocab_size:
        others.fill_(-math.inf)
    found = (out.of(v.double(), tokens), tokens, others)
    return Strongest(*(part.cpu() for part in found))


class Shared(NamedTuple):
    """What all targets of a job use."""

    drawn: Activations
    whitened: Whitened
    rows: Float64[Tensor, "vocab width"]
    mean_logits: Float64[Tensor, " vocab"]
    top: Strongest
    cost: Cost


def share(job: Job, epsilon: float) -> Shared:
    """Sample, whiten, and see which tokens lead."""
    drawn = Activations(job, job.budget)
    clock = Clock()
    out, whitened = readout(job.model), whiten(drawn.values, epsilon)
    rows = out.rows.double().cpu()
    mean_logits = rows @ whitened.mu + out.bias.double().cpu()
    top = strongest(job.model, drawn.values)
    macs = job.budget * (rows.numel() + 2 * whitened.A.numel()) + rows.shape[1] * top.tokens.numel()
    cost = drawn.cost + Cost(macs=macs, seconds=clock.seconds)
    return Shared(drawn, whitened, rows, mean_logits, top, cost)


@register
@dataclass(frozen=True)
class QLD(Method):
    """Quadratic Logit Decomposition."""

    name: ClassVar[str] = "qld"
    shares: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"token"})
    direction: str = "shortest"
    epsilon: float = 1e-6
    repetitions: int = 2000
    """Of the random constraint projection."""
    sweeps: int = 32
    """Of the Gibbs sampler behind `conditional-mean`."""

    def __post_init__(self) -> None:
        require_positive(
            self, epsilon=self.epsilon, repetitions=self.repetitions, sweeps=self.sweeps
        )
        if self.direction not in DIRECTIONS:
            raise unknown_name("direction of qld", self.direction, DIRECTIONS)

    def estimate(self, job: Job) -> list[Estimate]:
        shared = share(job, self.epsilon)
        estimates = []
        for done, event in enumerate(job.events, start=1):
            estimates.append(self._one(job, event, shared))
            job.progress(done / len(job.events))
        return estimates

    def check(self, job: Job) -> None:
        super().check(job)
        for event in job.events:
            if len(members_of(event)) > 1:
                raise LongshotError(
                    f"qld needs an event of a single token, whose acceptance region is convex; "
                    f"got {event.show(job.model)}."
                )

    def _one(self, job: Job, event: Event, shared: Shared) -> Estimate:
        clock, n = Clock(), job.budget
        (target,) = members_of(event)
        region = Region(shared.whitened.A, shared.rows, shared.mean_logits, target)
        pairs, statistics, warnings = self._pairs(region, shared, job.generator(self.name, event))
        best = shared.top.logits.amax(1)  # what comes near it, the decider decides
        near = own_logits(region, shared.whitened.u) >= best - 1e-9 * (1 + best.abs())
        decider = Decider(job.model, [event])
        gaps = decider(shared.drawn.values[near], torch.zeros(int(near.sum()), dtype=torch.int64))
        hit, tokens = gaps > 0, shared.drawn.tokens[near]
        if not hit.any():
            warnings = (EXTRAPOLATED, *warnings)
        return self.answer(
            job,
            event,
            log_probability=math.log(pairs.inside) - 2 * math.log(n) if pairs.inside else -math.inf,
            standard_error=pairs.standard_error,
            no_interval=NO_INTERVAL,
            samples=n,
            hits=int(hit.sum()),
            near_ties=int(decider.near_ties[0]),
            witnesses=best_witnesses(
                Problem(job.model, job.inputs, event), [(tokens[hit], gaps[hit])]
            ),
            statistics=statistics,
            warnings=warnings,
            cost=Cost(macs=region.macs + decider.macs(0, len(gaps)), seconds=clock.seconds),
            shared_cost=shared.cost,
        )

    def _pairs(
        self, region: Region, shared: Shared, generator: torch.Generator
    ) -> tuple[Pairs, dict[str, float], tuple[str, ...]]:
        """The count, with what is worth knowing of it and the doubts about it."""
        u_star = shortest_vector(region)
        inward = None if u_star is None else region.inward(u_star)
        if u_star is None or inward is None:
            return Pairs(0, None), {}, (NO_INTERIOR,)
        warnings = [] if u_star.any() else [NOT_RARE]
        d = self._direction(region, u_star, inward, generator)
        parts = split(region, shared.whitened.u, d)
        binding = intervals_against(region, parts, region.binding(u_star))
        intervals = acceptance_intervals(region, parts, binding, shared.top)
        pairs = count_pairs(parts.a, intervals)
        statistics = {"pairs": float(pairs.inside), "shortest": float(u_star.norm())}
        if not pairs.inside:
            warnings.append(NO_PAIR)
        if (dependence := tail_dependence(parts.a, binding.low)) is not None:
            statistics |= dict(zip(("level_z", "spread_z"), dependence, strict=True))
            if max(map(abs, dependence)) > DOUBTFUL:
                warnings.append(DEPENDENT.format(*dependence))
        return pairs, statistics, tuple(warnings)

    def _direction(
        self, region: Region, u_star: Tensor, inward: Tensor, generator: torch.Generator
    ) -> Float64[Tensor, " width"]:
        """The unit vector d."""
        if self.direction == "column" or not u_star.any():
            d = directions.column(region)
        elif self.direction == "shortest":
            d = u_star
        elif self.direction == "projection":
            d = directions.random_constraint_projection(region, self.repetitions, generator)
        else:
            d = directions.conditional_mean(region, u_star, inward, self.sweeps, generator)
        if not d.any():
            raise LongshotError(
                f"qld: the column of token {region.target} is zero and gives no direction."
            )
        unit: Tensor = d / torch.linalg.vector_norm(d)
        return unit
