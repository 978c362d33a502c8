"""Gaussian Logit Difference (Wu and Hilton 2024, section 3.2.2): a simple baseline.

    Δ = M_t − max_i M_i,   p̂ = Pr[ N(μ, σ²) ≥ 0 ] = Φ(μ/σ)

with μ and σ the mean and standard deviation of Δ over n plain samples. The maximum includes the
target, so Δ ≤ 0 with an atom at 0 where the target wins. For a set of tokens M_t is the largest of
them. The paper's fitted form, exp(−(a·μ/(σ + ε))² + b) + c, takes μ and σ from `statistics`.

The Gaussian is an extrapolation whose bias has no error bar. The standard error is sampling noise,
by the delta method: with z = μ/σ and y = (Δ − μ)/σ,

    Var z ≈ Var( y − z·y²/2 )/n,    Var p̂ ≈ φ(z)²·Var z.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from longshot.estimate import Cost, Estimate, Job, Problem, best_witnesses
from longshot.evaluate.argmax import BLOCK, Decider, leaders, readout
from longshot.events import Event, member_table, members_of
from longshot.methods.base import Activations, Clock, Method, Need, register
from longshot.models import Model

NO_INTERVAL = (
    "GLD extrapolates a Gaussian: its bias has no error bar, and the standard error is sampling "
    "noise only."
)
EXTRAPOLATED = "No input produced the target: the probability is an extrapolation."
NO_SPREAD = "The logit difference is the same on every input: there is no Gaussian to extrapolate."


def logit_differences(
    model: Model, v: Float[Tensor, "n width"], events: Sequence[Event]
) -> tuple[Float[Tensor, "event n"], Int64[Tensor, " leader"]]:
    """Δ of every event at each activation, from one pass over all logits; and who leads."""
    out = readout(model)
    members = member_table(events).to(out.rows.device)
    delta, leading = [], []
    for rows in v.to(out.rows).split(BLOCK):
        folded = out.folded(rows)
        first, logits = leaders(folded), folded.flatten(1)
        delta.append((logits[:, members].amax(2).mT - first.best).cpu())
        leading.append(first.token.unique().cpu())
    return torch.cat(delta, 1), torch.cat(leading).unique()


def gaussian_tail(
    delta: Float64[Tensor, " n"], rounding: float = 0.0
) -> tuple[float, float, float, float | None]:
    """μ, σ, log Φ(μ/σ) and the standard error of its exponential.

    A spread within `rounding` is none: the tail is all or nothing.
    """
    mu, sigma = float(delta.mean()), float(delta.std(correction=0))
    if sigma <= rounding:
        return mu, 0.0, 0.0 if mu >= 0 else -math.inf, None
    z = torch.tensor(mu / sigma, dtype=torch.float64)
    log_p = float(torch.special.log_ndtr(z))
    y = (delta - mu) / sigma
    spread = float((y - z * y.square() / 2).std(correction=0)) / math.sqrt(len(delta))
    density = math.exp(-(float(z) ** 2) / 2) / math.sqrt(2 * math.pi)
    return mu, sigma, log_p, density * spread or None  # None where it underflows: never 0


@register
@dataclass(frozen=True)
class GLD(Method):
    """Gaussian Logit Difference."""

    name: ClassVar[str] = "gld"
    shares: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"token"})
    fit_form: ClassVar[str] = "gaussian"

    def estimate(self, job: Job) -> list[Estimate]:
        drawn = Activations(job, job.budget)
        clock = Clock()
        differences, leading = logit_differences(job.model, drawn.values, job.events)
        margin = readout(job.model).margin(drawn.values).cpu()
        macs = job.budget * job.model.unembedding.numel()
        shared = drawn.cost + Cost(macs=macs, seconds=clock.seconds)
        estimates = []
        for event, delta in zip(job.events, differences, strict=True):
            clock = Clock()
            involved = torch.cat([leading, torch.tensor(members_of(event))])
            rounding = float(readout(job.model).margin(drawn.values, involved).max())
            mu, sigma, log_probability, standard_error = gaussian_tail(delta.double(), rounding)
            near = delta >= -2 * margin  # what may have won; the decision is the decider's
            decider = Decider(job.model, [event])
            gaps = decider(drawn.values[near], torch.zeros(int(near.sum()), dtype=torch.int64))
            problem = Problem(job.model, job.inputs, event)
            hit = gaps > 0
            warnings = [] if hit.any() else [EXTRAPOLATED]
            if not sigma:
                warnings.append(NO_SPREAD)
                log_probability = log_probability if hit.any() else -math.inf  # a tie is no win
            estimates.append(
                self.answer(
                    job,
                    event,
                    log_probability=log_probability,
                    standard_error=standard_error,
                    no_interval=NO_INTERVAL,
                    samples=job.budget,
                    hits=int(hit.sum()),
                    near_ties=int(decider.near_ties[0]),
                    witnesses=best_witnesses(problem, [(drawn.tokens[near][hit], gaps[hit])]),
                    statistics={"mu": mu, "sigma": sigma},
                    warnings=tuple(warnings),
                    cost=Cost(macs=decider.macs(0, len(gaps)), seconds=clock.seconds),
                    shared_cost=shared,
                )
            )
        job.progress(1.0)
        return estimates
