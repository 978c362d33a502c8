"""The chains of Metropolis–Hastings importance sampling: the proposal, the ratio, the walk."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from longshot.estimate import Cost, Job
from longshot.evaluate import Evaluation, Evaluator, Tails
from longshot.inputs import TokenDistribution, as_product
from longshot.methods.base import Activations

if TYPE_CHECKING:
    from longshot.methods.mhis import MHIS


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

    def recorded(self, i: int) -> tuple[Tensor, Tensor]:
        """Score and grade of the i-th event's chains after burn-in, each chain × step."""
        score, grade = (torch.stack([x[i] for x in seen], 1) for seen in (self.scores, self.grades))
        return score, grade

    def plain_scores(
        self, i: int, count: int, drawn: Activations | None
    ) -> Float64[Tensor, " count"]:
        """The i-th event's score on plain draws; an event beyond one token runs them itself."""
        owner = torch.full((count,), i, dtype=torch.int64)
        if drawn is None or self.job.is_path:
            generator = self.job.shared_generator("activations")
            tokens = self.job.inputs.sample(self.job.budget, generator)[:count]
            return self.evaluator(tokens, owner).score.double().cpu()
        reader = self.evaluator.passes[0].reader
        reader.note(owner)
        return reader.read(drawn.values[:count], owner).score.double().cpu()

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
