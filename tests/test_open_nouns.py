"""Inputs, events and methods that the package does not know, against enumeration."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.methods import METHODS, load_plugins, make_method
from longshot.testing import check_method, enumerated, toy_model
from tests.inputs.chi_square import p_value
from tests.methods.replicas import replicate

STAY = 0.8  # of the chain's two states
TOKENS = ((1, 2, 5), (3, 4, 6, 7))  # what each state may emit, all alike


class MarkovInputs:
    """BOS, then tokens of a hidden chain of two states: what follows depends on what was."""

    name, length, fingerprint = "markov", 6, "two states"

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self.redraw(torch.zeros(n, self.length, dtype=torch.int64), generator)

    def redraw(
        self, tokens: Tensor, generator: torch.Generator, start: int = 0, share: float = 1.0
    ) -> Tensor:
        """All from `start` on: what came before decides the state in which it begins."""
        tokens = tokens.clone()
        for i in range(max(start, 1), self.length):
            if i == 1:
                state = torch.randint(2, (len(tokens),), generator=generator)
            else:
                was = torch.isin(tokens[:, i - 1], torch.tensor(TOKENS[1])).long()
                stays = torch.rand(len(tokens), generator=generator) < STAY
                state = torch.where(stays, was, 1 - was)
            choice = torch.rand(len(tokens), generator=generator)
            drawn = [torch.tensor(t)[(choice * len(t)).long()] for t in TOKENS]
            tokens[:, i] = torch.where(state == 0, *drawn)
        return tokens


class CarelessInputs(MarkovInputs):
    """A control: what is redrawn forgets what came before it."""

    def redraw(
        self, tokens: Tensor, generator: torch.Generator, start: int = 0, share: float = 1.0
    ) -> Tensor:
        fresh = super().redraw(torch.zeros_like(tokens), generator)
        return torch.cat([tokens[:, :start], fresh[:, start:]], 1)


def everything() -> tuple[Tensor, Tensor]:
    """Every input of the chain, with its probability."""
    tokens = torch.tensor([(0, *row) for row in itertools.product(*[TOKENS[0] + TOKENS[1]] * 5)])
    state = torch.isin(tokens[:, 1:], torch.tensor(TOKENS[1])).long()
    emitted = torch.tensor([1 / 3, 1 / 4], dtype=torch.float64)[state].prod(1)
    stays = (state[:, 1:] == state[:, :-1]).double()
    moved = (STAY * stays + (1 - STAY) * (1 - stays)).prod(1)
    return tokens, emitted * moved / 2


def all_logits(model: ls.Model, tokens: Tensor) -> Tensor:
    v = model.network.activation(model.embed(tokens))
    return v @ model.unembedding + model.unembedding_bias


@dataclass(frozen=True)
class Beats(ls.Event):
    """The logit of one token exceeds another's by a margin."""

    one: int
    other: int
    margin: float

    @property
    def key(self) -> str:
        return f"beats:{self.one},{self.other},{self.margin}"

    def score(self, logits: Tensor) -> Tensor:
        return logits[..., self.one] - logits[..., self.other] - self.margin


@dataclass(frozen=True)
class Sampled(ls.Event):
    """The next token, sampled at a temperature, is this one: a grade between 0 and 1."""

    token: int
    temperature: float

    @property
    def key(self) -> str:
        return f"sampled:{self.token},{self.temperature}"

    def score(self, logits: Tensor) -> Tensor:
        return logits[..., self.token] - logits.logsumexp(-1)

    def grade(self, logits: Tensor) -> Tensor:
        return (logits / self.temperature).softmax(-1)[..., self.token]


MODEL = toy_model(2, dtype=torch.float64)
CHAIN = MarkovInputs()


def exact(event: ls.Event, tokens: Tensor, probability: Tensor, model: ls.Model) -> float:
    return float(event.grade(all_logits(model, tokens)) @ probability)


def rare(model: ls.Model, tokens: Tensor, probability: Tensor, share: float) -> Beats:
    """The margin by which token 3 beats token 5 on this share of the inputs."""
    lead = Beats(3, 5, 0.0).score(all_logits(model, tokens))
    order = lead.argsort(descending=True)
    below = int((probability[order].cumsum(0) < share).sum())
    return Beats(3, 5, float(lead[order[below]]) - 1e-6)


def test_the_chain_and_its_redraws_have_the_law_that_is_enumerated() -> None:
    """A redraw leaves the law as it is; a careless one does not."""
    tokens, probability = everything()
    assert float(probability.sum()) == pytest.approx(1)
    place = {tuple(row): i for i, row in enumerate(tokens.tolist())}

    def fit(drawn: Tensor) -> float:
        found = torch.bincount(
            torch.tensor([place[tuple(row)] for row in drawn.tolist()]), minlength=len(place)
        )
        first = tokens[:, 1:3] @ torch.tensor([8, 1])  # the first two tokens tell the cells apart
        cells = first.unique(return_inverse=True)[1]
        pooled = torch.zeros(int(cells.max()) + 1, dtype=torch.float64)
        expected = pooled.index_add(0, cells, probability)
        return p_value(pooled.index_add(0, cells, found.double()), expected)

    generator = torch.Generator().manual_seed(0)
    assert fit(CHAIN.sample(20_000, generator)) > 1e-3
    for start in (1, 2, 4):
        again = CHAIN.redraw(CHAIN.sample(20_000, generator), generator, start)
        assert fit(again) > 1e-3
    careless = CarelessInputs()
    assert fit(careless.redraw(CHAIN.sample(20_000, generator), generator, 2)) < 1e-6


@pytest.mark.parametrize("method", ["naive", "splitting"])
@pytest.mark.parametrize("share", [0.2, 0.02])
def test_an_event_of_ones_own_on_inputs_that_are_no_product(method: str, share: float) -> None:
    tokens, probability = everything()
    for event in (rare(MODEL, tokens, probability, share), Sampled(3, 0.7)):
        truth = exact(event, tokens, probability, MODEL)
        answers = [
            ls.estimate(MODEL, CHAIN, event, method=method, budget=2000, seed=seed)
            for seed in range(8)
        ]
        errors = [(a.probability - truth) / (a.standard_error or math.nan) for a in answers]
        assert max(map(abs, errors)) < 4
        assert answers[0].event == event.key
        held = [a.interval[0] <= truth <= a.interval[1] for a in answers if a.is_two_sided]
        assert sum(held) >= 7
        assert answers[0].witnesses[0].log_prob is None


@pytest.mark.parametrize("method", ["conditional", "itgis", "mhis"])
def test_a_method_that_needs_a_product_says_so(method: str) -> None:
    with pytest.raises(ls.LongshotError, match=f"{method} needs inputs whose tokens are indep"):
        ls.estimate(MODEL, CHAIN, 3, method=method, budget=200)


@pytest.mark.parametrize("method", ["gld", "qld"])
def test_a_method_of_single_tokens_says_so(method: str) -> None:
    with pytest.raises(ls.LongshotError, match="single token, which is not beats:3,5,1"):
        ls.estimate(MODEL, CHAIN, Beats(3, 5, 1.0), method=method, budget=200)
    found = ls.estimate(MODEL, CHAIN, 3, method=method, budget=200)
    assert 0 <= found.probability <= 1


@pytest.mark.parametrize("method", ["naive", "conditional", "itgis", "mhis", "splitting"])
@pytest.mark.parametrize("graded", [False, True])
def test_an_event_of_ones_own_on_a_product(method: str, graded: bool) -> None:
    """Indicators and grades alike reach the estimate of every sampling method."""
    problem = enumerated(1)
    rows = (problem.tokens, problem.probability)
    event = Sampled(5, 1.5) if graded else rare(problem.model, *rows, 0.05)
    truth = exact(event, *rows, problem.model)
    options, budget = ({"chains": 20}, 1000) if method == "mhis" else ({}, 3000)
    runs = replicate(problem, event, make_method(method, **options), budget, count=6)
    errors = [(run.probability - truth) / (run.standard_error or 0.0) for run in runs]
    assert sum(abs(error) < 3 for error in errors) >= 5
    if graded:  # as an indicator it would never occur: its score is below zero
        assert truth > 0.01


def test_grades_as_indicators_would_not_pass() -> None:
    """A control: the share of inputs whose grade is above zero is another number."""
    problem = enumerated(1)
    event = Sampled(5, 1.5)
    truth = exact(event, problem.tokens, problem.probability, problem.model)
    answer = ls.estimate(problem.model, problem.inputs, event, method="naive", budget=500)
    assert answer.hits == answer.samples
    assert answer.probability == pytest.approx(truth, rel=0.3)


PLUGIN = '''
from dataclasses import dataclass, field
from typing import ClassVar

from longshot import METHODS, Method


@dataclass(frozen=True)
class Half(Method):
    """Plain sampling with half of the budget."""

    name: ClassVar[str] = "half"
    shares: ClassVar[bool] = True

    def estimate(self, job):
        from dataclasses import replace
        found = METHODS["naive"]().estimate(replace(job, budget=job.budget // 2))
        return [replace(f, method=self.name, budget=job.budget) for f in found]


@dataclass(frozen=True)
class Forgetful(Half):
    """A control: it draws from torch's own generator."""

    name: ClassVar[str] = "forgetful"

    def estimate(self, job):
        import torch
        torch.rand(1)
        return super().estimate(job)
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with three entry points, one of which cannot be loaded."""
    (tmp_path / "other_package.py").write_text(PLUGIN)
    metadata = tmp_path / "other_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    points = ["half = other_package:Half", "forgetful = other_package:Forgetful"]
    broken = "broken = other_package:Nothing"
    (metadata / "entry_points.txt").write_text("\n".join(["[longshot.methods]", *points, broken]))
    monkeypatch.syspath_prepend(str(tmp_path))
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)
    sys.modules.pop("other_package", None)


@pytest.mark.usefixtures("plugin")
def test_a_method_of_another_package_is_found_and_checked() -> None:
    with pytest.warns(UserWarning, match="'broken' of other_package:Nothing cannot be loaded"):
        check_method("half")
    with pytest.raises(AssertionError, match="forgetful: torch's random state changed"):
        check_method("forgetful")
    with pytest.warns(UserWarning, match="broken"):
        load_plugins()
    assert METHODS["half"].name == "half"
