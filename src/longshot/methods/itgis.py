"""Independent Token Gradient Importance Sampling (Wu and Hilton 2024, Algorithm 1).

Inputs are drawn from a product distribution that is tilted towards the target,

    q_i(x) ∝ p_i(x)·exp(s_i(x)/T),      s_i(x) = E_{x'~q} [∇ M_t(x')]_{i,x},

where the gradient with respect to the one-hot input is the gradient g_i with respect to the
embedded input times the embedding rows: [∇ M_t(x')]_{i,x} = g_i(x')·W_E[x]. The score is refined
from batch to batch by an exponentially weighted average,

    s^(j) = (ŝ^(j) + α·ŝ^(j−1) + … + α^(j−1)·ŝ^(1)) / (1 + α + … + α^(j−1)),

which lives in embedding space and meets the support's embedding rows once a batch. The estimate is
the mean over all batches of

    z = p(x)/q^(j−1)(x)·1[M(x) = t],        E[z | the past] = Pr[M(x) = t],

with the event's grade in place of the indicator where it has one. Each z is unbiased given the
past, so the z are uncorrelated and their spread gives the standard error, whatever the proposals
did.

**Narrow proposals.** The colder, the fewer inputs q reaches; hits beyond them are missed, with no
sign of it in the spread of z. The weight p/q of all samples, hit or not, has the mean 1: where the
tilted batches average less, q has missed part of p, and `intervals` allows for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import WITNESSES, Cost, Estimate, Job, Problem, best_witnesses
from longshot.evaluate import Evaluator
from longshot.events import Score
from longshot.inputs import Scores, as_product, boundary_temperature, draw, tilted, token_scores
from longshot.intervals import fields_of, of_weighted_draws
from longshot.methods.base import NEVER_FOUND, Clock, Method, Need, register, require_positive
from longshot.numerics import effective_sample_size, log_mean, pareto_k, relative_error

OWN_CHOICE = (0.4, 5.0)  # the coldest and the warmest that it takes where none is given
ROWS = 4096  # inputs in hand at once, so that many targets do not exhaust the memory


@register
@dataclass(frozen=True)
class ITGIS(Method):
    """Importance sampling from token-wise tilted inputs."""

    name: ClassVar[str] = "itgis"
    needs: ClassVar[frozenset[Need]] = frozenset({"score", "product"})
    temperature: float | None = None
    """Unless given, each batch takes the one that brings a linear gap to its boundary."""
    batch: int | None = None
    """Samples a batch; the square root of the budget unless given, as in the paper."""
    alpha: float = 0.9
    score: Score = "gap"
    """What is climbed: the gap, or the paper's logit; for an event beyond one token the gap."""

    def __post_init__(self) -> None:
        require_positive(self, temperature=self.temperature, batch=self.batch)
        if not 0 <= self.alpha <= 1:
            raise LongshotError(f"itgis: alpha must lie between 0 and 1, not {self.alpha}.")

    def estimate(self, job: Job) -> list[Estimate]:
        estimates = []
        for part in job.parts(max(1, ROWS // self._batch(job.budget))):
            batch = self._batch(part.evaluations)
            batches = part.evaluations // batch
            settings = replace(self, score="gap") if part.is_path else self
            clock, run = Clock(), Sampler(part, settings, batch)
            for j in range(batches):
                run.step()
                part.progress((j + 1) / batches)
            seconds = clock.seconds / len(part.events)
            estimates += [run.answer(i, seconds) for i in range(len(part.events))]
        return estimates

    def _batch(self, evaluations: int) -> int:
        return min(self.batch or math.isqrt(evaluations), evaluations)


class Sampler:
    """All targets of a job side by side; each draws from its own generator."""

    def __init__(self, job: Job, settings: ITGIS, batch: int) -> None:
        self.job, self.settings, self.batch = job, settings, batch
        self.evaluator = Evaluator(job.model, job.events, settings.score, job.inputs)
        self.generators = [job.generator(settings.name, event) for event in job.events]
        targets, length = len(job.events), job.inputs.length
        width = job.model.embedding.shape[1]
        self.inputs, embedding = as_product(job.inputs, settings.name), job.model.embedding
        supports = [group.distribution.support for group in self.inputs.groups]
        self.rows = [embedding[support.to(embedding.device)].double() for support in supports]
        self.owner = torch.arange(targets).repeat_interleave(batch)
        shape, device = (targets, length, width), embedding.device
        self.numerator = torch.zeros(shape, dtype=torch.float64, device=device)
        self.denominator = 0.0
        self.plain_mean: Float64[Tensor, " target"] | None = None
        self.log_z: list[Tensor] = []
        self.log_weight: list[Tensor] = []
        self.found: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in job.events]

    def temperature(self, scores: Scores) -> Float64[Tensor, " target"]:
        """T of each target: as it was given, or by the mean gap of the first, plain batch."""
        given = self.settings.temperature
        if given is None and self.settings.score == "gap" and self.plain_mean is not None:
            return boundary_temperature(self.inputs, scores, self.plain_mean, OWN_CHOICE)
        return torch.full((len(self.job.events),), given or 1.0, dtype=torch.float64)

    def step(self) -> None:
        """Draw a batch from q^(j−1), record z, and refine the score to s^(j)."""
        targets = len(self.job.events)
        slope = self.numerator / max(self.denominator, 1.0)
        scores = token_scores(self.inputs, self.rows, slope)
        proposals = tilted(self.inputs, scores, self.temperature(scores))
        shape = (len(self.inputs.free_positions), self.batch)
        uniform = torch.stack(
            [torch.rand(shape, generator=g, dtype=torch.float64) for g in self.generators]
        )
        tokens, log_prob, log_weight = draw(self.inputs, proposals, uniform)

        rows = tokens.flatten(0, 1)
        evaluation = self.evaluator(rows, self.owner, gradient=True)
        decided = self.evaluator.decide(rows, evaluation.activation, self.owner)
        assert evaluation.gradient is not None
        gradient = evaluation.gradient.reshape(targets, self.batch, *rows.shape[1:], -1)
        self.numerator = gradient.mean(1) + self.settings.alpha * self.numerator
        self.denominator = 1 + self.settings.alpha * self.denominator
        if self.plain_mean is None:
            self.plain_mean = evaluation.score.double().reshape(targets, self.batch).mean(1)

        grade, gap = (found.reshape(targets, self.batch) for found in decided)
        self.log_z.append(log_weight + grade.log())
        self.log_weight.append(log_weight)
        most = min(WITNESSES, self.batch)
        for i in (grade > 0).any(1).nonzero()[:, 0].tolist():
            likeliest = (log_prob[i] + grade[i].log()).topk(most).indices
            kept = likeliest[grade[i, likeliest] > 0]
            self.found[i].append((tokens[i, kept], gap[i, kept], grade[i, kept]))

    def answer(self, i: int, seconds: float) -> Estimate:
        """The estimate of the i-th event from all batches so far."""
        job, event = self.job, self.job.events[i]
        log_z = torch.cat([z[i] for z in self.log_z])
        tilted_batches = self.log_weight[1:] or self.log_weight
        log_weight = torch.cat([w[i] for w in tilted_batches])
        hit = log_z > -math.inf
        n, hits = len(log_z), int(hit.sum())
        log_probability = min(log_mean(log_z), 0.0)  # an average of weights may pass 1
        error = relative_error(log_z)
        size, k = effective_sample_size(log_z), pareto_k(log_z[hit])
        log_mean_weight = log_mean(log_weight)
        return self.settings.answer(
            job,
            event,
            log_probability=log_probability,
            standard_error=None if error is None else error * math.exp(log_probability),
            **fields_of(
                of_weighted_draws(log_probability, error, size, k, log_mean_weight=log_mean_weight)
            ),
            samples=n,
            hits=hits,
            effective_sample_size=size,
            pareto_k=k,
            near_ties=int(self.evaluator.near_ties[i]),
            witnesses=best_witnesses(Problem(job.model, job.inputs, event), self.found[i]),
            statistics={"mean_weight": math.exp(log_mean_weight)},
            warnings=() if hits else (NEVER_FOUND,),
            cost=self.cost(i, seconds),
        )

    def cost(self, i: int, seconds: float) -> Cost:
        """What the i-th event took: calls, their gradients, the scores, the unembedding."""
        forwards, backwards, macs = self.evaluator.cost(i)
        groups, width = self.inputs.groups, self.job.model.width
        scores = width * sum(len(group.positions) * group.distribution.size for group in groups)
        return Cost(forwards, backwards, macs + len(self.log_z) * scores, seconds)
