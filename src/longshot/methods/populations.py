"""Populations of splitting: states above a level, what they add up to, and who goes on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from longshot.inputs import Law

REACH = 0.1  # the share of a population that reaches the next level
EVENNESS = 0.3  # the power by which last tokens that hold much of a population give way


class States(NamedTuple):
    """Inputs of one population with score and grade, and the weights that drawing left them."""

    tokens: Int64[Tensor, "state position"]
    score: Float64[Tensor, " state"]
    grade: Float64[Tensor, " state"]
    log_weight: Float64[Tensor, " state"]

    def at(self, chosen: Tensor) -> States:
        return States(*(each[chosen] for each in self))


@dataclass
class Population:
    """States of the law p̃ given that the score reaches the last of `levels`, whose γ̂ is known."""

    states: States
    levels: list[float] = field(default_factory=list)
    log_gamma: float = 0.0
    found: list[States] = field(default_factory=list)
    """States that hit, each weighted by its part of the probability."""

    @property
    def level(self) -> float:
        return self.levels[-1] if self.levels else -math.inf

    def next_level(self) -> float:
        """The level that a tenth of the states reach, above the present one; inf if none is."""
        score = self.states.score
        level = float(score.topk(min(max(int(REACH * len(score)), 2), len(score))).values[-1])
        if level <= self.level:
            higher = score[score > self.level]
            level = float(higher.min()) if len(higher) else math.inf
        return level

    def collect(self, chosen: Bool[Tensor, " state"], law: Law) -> None:
        """Note which of the chosen states hit, with γ̂·w·grade as their part of the probability."""
        states = self.states
        hit = (chosen & (states.grade > 0)).nonzero()[:, 0]
        if len(hit):
            some, total = states.at(hit), states.log_weight.logsumexp(0)
            part = self.log_gamma + some.log_weight - total + some.grade.log()
            self.found.append(some._replace(log_weight=part + law.log_weight(some.tokens)))

    def rise(self, level: float, above: Bool[Tensor, " state"]) -> None:
        """Leave the states behind that do not reach the level."""
        before = self.states.log_weight.logsumexp(0)
        self.states = self.states.at(above)
        self.log_gamma += float(self.states.log_weight.logsumexp(0) - before)
        self.levels.append(level)

    @property
    def log_probability(self) -> float:
        parts = [states.log_weight.logsumexp(0) for states in self.found]
        return float(torch.stack(parts).logsumexp(0)) if parts else -math.inf

    @property
    def hits(self) -> int:
        return sum(len(states.score) for states in self.found)


def draw_evenly(states: States, count: int, column: int, generator: torch.Generator) -> States:
    """`count` of the states by systematic sampling in the order of their tokens at a position.

    A token with the share W of the weight is drawn with a share in proportion to W^(1 − EVENNESS),
    so that rare kinds of input stay, and its states carry the weight that is left.
    """
    _, kind = states.tokens[:, column].unique(return_inverse=True)
    weight = states.log_weight.softmax(0)
    share = torch.zeros(int(kind.max()) + 1, dtype=torch.float64).index_add(0, kind, weight)
    left = EVENNESS * share.log()[kind]
    order = kind.argsort(stable=True)
    ladder = (states.log_weight - left).softmax(0)[order].cumsum(0)
    place = torch.arange(count) + torch.rand(1, generator=generator, dtype=torch.float64)
    place = torch.searchsorted(ladder, place / count).clamp(max=len(order) - 1)
    return states._replace(log_weight=left).at(order[place])


class Chains(NamedTuple):
    """Where the chains of several populations are, with the level that each must reach."""

    tokens: Int64[Tensor, "chain position"]
    score: Float64[Tensor, " chain"]
    grade: Float64[Tensor, " chain"]
    level: Float64[Tensor, " chain"]
    log_factor: Float64[Tensor, " chain"]

    @classmethod
    def of(cls, drawn: list[States], levels: list[float], law: Law) -> Chains:
        tokens, score, grade, _ = (torch.cat(column) for column in zip(*drawn, strict=True))
        count = len(tokens) // len(levels)
        level = torch.tensor(levels, dtype=torch.float64).repeat_interleave(count)
        return cls(tokens, score, grade, level, law.log_factor(tokens))

    def moved(
        self,
        rows: Int64[Tensor, " some"],
        tokens: Int64[Tensor, "some position"],
        score: Float64[Tensor, " some"],
        grade: Float64[Tensor, " some"],
        log_factor: Float64[Tensor, " some"],
    ) -> Chains:
        """The same chains with some of them elsewhere."""
        return Chains(
            self.tokens.index_copy(0, rows, tokens),
            self.score.index_copy(0, rows, score),
            self.grade.index_copy(0, rows, grade),
            self.level,
            self.log_factor.index_copy(0, rows, log_factor),
        )
