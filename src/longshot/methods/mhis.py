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

consistent, with a bias of order 1/n. (The paper prints the weight inverted.)

Every one-position kernel leaves q invariant, so a stationary chain has the law q after any sequence
of positions. All chains of all targets move at the same position in the same step, in sweeps from
the first free one to the last. Chains are independent, and the spread between them gives the
standard error. It fails in both directions. Upwards, where no chain comes back to the low scores
of p: Σ w is too small, which the starts tell, as they are draws of p. Downwards, and on the shipped
models mostly so, where chains do not mix: they miss kinds of input that hit, and nothing tells.

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
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Job, Problem, best_witnesses
from longshot.evaluate import Evaluation, Evaluator, Tails
from longshot.events import Score
from longshot.inputs import TokenDistribution, as_product
from longshot.intervals import fields_of
from longshot.methods.base import NEVER_FOUND, Clock, Method, Need, register, require_positive
from longshot.methods.chains import disagreement, interval, ratio, starts_reached
from longshot.numerics import autocorrelated_size, chain_effective_size, pareto_k

ROWS = 512  # chains in hand at once, each with what the network remembers of it


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

    def __post_init__(self) -> None:
        require_positive(self, temperature=self.temperature, chains=self.chains)
        if not 0 <= self.burn_in < 1:
            raise LongshotError(f"mhis: burn_in is a share below 1, not {self.burn_in}.")

    def estimate(self, job: Job) -> list[Estimate]:
        estimates = []
        for walk, steps, seconds in self._walks(job):
            count = len(walk.job.events)
            estimates += [walk.answer(i, steps, seconds / count) for i in range(count)]
        return estimates

    def chains_of(self, job: Job) -> list[dict[str, Float64[Tensor, "chain step"]]]:
        """What each event's chains went through after burn-in, for `longshot.to_arviz`."""
        found = []
        for walk, _, _ in self._walks(job):
            for i in range(len(walk.job.events)):
                score = torch.stack([s[i] for s in walk.scores], 1)
                grade = torch.stack([g[i] for g in walk.grades], 1)
                found.append({"score": score, "grade": grade})
        return found

    def _walks(self, job: Job) -> Iterator[tuple[Walk, int, float]]:
        """The chains of one part of the job after the other, with their steps and seconds."""
        for part in job.parts(max(1, ROWS // self._plan(job.budget)[0])):
            chains, calls = self._plan(part.evaluations)
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
            self._plan(part.evaluations)

    def _plan(self, evaluations: int) -> tuple[int, int]:
        """How many chains, and the calls of each."""
        chains = self.chains or max(2, math.isqrt(evaluations // 96))
        calls = evaluations // chains
        if calls < 4:
            raise LongshotError(f"mhis: {evaluations} calls are too few for {chains} chains.")
        return chains, calls


def proposal(
    p: TokenDistribution,
    embedding: Float64[Tensor, "support width"],
    slope: Float[Tensor, "target chain width"],
    temperature: float,
) -> TokenDistribution:
    """φ for each chain, from the gradient at the position that moves."""
    rows = embedding.mT.expand(len(slope), -1, -1)
    return p.tilt(torch.bmm(slope.double(), rows).cpu(), temperature)


def log_acceptance(
    p: TokenDistribution,
    forward: TokenDistribution,
    backward: TokenDistribution,
    old: Int64[Tensor, "target chain"],
    new: Int64[Tensor, "target chain"],
    climb: Float64[Tensor, "target chain"],
) -> Float64[Tensor, "target chain"]:
    """log r of moving from index `old` to `new`; `climb` is (M_t(x') − M_t(x))/T."""
    there = forward.log_probs.gather(2, new[..., None])[..., 0]
    back = backward.log_probs.gather(2, old[..., None])[..., 0]
    return p.log_probs[new] - p.log_probs[old] + climb + back - there


class State(NamedTuple):
    """Where the chains are: all that the next step needs."""

    tokens: Int64[Tensor, "target chain position"]
    score: Float64[Tensor, "target chain"]
    gradient: Float[Tensor, "target chain position width"]
    activation: Float[Tensor, "target chain width"]


class Proposal(NamedTuple):
    """Where the chains might go, and log r of going there."""

    state: State
    log_r: Float64[Tensor, "target chain"]
    differs: Bool[Tensor, "target chain"]


class Walk:
    """The chains of all targets of a job; each target draws from its own generator."""

    def __init__(self, job: Job, settings: MHIS, chains: int) -> None:
        self.job, self.settings, self.chains = job, settings, chains
        self.inputs = as_product(job.inputs, settings.name)
        self.evaluator = Evaluator(job.model, job.events, settings.score, job.inputs)
        self.generators = [job.generator(settings.name, event) for event in job.events]
        self.owner = torch.arange(len(job.events)).repeat_interleave(chains)
        embedding, laws = job.model.embedding, [g.distribution for g in self.inputs.groups]
        self.embedding = {p: embedding[p.support.to(embedding.device)].double() for p in laws}
        self.tails = Tails(self.evaluator, self.owner, job.inputs.length)
        self.state = self.at(torch.stack([job.inputs.sample(chains, g) for g in self.generators]))
        self.start = self.state.score
        self.accepted = torch.zeros(len(job.events), dtype=torch.int64)
        self.grade = torch.zeros(len(job.events), chains, dtype=torch.float64)
        self.stale = torch.ones(len(job.events), chains, dtype=torch.bool)
        self.scores: list[Tensor] = []
        self.grades: list[Tensor] = []
        self.found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in job.events]

    def affordable(self, calls: int) -> int:
        """How many steps so many evaluations pay for: of the start, the moves, and every sweep."""
        free = len(self.inputs.free_positions)
        sweeps = math.ceil(calls / (free + 1)) if self.tails.resumes and free > 1 else 1
        return calls - sweeps

    def at(self, tokens: Int64[Tensor, "target chain position"]) -> State:
        """The state of chains that are there, with its gradient everywhere."""
        return self._state(tokens, self.tails.whole(tokens.flatten(0, 1)))

    def _state(self, tokens: Int64[Tensor, "target chain position"], rows: Evaluation) -> State:
        assert rows.gradient is not None
        shape = tokens.shape[:2]
        return State(
            tokens,
            rows.score.double().reshape(shape),
            rows.gradient.reshape(*shape, *rows.gradient.shape[1:]),
            rows.activation.reshape(*shape, -1),
        )

    def propose(self, i: int, uniform: Float64[Tensor, "target chain"]) -> Proposal:
        """A new token at position i for every chain, where φ's distribution passes `uniform`."""
        self.tails.put_back(slice(None))  # a proposal that was never decided
        if i < self.tails.since:
            self.state = self.at(self.state.tokens)
        x, p, temperature = self.state, self.inputs.positions[i], self.settings.temperature
        forward = proposal(p, self.embedding[p], x.gradient[:, :, i], temperature)
        old, new = p.index_of(x.tokens[:, :, i]), forward.invert(uniform[..., None])[..., 0]
        tokens = x.tokens.clone()
        tokens[:, :, i] = p.support[new]
        y = self._state(tokens, self.tails.changed(tokens.flatten(0, 1), i))
        backward = proposal(p, self.embedding[p], y.gradient[:, :, i], temperature)
        climb = (y.score - x.score) / temperature
        return Proposal(y, log_acceptance(p, forward, backward, old, new, climb), old != new)

    def move(self, i: int) -> None:
        """One Metropolis–Hastings step of every chain at position i."""
        shape = (2, self.chains)
        draws = [torch.rand(shape, generator=g, dtype=torch.float64) for g in self.generators]
        choice, threshold = torch.stack(draws, 1)
        y, log_r, differs = self.propose(i, choice)
        accept = threshold.log() < log_r
        self.tails.put_back((~accept).flatten().nonzero()[:, 0])
        self.state = choose(accept, y, self.state)
        self.accepted += accept.sum(1)
        self.stale |= accept & differs

    def record(self) -> None:
        """Note score and grade of every chain; only states that changed are unembedded."""
        if self.stale.any():
            changed = self.stale.flatten()
            tokens, v = (
                x.flatten(0, 1)[changed] for x in (self.state.tokens, self.state.activation)
            )
            decided = self.evaluator.decide(tokens, v, self.owner[changed])
            self.grade[self.stale] = decided.grade
            gap = torch.zeros_like(self.grade)
            gap[self.stale] = decided.gap
            fresh = self.stale & (self.grade > 0)
            for i in fresh.any(1).nonzero()[:, 0].tolist():
                self.found[i].append((self.state.tokens[i, fresh[i]], gap[i, fresh[i]]))
            self.stale.zero_()
        self.scores.append(self.state.score)
        self.grades.append(self.grade.clone())

    def answer(self, i: int, steps: int, seconds: float) -> Estimate:
        """The estimate of the i-th event from the recorded states."""
        job, event = self.job, self.job.events[i]
        scores = torch.stack([s[i] for s in self.scores], 1)  # chain × step
        grade = torch.stack([g[i] for g in self.grades], 1)
        hit = grade > 0
        log_weight = -scores / self.settings.temperature
        log_probability, error = ratio(log_weight, grade)
        hits, k = int(hit.sum()), pareto_k((log_weight + grade.log())[hit])
        worst = disagreement(log_weight, hit)
        reached = starts_reached(log_weight, -self.start[i] / self.settings.temperature)
        warnings = () if hits else (NEVER_FOUND,)
        statistics = {
            "r_hat": worst,
            "independent_draws": autocorrelated_size(scores),
            "log_z": math.log(hit.numel()) - float(torch.logsumexp(log_weight.flatten(), 0)),
            "chains_with_hits": float(hit.any(1).sum()),
            "starts_reached": float(reached),
        }
        return self.settings.answer(
            job,
            event,
            log_probability=log_probability,
            standard_error=None if error is None else error * math.exp(log_probability),
            **fields_of(interval(log_probability, error, hit, reached, worst)),
            samples=hit.numel(),
            hits=hits,
            effective_sample_size=chain_effective_size(log_weight + grade.log()),
            pareto_k=k,
            acceptance_rate=float(self.accepted[i]) / (steps * self.chains),
            near_ties=int(self.evaluator.near_ties[i]),
            witnesses=best_witnesses(Problem(job.model, job.inputs, event), self.found[i]),
            statistics={name: x for name, x in statistics.items() if not math.isnan(x)},
            warnings=warnings,
            cost=self.cost(i, steps, seconds),
        )

    def cost(self, i: int, steps: int, seconds: float) -> Cost:
        """What the i-th event took: calls, their gradients, two proposals a step, the decisions."""
        forwards, backwards, macs = self.evaluator.cost(i)
        supports = [d.size for d in self.inputs.positions if not d.is_fixed]
        width = self.job.model.width
        scores = 2 * self.chains * steps * width * sum(supports) // len(supports)
        return Cost(forwards, backwards, macs + scores, seconds)


def choose(accept: Bool[Tensor, "target chain"], new: State, old: State) -> State:
    """The new state where it was accepted, the old one elsewhere."""
    return State(
        *(
            torch.where(accept.reshape(*accept.shape, *(1,) * (a.ndim - 2)).to(a.device), a, b)
            for a, b in zip(new, old, strict=True)
        )
    )
