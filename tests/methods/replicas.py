"""Many independent runs of a method on one target, side by side in one job."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
import torch

import longshot as ls
from longshot.estimate import Job
from longshot.numerics import derived_generator
from tests.methods.enumerable import Enumerated


@dataclass(frozen=True)
class Replicas(Job):
    """A job whose events, all the same, are each given randomness of their own."""

    numbers: Iterator[int] = field(default_factory=itertools.count)

    def generator(self, method: str, event: ls.Event) -> torch.Generator:
        return derived_generator(self.seed, method, event.key, next(self.numbers))


def replicate(
    problem: Enumerated, target: int | ls.Event, method: ls.Method, budget: int, count: int
) -> list[ls.Estimate]:
    """`count` independent estimates of one target; larger blocks, since toys are all overhead."""
    events = (ls.TokenIs(target) if isinstance(target, int) else target,) * count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longshot.evaluate.passes.BLOCK", 1024)
        return method.estimate(Replicas(problem.model, problem.inputs, events, budget))


class Summary(NamedTuple):
    """What many runs say together."""

    mean: float
    error: float
    spread: float
    claimed: float
    """The root mean square of the runs' own standard errors."""
    enough: int
    """Runs with 30 hits or more."""
    given: int
    covered: int


def summarise(runs: list[ls.Estimate], exact: float) -> Summary:
    values = torch.tensor([run.probability for run in runs], dtype=torch.float64)
    intervals = [run.interval for run in runs if run.is_two_sided]
    assert all(run.is_two_sided or run.no_interval for run in runs)
    return Summary(
        mean=float(values.mean()),
        error=float(values.std()) / math.sqrt(len(values)),
        spread=float(values.std()),
        claimed=math.sqrt(sum((run.standard_error or 0) ** 2 for run in runs) / len(runs)),
        enough=sum((run.hits or 0) >= 30 for run in runs),
        given=len(intervals),
        covered=sum(low <= exact <= high for low, high in intervals),
    )
