"""MHIS: the real step's transition matrix is in detailed balance; the ratio and its error hold."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

import longshot as ls
from longshot.estimate import Job
from longshot.methods.chains import ratio
from longshot.methods.mhis import MHIS
from longshot.methods.walk import Walk, log_acceptance, proposal
from tests.methods.enumerable import Enumerated, enumerated, midpoints
from tests.methods.replicas import replicate, summarise


def walk_at_every_state(problem: Enumerated, target: int, temperature: float) -> Walk:
    """One chain standing at each input."""
    job = Job(problem.model, problem.inputs, (ls.TokenIs(target),), budget=1)
    settings = MHIS(temperature=temperature, normaliser="harmonic")
    walk = Walk(job, settings, chains=len(problem.tokens))
    walk.state = walk.at(problem.tokens[None])
    return walk


def transitions(problem: Enumerated, walk: Walk, position: int, drop_ratio: bool = False) -> Tensor:
    """The transition matrix of a move at one position, from the step's own proposals."""
    p, count = problem.inputs.positions[position], len(problem.tokens)
    slope = walk.state.gradient[:, :, position]
    forward = proposal(p, walk.embedding[p], slope, walk.settings.temperature)
    place = {tuple(row): i for i, row in enumerate(problem.tokens.tolist())}
    matrix = torch.zeros(count, count, dtype=torch.float64)
    for index in range(p.size):
        y, log_r, _ = walk.propose(position, midpoints(forward)[..., index])
        if drop_ratio:
            old = p.index_of(problem.tokens[:, position])
            there = forward.log_probs[0, :, index]
            slope = y.gradient[:, :, position]
            backward = proposal(p, walk.embedding[p], slope, walk.settings.temperature)
            log_r = log_r + there - backward.log_probs[0].gather(1, old[:, None])[:, 0]
        chance = forward.probabilities[0, :, index] * log_r[0].clamp(max=0).exp()
        columns = torch.tensor([place[tuple(row)] for row in y.tokens[0].tolist()])
        matrix[torch.arange(count), columns] += chance
    matrix += torch.diag(1 - matrix.sum(1))
    return matrix


def imbalance(problem: Enumerated, walk: Walk, drop_ratio: bool = False) -> float:
    """The largest |π_x·P_xy − π_y·P_yx| over the largest π_x·P_xy, at any position."""
    log_pi = problem.probability.log() + walk.state.score[0] / walk.settings.temperature
    pi = log_pi.softmax(0)
    worst = 0.0
    for position in problem.inputs.free_positions:
        matrix = transitions(problem, walk, position, drop_ratio)
        assert float(matrix.min()) > -1e-12
        flow = pi[:, None] * matrix
        worst = max(worst, float((flow - flow.T).abs().max() / flow.fill_diagonal_(0).max()))
        assert drop_ratio or torch.allclose(pi @ matrix, pi, atol=1e-12)
    return worst


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_every_move_is_in_detailed_balance(temperature: float) -> None:
    problem = enumerated(6)
    assert imbalance(problem, walk_at_every_state(problem, 8, temperature)) < 1e-10


def test_without_the_proposal_ratio_it_is_not() -> None:
    problem = enumerated(6)
    assert imbalance(problem, walk_at_every_state(problem, 8, 1.0), drop_ratio=True) > 1e-3


def test_a_move_accepts_as_its_ratio_says() -> None:
    """Of many chains started in one state, the share that moves is the matrix's."""
    problem = enumerated(6)
    start, chains, position = 700, 4000, 4
    matrix = transitions(problem, walk_at_every_state(problem, 8, 1.0), position)[start]
    job = Job(problem.model, problem.inputs, (ls.TokenIs(8),), budget=1)
    walk = Walk(job, MHIS(temperature=1.0), chains)
    walk.state = walk.at(problem.tokens[start].expand(1, chains, -1))
    walk.move(position)
    place = {tuple(row): i for i, row in enumerate(problem.tokens.tolist())}
    landed = torch.tensor([place[tuple(row)] for row in walk.state.tokens[0].tolist()])
    share = torch.bincount(landed, minlength=len(matrix)).double() / chains
    error = (matrix * (1 - matrix) / chains).sqrt()
    assert ((share - matrix).abs() <= 4.5 * error + 1e-12).all()
    assert int((matrix > 0.01).sum()) >= 3


def walked(positions: list[int], monkeypatch: pytest.MonkeyPatch, *patches: str) -> Walk:
    """Chains on mini-2l after moves at these positions, some of what it uses taken out."""
    model = ls.load_model("mini-2l")
    job = Job(model, ls.load_inputs("camel", model), (ls.TokenIs(100), ls.TokenIs(107)), budget=1)
    with monkeypatch.context() as patch:
        for name in patches:
            patch.setattr(name, lambda *_: None)
        walk = Walk(job, MHIS(temperature=0.5), chains=5)
        for position in positions:
            walk.move(position)
        if "put_back" not in "".join(patches):
            walk.tails.put_back(slice(None))
    return walk


@pytest.mark.parametrize("positions", [[*range(1, 33, 4), *range(3, 33, 4)], [9, 4, 4, 30, 31, 1]])
def test_tails_alone_give_the_walk_of_whole_inputs(
    positions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In sweeps or in any order; without putting back what was rejected, it is another walk."""
    tails = walked(positions, monkeypatch)
    whole = walked(positions, monkeypatch, "longshot.evaluate.passes.Pass.room")
    assert tails.tails.resumes
    assert not whole.tails.resumes
    assert torch.equal(tails.state.tokens, whole.state.tokens)
    assert torch.allclose(tails.state.score, whole.state.score, atol=1e-4)
    since = tails.tails.since
    assert torch.allclose(
        tails.state.gradient[:, :, since:], whole.state.gradient[:, :, since:], atol=1e-4
    )
    price = [walk.cost(0, len(positions), 0.0).macs for walk in (tails, whole)]
    assert price[0] < price[1]
    careless = walked(positions, monkeypatch, "longshot.evaluate.Tails.put_back")
    assert not torch.allclose(careless.state.score, whole.state.score, atol=1e-4)


def test_the_ratio_is_the_corrected_one() -> None:
    """Over the whole space with weights π, Σ w·1[hit]/Σ w is the truth; inverted, it is not."""
    problem, temperature = enumerated(6), 0.7
    walk = walk_at_every_state(problem, 8, temperature)
    score = walk.state.score[0] / temperature
    log_pi = (problem.probability.log() + score).log_softmax(0)
    hit = problem.output == 8
    right, _ = ratio((log_pi - score)[None], hit[None].double())
    assert math.exp(right) == pytest.approx(problem.exact(8), rel=1e-10)
    inverted, _ = ratio((log_pi + score)[None], hit[None].double())
    assert abs(math.exp(inverted) / problem.exact(8) - 1) > 0.1


def test_the_answer_weighs_states_by_the_corrected_weight() -> None:
    """Every input once, as if drawn evenly: Σ exp(−M_t/T)·1[hit]/Σ exp(−M_t/T)."""
    problem, temperature = enumerated(6), 0.7
    walk = walk_at_every_state(problem, 8, temperature)
    walk.record()
    weight = (-walk.state.score[0] / temperature).exp()
    expected = float(weight[problem.output == 8].sum() / weight.sum())
    assert walk.settings.answer_of(walk, 0, 1, 0.0).probability == pytest.approx(
        expected, rel=1e-10
    )


def test_burn_in_is_left_out() -> None:
    """Of 40 steps of each chain, none or a quarter; the calls are the same."""
    problem, found = enumerated(6), []
    for burn_in in (0.0, 0.25):
        settings = {
            "method": "mhis", "budget": 8 * 50, "chains": 8, "burn_in": burn_in,
            "normaliser": "harmonic",
        }  # fmt: skip
        found.append(ls.estimate(problem.model, problem.inputs, 11, **settings))
    everything, later = found
    assert everything.samples == 8 * 40
    assert later.samples == 8 * 30
    assert everything.cost.forwards == later.cost.forwards
    assert everything.probability != later.probability


def test_ratio_matches_plain_arithmetic_and_never_overflows() -> None:
    generator = torch.Generator().manual_seed(0)
    log_weight = torch.randn(6, 50, generator=generator, dtype=torch.float64)
    hit = torch.rand(6, 50, generator=generator) < 0.3
    log_p, error = ratio(log_weight, hit.double())
    w = log_weight.exp()
    above, below = (w * hit).sum(1), w.sum(1)
    p = above.sum() / below.sum()
    variance = 6 / 5 * ((above - p * below) ** 2).sum() / below.sum() ** 2
    assert math.exp(log_p) == pytest.approx(float(p))
    assert error == pytest.approx(float(variance.sqrt() / p))
    far, far_error = ratio(log_weight + torch.where(hit, -1e6, 0.0), hit.double())
    assert -1e6 - 10 < far < -1e6 + 10
    assert far_error is not None


@pytest.mark.long
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_estimate_is_right_and_its_intervals_cover(temperature: float) -> None:
    """67 runs each: means within 4 errors and 5% of bias, coverage of 88 to 99% in all."""
    method = MHIS(temperature=temperature, chains=8, normaliser="harmonic")
    enough, given, covered = 0, 0, 0
    for seed, target in ((6, 11), (8, 5), (6, 8)):
        problem = enumerated(seed)
        exact = problem.exact(target)
        runs = summarise(replicate(problem, target, method, budget=8 * 320, count=67), exact)
        assert abs(runs.mean - exact) < 4 * runs.error + 0.05 * exact
        enough, given, covered = (
            enough + runs.enough,
            given + runs.given,
            covered + runs.covered,
        )
    assert covered >= 0.88 * given  # 8 of 8 starts prove little, so mostly more than 95%
    assert given >= 0.6 * enough


def test_the_interval_reaches_down_by_what_the_chains_left_behind() -> None:
    """Three of eight starts are heavier than all states: the half-lengths add in squares."""
    problem = enumerated(8)
    job = Job(problem.model, problem.inputs, (ls.TokenIs(5),), 1)
    walk = Walk(job, MHIS(temperature=2.0, normaliser="harmonic"), 8)
    generator = torch.Generator().manual_seed(0)
    log_weight = torch.rand(400, 1, 8, generator=generator, dtype=torch.float64)
    walk.scores, walk.grades = list(-2 * log_weight), list((log_weight < 0.2).double())
    lengths = []
    for heavy in (0, 3):
        walk.start = -2 * torch.tensor([[1.1] * heavy + [0.9] * (8 - heavy)], dtype=torch.float64)
        answer = walk.settings.answer_of(walk, 0, 400, 0.0)
        assert answer.statistics["starts_reached"] == 8 - heavy
        assert answer.is_two_sided
        assert answer.standard_error is not None
        lengths.append([abs(math.log(end) - answer.log_probability) for end in answer.interval])
        limit = -math.log(stats.beta.ppf(0.025, 8.5 - heavy, 0.5 + heavy))
        reach = stats.t.ppf(0.975, 7) * answer.standard_error / answer.probability
        assert lengths[-1][0] == pytest.approx(math.hypot(reach, limit))
    assert lengths[1][1] == pytest.approx(lengths[0][1])  # the upper end knows nothing of it


@pytest.mark.parametrize("blind", [False, True])
def test_the_starts_tell_of_a_region_that_all_chains_miss(
    blind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,225 inputs six in ten lie below all scores visited; without the starts no one knows."""
    if blind:
        monkeypatch.setattr("longshot.methods.mhis.starts_reached", lambda *_: 8)
    problem = enumerated(71)
    method = MHIS(temperature=0.5, chains=8, normaliser="harmonic")
    runs = replicate(problem, 0, method, budget=8 * 320, count=20)
    low, exact = [run.interval[0] for run in runs if run.is_two_sided], problem.exact(0)
    if blind:
        assert len(low) >= 10
        assert sum(end > exact for end in low) > 0.8 * len(low)
        return
    assert sum(end > exact for end in low) <= 0.1 * len(low)  # 19 of 20 in the long run
    reached = [run.statistics["starts_reached"] for run in runs]
    assert 0.2 * 8 < sum(reached) / len(reached) < 0.6 * 8


def test_log_acceptance_of_staying_is_zero() -> None:
    problem = enumerated(6)
    walk = walk_at_every_state(problem, 8, 1.0)
    p = problem.inputs.positions[1]
    forward = proposal(p, walk.embedding[p], walk.state.gradient[:, :, 1], 1.0)
    here = p.index_of(problem.tokens[:, 1])[None]
    stay = log_acceptance(p, forward, forward, here, here, torch.zeros_like(walk.state.score))
    assert float(stay.abs().max()) < 1e-12


def test_witnesses_produce_the_target() -> None:
    problem = enumerated(8)
    answer = ls.estimate(problem.model, problem.inputs, 7, method="mhis", budget=3000)
    assert answer.witnesses
    for witness in answer.witnesses:
        row = (problem.tokens == torch.tensor(witness.tokens)).all(1)
        assert problem.output[row].tolist() == [7]
