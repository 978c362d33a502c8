"""Splitting: adaptive multilevel splitting, or subset simulation, on the event's score.

An event of probability 1e-8 is a chain of events of probability one tenth. With levels
−∞ = ℓ_0 < ℓ_1 < … < ℓ_T ≤ 0 of the score s, which is positive exactly where the event occurs,

    Pr[s ≥ ℓ_t] = γ_t = Π_{j ≤ t} Pr[s ≥ ℓ_j | s ≥ ℓ_{j−1}],

and each factor is the share of a population of inputs with s ≥ ℓ_{j−1} that reach ℓ_j. A population
is made of the one before: M of its states that reach the level are drawn, each walks P steps that
leave the law given s ≥ ℓ_j as it is, and all M·P states are the next population (waste-free: Dau
and Chopin 2022; the levels: Au and Beck 2001, Cérou and Guyader 2007). A step redraws some
positions of an input from the inputs' own law and is taken where the score still reaches the level:
forward passes only, and where the network has a memory only over the tail that changed.

**Under a changed law.** Inputs that are a product run under p̃ = b·g (`inputs/changed.py`): a pilot
(`last_token.py`) says which last tokens are worth trying, and they come up more often. A step is
proposed by a redraw that leaves b invariant and passes a coin of probability min(1, g(x')/g(x))
before the network sees it. With w = p/p̃ the probability is

    P = Σ_t γ_t·E_p̃[ w·grade·1[s < ℓ_{t+1}] | s ≥ ℓ_t ],      ℓ_{T+1} = ∞,

of whose terms all but the last vanish where the event is not graded.

**Several populations.** One population may lose a kind of input that hits, and is then too low.
Four in each of several rounds, independent of each other, are averaged in proportion to their
calls; their spread is the error. Rounds go on, each twice as large, until it is small enough.

**Unbiased or consistent.** With levels, steps and laws that are fixed before a population starts,
E[γ̂_t·mean(φ)] = E_p̃[φ·1[s ≥ ℓ_t]] for every φ, by induction over t: the mean over M·P states of
chains that keep the law invariant has, given the past, the expectation under the chosen states,
and these were drawn in proportion. So each population's estimate is unbiased. `frozen` does that:
the first round only chooses, the others count. Otherwise levels are quantiles of the population
itself, a bias of order 1/N, and the number of steps depends on what is left of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Job, Problem, Round, best_witnesses
from longshot.evaluate import Evaluator, Tails
from longshot.intervals import Interval, fields_of, of_replicates, upper_bound
from longshot.methods.base import Clock, Method, Need, register, require_positive
from longshot.methods.last_token import pilot
from longshot.methods.populations import REACH, Chains, Population, States, draw_evenly
from longshot.numerics import Replicates, effective_sample_size

# Chosen on hex, camel and english of the shipped models.
POPULATIONS = 4  # that run side by side in a round
FIRST_ROUND = 3400  # calls; later rounds have twice those of the one before
STARTS = 0.35  # the share of a round's calls that are spent on its first population
CHAINS = 40  # of a population in a first round; they grow with the root of a round's calls
MOST_LEVELS = 60
STEPS = (10, 48)  # the fewest and the most that a chain walks at a level
LAST_ALONE = 0.25  # the share of steps that redraw the last position alone
LATE = 1.5  # the others start late: at the place u^(1/1.5) of all free positions
ACCEPTED = 0.35  # of the steps that are tried, by the number of positions they redraw
NOT_REACHED = "No population reached the target: a larger budget may."
LARGEST_ERROR = 0.8  # relative: beyond it the spread between populations bears no interval


@register
@dataclass(frozen=True)
class Splitting(Method):
    """A chain of ever rarer events, each reached by walks from the one before."""

    name: ClassVar[str] = "splitting"
    needs: ClassVar[frozenset[Need]] = frozenset({"rank"})
    relative_error: float = 0.3
    """Rounds go on until the estimate's relative error is below this, or the budget is spent."""
    frozen: bool = False
    """Whether levels, steps and laws are fixed by a first round that does not count: unbiased."""

    def __post_init__(self) -> None:
        require_positive(self, relative_error=self.relative_error)

    def check(self, job: Job) -> None:
        super().check(job)
        least = 8 * POPULATIONS * max(event.calls for event in job.events)
        if job.budget < least:
            raise LongshotError(f"splitting: {job.budget} calls are too few; it needs {least}.")

    def estimate(self, job: Job) -> list[Estimate]:
        return [list(self.rounds(part))[-1] for part in job.parts(1)]

    def rounds(self, job: Job) -> Iterator[Estimate]:
        """The answer for the only event of a job after each round."""
        run, calls = SplittingRun(job, self), float(FIRST_ROUND)
        if self.frozen:
            calls = max(min(calls, job.budget / 4), job.budget / 6)
            run.explore(calls)
        while True:
            run.round(min(calls, run.left / 1.1))
            yield run.answer()
            small = run.mean.student_error <= self.relative_error
            if small or run.left < (1.3 * calls if self.frozen else FIRST_ROUND / 2):
                break
            calls *= 1 if self.frozen else 2
        job.progress(1.0)


class LevelPlan(NamedTuple):
    """What a first round chose for a level: the level, the steps, the positions to redraw."""

    level: float
    steps: int
    redrawn: float


class SplittingRun:
    """The populations of one event, round after round, and what they took."""

    def __init__(self, job: Job, settings: Splitting) -> None:
        self.job, self.settings, (self.event,) = job, settings, job.events
        self.clock, self.generator = Clock(), job.generator(settings.name, self.event)
        self.evaluator = Evaluator(job.model, [self.event], "gap", job.inputs)
        self.law, self.pilot_macs = pilot(job, self.event, self.generator)
        self.free = self.law.free_positions or (job.inputs.length - 1,)
        self.redrawn = max(1.0, len(self.free) / 4)  # positions that a step redraws
        self.step_calls = 0.4  # what a step of a chain takes, until some were seen
        self.schedule: list[LevelPlan] | None = None
        self.populations: list[Population] = []
        self.calls: list[float] = []  # of each population
        self.starts = self.starts_that_hit = self.states = self.tried = self.accepted = 0
        self.log_largest_weight = 0.0
        self.trace: list[Round] = []

    @property
    def macs(self) -> int:
        return self.evaluator.cost(0).macs + self.pilot_macs

    @property
    def spent(self) -> float:
        """What was spent so far, in calls."""
        return self.macs / self.job.call_macs

    @property
    def left(self) -> float:
        return self.job.budget - self.spent

    def round(self, calls: float) -> None:
        """Four more populations that share some calls; then the law learns from what hit."""
        found = self.run(calls)
        self.populations += found
        self.calls += [calls] * len(found)
        if hits := [states for population in self.populations for states in population.found]:
            tokens, _, _, log_mass = (torch.cat(column) for column in zip(*hits, strict=True))
            self.law = self.law.learned(tokens, log_mass)
        self.job.progress(min(self.spent / self.job.budget, 1.0))

    def explore(self, calls: float) -> None:
        """Choose levels, steps and a law by populations that do not count."""
        self.round(calls)
        found, self.populations, self.calls = self.populations, [], []
        steps, redrawn = self.chosen_steps, self.chosen_redrawn
        levels = []
        for t in range(len(steps)):
            reached = [p.levels[t] for p in found if t < len(p.levels)]
            if 2 * len(reached) < len(found):
                break
            levels.append(sorted(reached)[len(reached) // 2])
        rising = [t for t in range(len(levels)) if all(levels[t] > low for low in levels[:t])]
        self.schedule = [LevelPlan(levels[t], steps[t], redrawn[t]) for t in rising]

    def run(self, calls: float) -> list[Population]:
        """Populations side by side, from their starts to the last level that calls allow."""
        limit, count = self.spent + calls, max(2, int(STARTS * calls / POPULATIONS))
        chains = max(2, min(int(CHAINS * math.sqrt(calls / FIRST_ROUND)), count // 5))
        populations = [Population(states) for states in self.start(count)]
        self.chosen_steps: list[int] = []
        self.chosen_redrawn: list[float] = []
        going, worst = populations, [-math.inf]
        while going := [p for p in going if self.raise_level(p, limit)]:
            drawn = [draw_evenly(p.states, chains, self.free[-1], self.generator) for p in going]
            worst.append(min(p.level for p in going))
            steps = self.affordable_steps(limit, chains * len(going), worst)
            self.walk(going, drawn, steps)
        return populations

    def start(self, count: int) -> Iterator[States]:
        """Independent inputs for each population."""
        tokens = self.law.sample(POPULATIONS * count, self.generator)
        least = torch.full((len(tokens),), -math.inf, dtype=torch.float64)
        grade, score = self.evaluator.reach(tokens, least)
        self.starts += len(tokens)
        self.starts_that_hit += int((grade > 0).sum())
        self.log_largest_weight = max(self.log_largest_weight, self.law.log_largest_weight)
        self.states += len(tokens)
        for part in torch.arange(len(tokens)).split(count):
            yield States(
                tokens[part], score[part], grade[part], torch.zeros(count, dtype=torch.float64)
            )

    def raise_level(self, population: Population, limit: float) -> bool:
        """Take a population to its next level; False when it was its last, all collected."""
        states, t = population.states, len(population.levels)
        if self.schedule is None:
            level = population.next_level()
            enough = effective_sample_size(states.grade.log()) >= REACH * len(states.grade)
            ends = level >= 0 or enough or self.spent >= limit or t >= MOST_LEVELS
        else:
            ends = t == len(self.schedule)
            level = math.inf if ends else self.schedule[t].level
        above = torch.zeros_like(states.score, dtype=torch.bool) if ends else states.score >= level
        population.collect(~above, self.law)
        if not above.any():
            return False
        population.rise(level, above)
        return True

    def affordable_steps(self, limit: float, rows: int, worst: list[float]) -> int:
        """How many steps a chain may walk, if the levels to come go on as the last ones did.

        Chains are run whole when they are drawn, and then step by step.
        """
        t, (fewest, most) = len(worst) - 2, STEPS
        if self.schedule is not None:
            return self.schedule[t].steps
        ahead = 5.0
        if t:
            ahead = 1 + 1.2 * max(-worst[-1], 0.0) / max(worst[-1] - worst[-2], 0.05)
        for_steps = (limit - self.spent) / rows - 0.6 * (ahead - 1)
        steps = int(for_steps / (ahead * self.step_calls))
        return min(max(steps, fewest), most)

    def walk(self, populations: list[Population], drawn: list[States], steps: int) -> None:
        """Walk from the drawn states; all that are visited are the populations' next states."""
        if self.schedule is not None:
            self.redrawn = self.schedule[len(self.chosen_steps)].redrawn
        x = Chains.of(drawn, [p.level for p in populations], self.law)
        tails = Tails(
            self.evaluator, torch.zeros(len(x.score), dtype=torch.int64), x.tokens.shape[1]
        )
        tails.remember(x.tokens)
        after, visited = self.spent, [x]
        worst_step = len(x.score) * self.event.calls
        while len(visited) < steps and self.left >= worst_step:
            x = self.step(x, tails)
            visited.append(x)
        self.chosen_steps.append(steps)
        self.chosen_redrawn.append(self.redrawn)
        self.states += len(x.score) * len(visited)
        if len(visited) > 1:
            self.step_calls = max((self.spent - after) / len(x.score) / (len(visited) - 1), 0.02)
        for i, (population, states) in enumerate(zip(populations, drawn, strict=True)):
            rows = slice(i * len(states.score), (i + 1) * len(states.score))
            population.states = States(
                torch.cat([y.tokens[rows] for y in visited]),
                torch.cat([y.score[rows] for y in visited]),
                torch.cat([y.grade[rows] for y in visited]),
                states.log_weight.repeat(len(visited)),
            )

    def step(self, x: Chains, tails: Tails) -> Chains:
        """One step of every chain: a part of each input redrawn from a common position on."""
        generator, free = self.generator, self.free
        u, alone = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
        place, share = len(free) - 1, 1.0
        if alone >= LAST_ALONE:
            place = int(u ** (1 / LATE) * len(free))
            share = min(1.0, self.redrawn / (len(free) - place))
        tokens = self.law.redraw(x.tokens, generator, free[place], share)
        log_factor = self.law.log_factor(tokens)
        coin = torch.rand(len(tokens), generator=generator, dtype=torch.float64).log()
        proposed = (coin < log_factor - x.log_factor) & (tokens != x.tokens).any(1)
        rows = proposed.nonzero()[:, 0]
        if not len(rows):
            return x
        grade, score = tails.try_some(rows, tokens[rows], free[place], x.level[rows])
        reached = score >= x.level[rows]
        self.tried, self.accepted = self.tried + len(rows), self.accepted + int(reached.sum())
        if self.schedule is None and share < 1:
            grow = math.exp(2 * (float(reached.double().mean()) - ACCEPTED))
            self.redrawn = min(max(self.redrawn * grow, 1.0), float(len(free)))
        moved = rows[reached]
        return x.moved(moved, tokens[moved], score[reached], grade[reached], log_factor[moved])

    @property
    def log_estimates(self) -> Float64[Tensor, " population"]:
        return torch.tensor([p.log_probability for p in self.populations], dtype=torch.float64)

    @property
    def mean(self) -> Replicates:
        """The populations together, each counting by its calls."""
        return Replicates.of(self.log_estimates, torch.tensor(self.calls, dtype=torch.float64))

    @property
    def bound(self) -> Interval:
        """What the starts alone support."""
        return upper_bound(
            self.starts, self.starts_that_hit, log_largest_weight=self.log_largest_weight
        )

    @property
    def hits(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The inputs that hit, with their scores and grades."""
        return [(s.tokens, s.score, s.grade) for p in self.populations for s in p.found]

    def answer(self) -> Estimate:
        """The estimate from all populations so far."""
        mean = self.mean
        found = of_replicates(mean.log_mean, mean.relative_error, mean.size)
        if mean.relative_error is not None and mean.relative_error > LARGEST_ERROR:
            found = (
                f"The populations differ too much (a relative error of {mean.relative_error:.1f}): "
                f"more calls than {self.job.budget} would tell."
            )
        hits = sum(population.hits for population in self.populations)
        fields = fields_of(found, self.bound)
        error = mean.relative_error
        forwards = math.ceil(self.spent)
        log_p = min(mean.log_mean, 0.0)
        self.trace.append(Round(forwards, log_p, fields["interval"]))
        statistics = {
            "populations": float(len(self.populations)),
            "without_a_hit": float((self.log_estimates == -math.inf).sum()),
            "levels": max(float(len(p.levels)) for p in self.populations),
        }
        problem = Problem(self.job.model, self.job.inputs, self.event)
        return self.settings.answer(
            self.job,
            self.event,
            log_probability=log_p,
            standard_error=None if error is None else error * math.exp(log_p),
            **fields,
            samples=self.states,
            hits=hits,
            effective_sample_size=1 / error**2 if error else None,
            acceptance_rate=self.accepted / self.tried if self.tried else None,
            near_ties=int(self.evaluator.near_ties[0]),
            witnesses=best_witnesses(problem, self.hits),
            statistics=statistics,
            warnings=() if hits else (NOT_REACHED,),
            cost=Cost(forwards, 0, self.macs, self.clock.seconds),
            trace=tuple(self.trace),
        )
