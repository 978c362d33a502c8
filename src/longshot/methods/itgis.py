"""Independent Token Gradient Importance Sampling (Wu and Hilton 2024, Algorithm 1).

Inputs are drawn from a product distribution that is tilted towards the target,

    q_i(x) ∝ p_i(x)·exp(s_i(x)/T),      s_i(x) = E_{x'~q} [∇ M_t(x')]_{i,x},

where the gradient with respect to the one-hot input is the gradient g_i with respect to the
embedded input times the embedding rows: [∇ M_t(x')]_{i,x} = g_i(x')·W_E[x]. The score is refined
from batch to batch by an exponentially weighted average,

    s^(j) = (ŝ^(j) + α·ŝ^(j−1) + … + α^(j−1)·ŝ^(1)) / (1 + α + … + α^(j−1)),

which lives in embedding space and meets the support's embedding rows once a batch. The estimate is
the mean over all batches of

    z = p(x)/q^(j−1)(x)·1[M(x) = t],        E[z | the past] = Pr[M(x) = t].

Each z is unbiased given the past, so the z are uncorrelated and their spread gives the standard
error, whatever the proposals did. Weights with a heavy tail make a mean that is usually too low,
with a standard error that is too small at the same time, so the interval reaches further up by the
factor 1 + 2k, k the shape of the tail: a rule found on `mini-1l`, held by the tests there and on
enumerable toys.

**Narrow proposals.** The colder, the fewer inputs q reaches; hits beyond them are missed, with no
sign of it in the spread of z. Two things tell. The weight p/q of all samples, hit or not, has the
mean 1: where the tilted batches average m < 1, q has missed part of p, and the upper end is divided
by ∛m (the power was chosen on the study's tuning targets). And the inputs that were found to hit
bound the truth, Pr[M(x) = t] ≥ Σ p(x) over those. An estimate that leaves less than a tenth of
itself to others may know only what q has narrowed to, and gets no interval. Where p and q overlap
by more than half,

    Σ_x min(p(x), q(x)) = E_q[min(p/q, 1)] > ½,

all hits may really have been seen: there it must lie below the bound by two standard errors for
that. (Half and a tenth were chosen on toys of 1,225 inputs and held on others.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import WITNESSES, Cost, Estimate, Job, Problem, best_witnesses
from longshot.evaluate import evaluator_for
from longshot.events import Score
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.methods.base import NEVER_FOUND, Clock, Method, register, require_positive
from longshot.numerics import (
    effective_sample_size,
    log_interval,
    log_mean,
    log_sum_distinct,
    pareto_k,
    relative_error,
    row_keys,
)

ROWS = 4096  # inputs in hand at once, so that many targets do not exhaust the memory


@register
@dataclass(frozen=True)
class ITGIS(Method):
    """Importance sampling from token-wise tilted inputs."""

    name: ClassVar[str] = "itgis"
    needs: ClassVar[Literal["score"]] = "score"
    temperature: float = 1.0
    batch: int | None = None
    """Samples a batch; the square root of the budget unless given, as in the paper."""
    alpha: float = 0.9
    score: Score = "logit"
    """What is climbed; for an event beyond one token always its gap."""

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
            clock, run = Clock(), Run(part, settings, batch)
            for j in range(batches):
                run.step()
                part.progress((j + 1) / batches)
            seconds = clock.seconds / len(part.events)
            estimates += [run.answer(i, seconds) for i in range(len(part.events))]
        return estimates

    def _batch(self, evaluations: int) -> int:
        return min(self.batch or math.isqrt(evaluations), evaluations)


def tilted(
    inputs: ProductInputs,
    rows: Sequence[Float64[Tensor, "_ width"]],
    slope: Float64[Tensor, "target position width"],
    temperature: float,
) -> list[TokenDistribution]:
    """q for each target and free position, group by group.

    `slope` is s in embedding space and `rows` are the embeddings of each group's support.
    """
    proposals = []
    for (p, positions), embedding in zip(inputs.groups, rows, strict=True):
        s = torch.bmm(slope[:, list(positions)], embedding.mT.expand(len(slope), -1, -1))
        proposals.append(p.tilt(s, temperature))
    return proposals


class Batch(NamedTuple):
    """Inputs drawn from the proposals, with log p and the log of p/q."""

    tokens: Int64[Tensor, "target sample position"]
    log_prob: Float64[Tensor, "target sample"]
    log_weight: Float64[Tensor, "target sample"]


def draw(
    inputs: ProductInputs,
    proposals: list[TokenDistribution],
    uniform: Float64[Tensor, "target free sample"],
) -> Batch:
    """One sample for each column of `uniform`, whose rows are the free positions in order."""
    targets, _, samples = uniform.shape
    start = torch.stack([d.support[0] for d in inputs.positions])
    tokens = start.expand(targets, samples, -1).clone()
    log_p, log_q = torch.zeros(2, targets, samples, dtype=torch.float64)
    column = {position: i for i, position in enumerate(inputs.free_positions)}
    for (p, positions), q in zip(inputs.groups, proposals, strict=True):
        index = q.invert(uniform[:, [column[i] for i in positions]].contiguous())
        tokens[:, :, list(positions)] = p.support[index].mT
        log_p += p.log_probs[index].sum(1)
        log_q += q.log_probs.gather(2, index).sum(1)
    return Batch(tokens, log_p, log_p - log_q)


class Run:
    """All targets of a job side by side; each draws from its own generator."""

    def __init__(self, job: Job, settings: ITGIS, batch: int) -> None:
        self.job, self.settings, self.batch = job, settings, batch
        self.evaluator = evaluator_for(job.model, job.events, settings.score, job.inputs)
        self.generators = [job.generator(settings.name, event) for event in job.events]
        targets, length = len(job.events), job.inputs.length
        width = job.model.embedding.shape[1]
        groups = job.inputs.groups
        self.rows = [job.model.embedding[g.distribution.support].double() for g in groups]
        self.owner = torch.arange(targets).repeat_interleave(batch)
        self.numerator = torch.zeros(targets, length, width, dtype=torch.float64)
        self.denominator = 0.0
        self.log_z: list[Tensor] = []
        self.log_weight: list[Tensor] = []
        self.found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in job.events]
        self.hits: list[list[tuple[Tensor, Tensor]]] = [[] for _ in job.events]

    def step(self) -> None:
        """Draw a batch from q^(j−1), record z, and refine the score to s^(j)."""
        job, targets = self.job, len(self.job.events)
        slope = self.numerator / max(self.denominator, 1.0)
        proposals = tilted(job.inputs, self.rows, slope, self.settings.temperature)
        shape = (len(job.inputs.free_positions), self.batch)
        uniform = torch.stack(
            [torch.rand(shape, generator=g, dtype=torch.float64) for g in self.generators]
        )
        tokens, log_prob, log_weight = draw(job.inputs, proposals, uniform)

        rows = tokens.flatten(0, 1)
        evaluation = self.evaluator(rows, self.owner, gradient=True)
        gap = self.evaluator.decide(rows, evaluation.activation, self.owner)
        assert evaluation.gradient is not None
        gradient = evaluation.gradient.reshape(targets, self.batch, *rows.shape[1:], -1)
        self.numerator = gradient.mean(1) + self.settings.alpha * self.numerator
        self.denominator = 1 + self.settings.alpha * self.denominator

        gap = gap.reshape(targets, self.batch)
        self.log_z.append(log_weight.masked_fill(gap <= 0, -math.inf))
        self.log_weight.append(log_weight)
        most = min(WITNESSES, self.batch)
        for i in (gap > 0).any(1).nonzero()[:, 0].tolist():
            hit = gap[i] > 0
            self.hits[i].append((row_keys(tokens[i, hit]), log_prob[i, hit]))
            likeliest = log_prob[i].masked_fill(~hit, -math.inf).topk(most).indices
            kept = likeliest[hit[likeliest]]
            self.found[i].append((tokens[i, kept], gap[i, kept]))

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
        overlap = float(log_weight.clamp(max=0.0).exp().mean())
        found = [torch.cat(pieces) for pieces in zip(*self.hits[i], strict=True)]
        log_found = log_sum_distinct(*found) if found else -math.inf
        reason = no_interval(hits, size, k, error) or narrowed(
            log_probability, error or 0.0, overlap, log_found
        )
        return self.settings.answer(
            job,
            event,
            log_probability=log_probability,
            standard_error=None if error is None else error * math.exp(log_probability),
            interval=(
                interval(log_probability, error, size, k, log_mean_weight)
                if error is not None and k is not None and not reason
                else None
            ),
            no_interval=reason,
            samples=n,
            hits=hits,
            effective_sample_size=size,
            pareto_k=k,
            near_ties=int(self.evaluator.near_ties[i]),
            witnesses=best_witnesses(Problem(job.model, job.inputs, event), self.found[i]),
            statistics={"mean_weight": math.exp(log_mean_weight), "overlap": overlap},
            warnings=() if hits else (NEVER_FOUND,),
            cost=self.cost(i, seconds),
        )

    def cost(self, i: int, seconds: float) -> Cost:
        """What the i-th event took: calls, their gradients, the scores, the unembedding."""
        forwards, backwards, macs = self.evaluator.cost(i)
        groups, width = self.job.inputs.groups, self.job.model.width
        scores = width * sum(len(group.positions) * group.distribution.size for group in groups)
        return Cost(forwards, backwards, macs + len(self.log_z) * scores, seconds)


def interval(
    log_probability: float, error: float, effective: float, k: float, log_mean_weight: float
) -> tuple[float, float]:
    """Student's, whose upper half allows for heavy weights and for inputs that q misses."""
    upward, above = 1 + 2 * max(k, 0.0), max(-log_mean_weight, 0.0) / 3
    return log_interval(log_probability, error, effective - 1, upward=upward, above=above)


def narrowed(log_probability: float, error: float, overlap: float, log_found: float) -> str | None:
    """A sentence when the estimate leaves nothing beyond the inputs that were found to hit."""
    beyond = 2 * error if overlap > 0.5 else math.log(0.9)
    if log_found <= log_probability + beyond:
        return None
    return (
        f"The inputs found to hit ({math.exp(log_found):.1e} together) are at least nine tenths "
        f"of the estimate ({math.exp(log_probability):.1e}): nothing tells of hits beyond them."
    )


def no_interval(hits: int, effective: float, k: float | None, error: float | None) -> str | None:
    """Why the samples bear no interval, or None when they do."""
    if not hits:
        return "No sample hit."
    if effective < 10:
        return f"The hits' weights are worth only {effective:.1f} equal ones."
    if k is None:
        return f"{hits} hits are too few to judge the tail of their weights."
    if k > 0.7 and effective < hits / 2:  # a tail that matters shows in the effective size too
        return f"The weights have a heavy tail (Pareto k = {k:.2f} > 0.7)."
    if error is None:
        return "The samples show no spread."
    return None
