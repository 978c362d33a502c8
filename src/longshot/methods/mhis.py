"""Metropolis–Hastings Importance Sampling (Wu and Hilton 2024, Algorithm 2, its weight corrected).

Chains walk through input space with the stationary law

    q(x) = p(x)·exp(M_t(x)/T)/Z.

A step takes a position i among the free ones and proposes its new token from

    φ_x(y) ∝ p_i(y)·exp(g_i(x)·W_E[y]/T),       g_i(x) = ∇ M_t(x) with respect to the embedding,

and accepts with probability min(1, r),

    r = p_i(x'_i)/p_i(x_i) · exp((M_t(x') − M_t(x))/T) · φ_x'(x_i)/φ_x(x'_i).

With p/q = Z·exp(−M_t/T) and 1/Z = E_q exp(−M_t/T), the estimate over the states after burn-in is
the self-normalised ratio

    p̂ = Σ_j w_j·1[M(x_j) = t] / Σ_j w_j,        w_j = exp(−M_t(x_j)/T):

consistent, with a bias of order 1/n. (The paper prints the weight inverted.) That is the `harmonic`
normaliser, as in the paper. Its sum Σ w hangs on the lowest scores, where the chains seldom are.
By default Z is therefore found by bridge sampling (`bridge.py`) between the chains and plain draws
of p, an eighth of the budget, which all targets share:

    p̂ = Ẑ·(1/n)·Σ_j w_j·1[M(x_j) = t].

Every one-position kernel leaves q invariant, so a stationary chain has the law q after any sequence
of positions. All chains of all targets move at the same position in the same step, in sweeps from
the first free one to the last. Chains are independent, and the spread between them gives the
standard error. The harmonic normaliser fails upwards where no chain comes back to the low scores of
p: Σ w is too small, which the starts tell, as they are draws of p. Both fail downwards, and on the
shipped models mostly so, where chains do not mix: they miss kinds of input that hit.

**Why sweeps.** A proposal costs one forward and one backward pass. What comes before position i
does not see the new token, and until the sweep ends only gradients from i on are asked for: where
the network can resume, both passes run over the tail alone, half of the input on average. The price
is one whole pass at the start of every sweep.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Job, Problem, best_witnesses
from longshot.events import Score
from longshot.inputs import as_product
from longshot.intervals import fields_of
from longshot.methods.base import (
    NEVER_FOUND,
    Activations,
    Clock,
    Method,
    Need,
    register,
    require_positive,
)
from longshot.methods.bridge import bridged, bridged_interval
from longshot.methods.chains import disagreement, interval, ratio, starts_reached
from longshot.methods.walk import Walk
from longshot.numerics import (
    autocorrelated_size,
    autocorrelation_size,
    chain_effective_size,
    effective_sample_size,
    pareto_k,
    rank_r_hat,
)

ROWS = 512  # chains in hand at once, each with what the network remembers of it
PLAIN = (1 / 8, 2048)  # draws of p for the bridge: a share of the budget, and the most


@register
@dataclass(frozen=True)
class MHIS(Method):
    """Importance sampling from a random walk that climbs the target's logit."""

    name: ClassVar[str] = "mhis"
    needs: ClassVar[frozenset[Need]] = frozenset({"score", "product"})
    temperature: float = 1.0
    chains: int | None = None
    """Unless given, such that each chain makes 96 steps for every chain there is: 8 chains at
    1.5·2^12 calls, 32 at 1.5·2^16, as in the paper."""
    burn_in: float = 1 / 3
    """The share of each chain's steps that is left out."""
    score: Score = "logit"
    """What is climbed; for an event beyond one token always its gap."""
    normaliser: Literal["bridge", "harmonic"] = "bridge"
    """How Z is found: against plain draws that targets share, or from the chains alone."""

    def __post_init__(self) -> None:
        require_positive(self, temperature=self.temperature, chains=self.chains)
        if not 0 <= self.burn_in < 1:
            raise LongshotError(f"mhis: burn_in is a share below 1, not {self.burn_in}.")

    def estimate(self, job: Job) -> list[Estimate]:
        single = [part for part in job.parts(1) if not part.is_path]
        plain = max((self.plain_draws(part.evaluations) for part in single), default=0)
        drawn = Activations(job, plain) if plain else None
        estimates = []
        for walk, steps, seconds in self._walks(job):
            count = len(walk.job.events)
            estimates += [
                self.answer_of(walk, i, steps, seconds / count, drawn) for i in range(count)
            ]
        return estimates

    def chains_of(self, job: Job) -> list[dict[str, Float64[Tensor, "chain step"]]]:
        """What each event's chains went through after burn-in, for `longshot.to_arviz`."""
        found = []
        for walk, _, _ in self._walks(job):
            for i in range(len(walk.job.events)):
                score, grade = walk.recorded(i)
                found.append({"score": score, "grade": grade})
        return found

    def _walks(self, job: Job) -> Iterator[tuple[Walk, int, float]]:
        """The chains of one part of the job after the other, with their steps and seconds."""
        for part in job.parts(max(1, ROWS // self.plan(job.budget)[0])):
            chains, calls = self.plan(part.evaluations)
            settings = replace(self, score="gap") if part.is_path else self
            clock, walk = Clock(), Walk(part, settings, chains)
            steps, free = walk.affordable(calls), walk.inputs.free_positions
            for step, position in enumerate(itertools.islice(itertools.cycle(free), steps)):
                walk.move(position)
                if step >= int(steps * self.burn_in):
                    walk.record()
                part.progress((step + 1) / steps)
            yield walk, steps, clock.seconds

    def check(self, job: Job) -> None:
        super().check(job)
        if not as_product(job.inputs, self.name).free_positions:
            raise LongshotError(f"mhis: no position of {job.inputs.name!r} is free to move.")
        for part in job.parts(1):
            self.plan(part.evaluations)

    def plain_draws(self, evaluations: int) -> int:
        """How many plain draws the bridge has."""
        share, most = PLAIN
        return min(max(int(share * evaluations), 1), most) if self.normaliser == "bridge" else 0

    def plan(self, evaluations: int) -> tuple[int, int]:
        """How many chains, and the calls of each."""
        left = evaluations - self.plain_draws(evaluations)
        chains = self.chains or max(2, math.isqrt(left // 96))
        calls = left // chains
        if calls < 4:
            raise LongshotError(f"mhis: {evaluations} calls are too few for {chains} chains.")
        return chains, calls

    def answer_of(
        self, walk: Walk, i: int, steps: int, seconds: float, drawn: Activations | None = None
    ) -> Estimate:
        """The estimate of the i-th event from the recorded states, and plain draws if any."""
        scores, grade = walk.recorded(i)
        hit, log_weight = grade > 0, -scores / self.temperature
        shared, count = Cost(), self.plain_draws(walk.job.evaluations)
        if self.normaliser == "harmonic":
            known = self._harmonic(walk, i, log_weight, grade)
        else:
            plain = walk.plain_scores(i, count, drawn) / self.temperature
            known = self._bridge(log_weight, grade, plain)
        if drawn is not None and not walk.job.is_path:
            shared = drawn.cost.share(count, len(drawn.tokens))
        hits, event = int(hit.sum()), walk.job.events[i]
        statistics = known.pop("statistics") | {"chains_with_hits": float(hit.any(1).sum())}
        return self.answer(
            walk.job,
            event,
            **known,
            samples=hit.numel(),
            hits=hits,
            pareto_k=pareto_k((log_weight + grade.log())[hit]),
            acceptance_rate=float(walk.accepted[i]) / (steps * walk.chains),
            near_ties=int(walk.evaluator.near_ties[i]),
            witnesses=best_witnesses(
                Problem(walk.job.model, walk.job.inputs, event), walk.found[i]
            ),
            statistics={name: x for name, x in statistics.items() if not math.isnan(x)},
            warnings=() if hits else (NEVER_FOUND,),
            cost=walk.cost(i, steps, seconds),
            shared_cost=shared,
        )

    def _harmonic(self, walk: Walk, i: int, log_weight: Tensor, grade: Tensor) -> dict[str, Any]:
        """The ratio of sums over the chains alone, as in the paper."""
        log_probability, error = ratio(log_weight, grade)
        hit = grade > 0
        worst = disagreement(log_weight, hit)
        reached = starts_reached(log_weight, -walk.start[i] / self.temperature)
        return {
            "log_probability": log_probability,
            "standard_error": None if error is None else error * math.exp(log_probability),
            **fields_of(interval(log_probability, error, hit, reached, worst)),
            "effective_sample_size": chain_effective_size(log_weight + grade.log()),
            "statistics": {
                "r_hat": worst,
                "independent_draws": autocorrelated_size(-log_weight),
                "log_z": math.log(hit.numel()) - float(torch.logsumexp(log_weight.flatten(), 0)),
                "starts_reached": float(reached),
            },
        }

    def _bridge(self, log_weight: Tensor, grade: Tensor, plain: Tensor) -> dict[str, Any]:
        """Ẑ times the mean of the weighted hits."""
        found = bridged(-log_weight, grade, plain)
        log_value = log_weight + grade.log()
        value = (log_value - log_value.max()).exp() if (grade > 0).any() else grade
        worst = max(rank_r_hat(log_weight), rank_r_hat(value))
        log_p, error = min(found.log_probability, 0.0), found.relative_error
        size = effective_sample_size(log_value.flatten())
        independent = min(autocorrelation_size(value) / value.numel(), 1.0) if size else 1.0
        return {
            "log_probability": log_p,
            "standard_error": None if error is None else error * math.exp(log_p),
            **fields_of(bridged_interval(found, grade > 0, worst)),
            "effective_sample_size": size * independent,
            "statistics": {
                "r_hat": worst,
                "independent_draws": autocorrelation_size(-log_weight),
                "log_z": found.log_z,
                "plain_draws": float(len(plain)),
                "plain_draws_met": found.met,
            },
        }
