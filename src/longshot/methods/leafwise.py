"""ITGIS leaf by leaf: a tilt of its own given each of the last tokens that matter.

A rare output mostly lives on a few values y of the last free token, and what the other tokens must
be depends on y. One product distribution for all of them is ITGIS's ceiling. So with S the values
that matter,

    P = Σ_{y ∈ S} p(y)·E_{q_y}[ p(x)/q_y(x)·1[hit] ]  +  E_{x ~ p, y ~ r}[ p(y)/r(y)·1[hit] ],

x being the tokens before y, and r a law of the values outside S. Each q_y is a mixture of products

    q_y = (1/J)·Σ_j Π_i q_{y,i,j},     q_{y,i,j}(x) ∝ p_i(x)·exp(s_{y,i}(x)/T_{y,j}),

whose scores s_y are averaged gradients of the gap given y, as ITGIS's are (`itgis.py`), and whose
temperatures bring a linear gap .3, .5 and .7 of its way to the boundary: the gap is concave along
the tilt, and tilting all the way leaves many hits with tiny weights. Weighting by the mixture
(Veach and Guibas's balance heuristic) bounds the weights by those of the warmest.

A round of splitting (`splitting.py`) finds S, a few batches with gradients climb, a few draws tell
how many each leaf deserves; all of it is charged and none of it counts. The draws that count come
from fixed proposals: independent, forward passes only, and the estimate is unbiased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Job, Problem, best_witnesses
from longshot.evaluate import Evaluator
from longshot.evaluate.blocks import GRAIN
from longshot.events import Event
from longshot.inputs import (
    ChangedInputs,
    ProductInputs,
    Scores,
    TokenDistribution,
    as_product,
    boundary_temperature,
    draw,
    log_tilt,
    tilted,
    token_scores,
)
from longshot.intervals import fields_of, of_weighted_draws
from longshot.methods.base import NEVER_FOUND, Clock, Method, Need, register
from longshot.methods.splitting import Splitting, SplittingRun
from longshot.numerics import effective_sample_size, log_mean, pareto_k, relative_error

# Chosen on camel of mini-1l and mini-2l.
WAYS = (0.7, 0.5, 0.3)  # to the boundary, of the products of each mixture
CLIMB = 0.6  # and where the gradients are taken
ENDS = (0.05, 20.0)  # of the temperature
MOST_LEAVES = 32
BATCHES, BATCH = 8, (8, 64)  # with gradients, of each leaf; the first, and the others at most
GRADIENT = 3.5  # what one costs, in calls, at most
KEPT = 0.9  # of the running sum of gradients from batch to batch
PILOT, OTHERS = 0.25, 0.1  # the shares of the budget for splitting and for other leaves
CLIMBING, LOOK = 0.4, 0.15  # the shares of what leaves cost for gradients and for a first look
DEARER = 1.35  # a draw that counts than one of the first look, where more of them hit
DEAREST = 4  # draws for a call, at most: one that misses is not unembedded whole
EVEN = 0.2  # the share of the draws that all leaves have alike
ROWS = 2048
LEAST = 512  # calls


@register
@dataclass(frozen=True)
class Leafwise(Method):
    """Importance sampling from inputs tilted given each last token that matters."""

    name: ClassVar[str] = "leafwise"
    needs: ClassVar[frozenset[Need]] = frozenset({"token", "score", "product"})

    def check(self, job: Job) -> None:
        super().check(job)
        if len(as_product(job.inputs, self.name).free_positions) < 2:
            raise LongshotError("leafwise: with one free position there is nothing to tilt.")
        if job.budget < LEAST:
            raise LongshotError(f"leafwise: {job.budget} calls are too few; it needs {LEAST}.")

    def estimate(self, job: Job) -> list[Estimate]:
        return [self._estimate(part, part.events[0]) for part in job.parts(1)]

    def _estimate(self, job: Job, event: Event) -> Estimate:
        run = LeafRun(job, event, job.generator(self.name, event))
        pilot = SplittingRun(replace(job, budget=int(PILOT * job.budget)), Splitting())
        pilot.round(pilot.left / 1.1)
        left = job.budget - pilot.spent
        law = favoured_last(pilot, run.last)
        drawn = run.draws(law, left - OTHERS * job.budget)
        other = run.count_others(drawn.leaves, law, int((left - run.spent) / drawn.price))
        job.progress(1.0)
        return run.answer(self, pilot, [*drawn.strata, *other])


def favoured_last(run: SplittingRun, last: TokenDistribution) -> Float64[Tensor, " token"]:
    """How much a run of splitting has come to favour each last token."""
    return run.law.last.probabilities if isinstance(run.law, ChangedInputs) else last.probabilities


@dataclass(frozen=True)
class FewLeaves:
    """The last tokens that matter, with their places in the support and their probabilities."""

    place: Int64[Tensor, " leaf"]
    token: Int64[Tensor, " leaf"]
    log_prob: Float64[Tensor, " leaf"]


@dataclass(frozen=True)
class Stratum:
    """Draws that count for one leaf, or for all the others: log of p(y)·p/q·grade."""

    tokens: Int64[Tensor, "draw position"]
    log_value: Float64[Tensor, " draw"]
    score: Float64[Tensor, " draw"]


@dataclass(frozen=True)
class LeafDraws:
    """Draws that count, leaf by leaf, with the proposals that they come from."""

    leaves: FewLeaves
    ways: list[Scores]
    strata: list[Stratum]
    price: float
    """Of a draw that mostly misses, in calls."""


class LeafRun:
    """The stages of one event, and what they took."""

    def __init__(self, job: Job, event: Event, generator: torch.Generator) -> None:
        self.job, self.event, self.generator, self.clock = job, event, generator, Clock()
        self.inputs = as_product(job.inputs, "leafwise")
        self.evaluator = Evaluator(job.model, [event], "gap", job.inputs)
        self.k = self.inputs.free_positions[-1]
        self.last = self.inputs.positions[self.k]
        before = list(self.inputs.positions)
        before[self.k] = TokenDistribution.fixed(int(self.last.support[0]))
        self.before = ProductInputs(job.inputs.name, before)  # the tokens that are tilted
        embedding = job.model.embedding
        supports = [group.distribution.support for group in self.before.groups]
        self.rows = [embedding[s.to(embedding.device)].double() for s in supports]
        self.score_macs = 0

    @property
    def macs(self) -> int:
        return self.evaluator.cost(0).macs + self.score_macs

    @property
    def spent(self) -> float:
        """What was spent so far, in calls."""
        return self.macs / self.job.call_macs

    def draws(self, law: Float64[Tensor, " token"], calls: float) -> LeafDraws:
        """Climb, look, and draw what counts: some calls for the leaves that a law favours."""
        end = self.spent + calls
        leaves = self.choose_leaves(law, CLIMBING * calls)
        ways = self.climb(leaves, CLIMBING * calls)
        before = self.spent
        first = self.count(leaves, ways, self.even(leaves, LOOK * calls))
        drawn = sum(len(stratum.log_value) for stratum in first)
        price = min(max((self.spent - before) / drawn, 1 / DEAREST), 1.0)
        left = int((end - self.spent) / (DEARER * price)) - 1
        strata = self.count(leaves, ways, self.allotted(first, left))
        return LeafDraws(leaves, ways, strata, price)

    def choose_leaves(self, law: Float64[Tensor, " token"], calls: float) -> FewLeaves:
        """The last tokens that a law favours, as many as can be climbed, the best first."""
        favoured = law.masked_fill(law < self.last.probabilities, 0.0)
        room = int(calls / (GRADIENT * BATCHES * BATCH[0]))
        most = min(max(room, 1), MOST_LEAVES, max(int((favoured > 0).sum()), 1))
        place = favoured.topk(most).indices
        return FewLeaves(place, self.last.support[place], self.last.log_probs[place])

    def climb(self, leaves: FewLeaves, calls: float) -> list[Scores]:
        """s/T of every leaf for each way to the boundary, from gradients at tilted inputs."""
        n, width = len(leaves.place), self.job.model.embedding.shape[1]
        shape, device = (n, self.inputs.length, width), self.job.model.embedding.device
        total, weight = torch.zeros(shape, dtype=torch.float64, device=device), 0.0
        gap = torch.zeros(n, dtype=torch.float64)  # given each leaf, on average
        scores, before = self._scores(total), self.spent
        batch = int(min(calls / (GRADIENT * BATCHES * n), BATCH[0])) // GRAIN * GRAIN or GRAIN
        for step in range(BATCHES):
            tokens, _ = self._draw(leaves, self._tilt(scores, gap, CLIMB), batch)
            rows = tokens.flatten(0, 1)
            owner = torch.zeros(len(rows), dtype=torch.int64)
            found = self.evaluator(rows, owner, gradient=True)
            assert found.gradient is not None
            slope = found.gradient.double().unflatten(0, (n, batch)).mean(1)
            total, weight = slope + KEPT * total, 1 + KEPT * weight
            if not step:
                gap = found.score.double().cpu().view(n, batch).mean(1)
                price = (self.spent - before) / batch  # of a gradient for every leaf
                room = (calls - self.spent + before) / (price * (BATCHES - 1))
                batch = int(min(room, BATCH[1])) // GRAIN * GRAIN or GRAIN
            scores = self._scores(total / weight)
        return [self._tilt(scores, gap, way) for way in WAYS]

    def _scores(self, slope: Float64[Tensor, "leaf position width"]) -> Scores:
        groups, width = self.before.groups, slope.shape[2]
        sizes = sum(len(group.positions) * group.distribution.size for group in groups)
        self.score_macs += len(slope) * width * sizes
        return token_scores(self.before, self.rows, slope)

    def _tilt(self, scores: Scores, gap: Float64[Tensor, " leaf"], way: float) -> Scores:
        """s/T with the temperatures that bring a linear gap so much of its way to 0."""
        temperature = boundary_temperature(self.before, scores, way * gap, ENDS)
        return [s / temperature[:, None, None] for s in scores]

    def _draw(
        self, leaves: FewLeaves, tilts: Scores, n: int
    ) -> tuple[Int64[Tensor, "leaf draw position"], Float64[Tensor, "leaf draw"]]:
        """Inputs that end in each leaf, and the log of p/q of what comes before it."""
        shape = (len(leaves.place), len(self.before.free_positions), n)
        uniform = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        one = torch.ones(len(leaves.place), dtype=torch.float64)
        drawn = draw(self.before, tilted(self.before, tilts, one), uniform)
        drawn.tokens[:, :, self.k] = leaves.token[:, None]
        return drawn.tokens, drawn.log_weight

    def even(self, leaves: FewLeaves, calls: float) -> list[int]:
        """As many draws for each leaf."""
        return [max(int(calls / len(leaves.place)), len(WAYS))] * len(leaves.place)

    def allotted(self, first: list[Stratum], calls: int) -> list[int]:
        """Draws in proportion to the deviation that a first look saw, and a few for all."""
        log_value = [stratum.log_value for stratum in first]
        largest = max(float(v.max()) for v in log_value)
        share = torch.full((len(first),), 1 / len(first), dtype=torch.float64)
        if largest > -math.inf:
            spread = torch.stack([(v - largest).exp().std() for v in log_value])
            root = spread.sqrt()  # evener than the spread, which a look of a few draws misjudges
            share = EVEN * share + (1 - EVEN) * root / root.sum().clamp(min=1e-300)
        return [max(int(s * calls), len(WAYS)) for s in share.tolist()]

    def count(self, leaves: FewLeaves, ways: list[Scores], numbers: list[int]) -> list[Stratum]:
        """Draws of each leaf, in equal parts from the products of its mixture."""
        found = []
        for i, number in enumerate(numbers):
            one = FewLeaves(*(each[i : i + 1] for each in vars(leaves).values()))
            tilts = [[s[i : i + 1] for s in scores] for scores in ways]
            tokens = torch.cat([self._draw(one, t, number // len(ways))[0][0] for t in tilts])
            found.append(self._stratum(tokens, self._log_weight(leaves, ways, i, tokens)))
        return found

    def _log_weight(
        self, leaves: FewLeaves, ways: list[Scores], i: int, tokens: Int64[Tensor, "draw position"]
    ) -> Float64[Tensor, " draw"]:
        """log of p(y)·p/q_y of inputs that end in leaf i."""
        tilts = [[s[i : i + 1] for s in scores] for scores in ways]
        log_ratio = torch.stack([log_tilt(self.before, t, tokens) for t in tilts])
        return math.log(len(ways)) - log_ratio.logsumexp(0) + leaves.log_prob[i]

    def log_weights(
        self, drawn: LeafDraws, tokens: Int64[Tensor, "row position"]
    ) -> Float64[Tensor, " row"]:
        """log of p/q of any inputs, q the law of all draws together; inf where none could be."""
        found = torch.full((len(tokens),), math.inf, dtype=torch.float64)
        n = sum(len(stratum.log_value) for stratum in drawn.strata)
        for i, stratum in enumerate(drawn.strata):
            rows = (tokens[:, self.k] == drawn.leaves.token[i]).nonzero()[:, 0]
            scale = math.log(n / len(stratum.log_value))
            found[rows] = self._log_weight(drawn.leaves, drawn.ways, i, tokens[rows]) + scale
        return found

    def count_others(
        self, leaves: FewLeaves, law: Float64[Tensor, " token"], number: int
    ) -> list[Stratum]:
        """Plain inputs that end in none of the leaves, by a law of last tokens."""
        law = law.index_fill(0, leaves.place, 0.0)
        if number <= 0 or not law.any():
            return []
        law = law / law.sum()
        place = torch.multinomial(law, number, replacement=True, generator=self.generator)
        tokens = self.before.sample(number, self.generator)
        tokens[:, self.k] = self.last.support[place]
        return [self._stratum(tokens, self.last.log_probs[place] - law[place].log())]

    def _stratum(self, tokens: Tensor, log_weight: Float64[Tensor, " draw"]) -> Stratum:
        decided = [
            self.evaluator.reach(rows, torch.zeros(len(rows), dtype=torch.float64))
            for rows in tokens.split(ROWS)
        ]
        grade, score = (torch.cat(column) for column in zip(*decided, strict=True))
        return Stratum(tokens, log_weight + grade.log(), score)

    def answer(self, method: Leafwise, pilot: SplittingRun, strata: list[Stratum]) -> Estimate:
        """The strata's means together, as one mean of draws that are weighted by their stratum."""
        job, log_z = self.job, as_one_mean(strata)
        hit = log_z > -math.inf
        log_p, error = min(log_mean(log_z), 0.0), relative_error(log_z)
        size, k = effective_sample_size(log_z), pareto_k(log_z[hit])
        macs = self.macs + pilot.macs
        return method.answer(
            job,
            self.event,
            log_probability=log_p,
            standard_error=None if error is None else error * math.exp(log_p),
            **fields_of(of_weighted_draws(log_p, error, size, k), pilot.bound),
            samples=len(log_z),
            hits=int(hit.sum()),
            effective_sample_size=size,
            pareto_k=k,
            near_ties=int(self.evaluator.near_ties[0]),
            witnesses=best_witnesses(Problem(job.model, job.inputs, self.event), hits_of(strata)),
            statistics={"leaves": float(len(strata))},
            warnings=() if hit.any() else (NEVER_FOUND,),
            cost=Cost(math.ceil(macs / job.call_macs), 0, macs, self.clock.seconds),
        )


def as_one_mean(strata: list[Stratum]) -> Float64[Tensor, " draw"]:
    """Values whose mean is the sum of the strata's means."""
    n = sum(len(stratum.log_value) for stratum in strata)
    return torch.cat([s.log_value + math.log(n / len(s.log_value)) for s in strata])


def hits_of(strata: list[Stratum]) -> list[tuple[Tensor, Tensor]]:
    """The draws that hit, with their scores."""
    return [
        (s.tokens[hits], s.score[hits])
        for s in strata
        if len(hits := (s.log_value > -math.inf).nonzero()[:, 0])
    ]
