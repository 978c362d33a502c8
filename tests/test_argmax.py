"""The argmax is that of the exact products: held against rational arithmetic and float64."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longshot.errors import LongshotError
from longshot.evaluate.argmax import (
    BLOCK,
    RIVALS,
    UNEMBED_BLOCK,
    Decider,
    Readout,
    readout,
    winners,
)
from longshot.events import Event, TokenIn, TokenIs
from longshot.methods.gld import logit_differences
from longshot.models import Model
from tests.pretended import FarTensor, pretended_device
from tests.toys import toy_tokenizer


class Linear:
    """A network whose activation is its last embedding: all of the arithmetic is the readout's."""

    def __init__(self, unembedding: Tensor, bias: Tensor | None = None) -> None:
        self.unembedding, self.unembedding_bias = unembedding, bias
        self.embedding = unembedding.mT

    def activation(self, embedded: Tensor) -> Tensor:
        return embedded[:, -1]

    def macs(self, positions: int) -> int:
        return 0

    def backward_macs(self, positions: int) -> int:
        return 0


def linear(unembedding: Tensor, bias: Tensor | None = None) -> Model:
    return Model("linear", Linear(unembedding, bias), toy_tokenizer(8), 8)


def test_a_model_of_changed_weights_is_read_anew() -> None:
    """Even beside the old one: its readout would be a mixture of both."""
    generator = torch.Generator().manual_seed(0)
    before = linear(torch.randn(8, 8, generator=generator))
    v = torch.randn(100, 8, generator=generator)
    winners(before, v)
    before.network.unembedding.copy_(torch.randn(8, 8, generator=generator))
    after = Model("linear", before.network, before.tokenizer, 8)
    assert after != before
    assert torch.equal(winners(after, v).token, (v @ after.unembedding).argmax(1))
    owner = (v @ after.unembedding).argmax(1)
    assert (Decider(after, [TokenIs(t) for t in range(8)])(v, owner) > 0).all()


def exact_logits(model: Model, v: Tensor) -> list[list[Fraction]]:
    columns, bias = model.unembedding.mT.double().tolist(), model.unembedding_bias.tolist()
    return [
        [
            sum((Fraction(a) * Fraction(b) for a, b in zip(x, u, strict=True)), Fraction(c))
            for u, c in zip(columns, bias, strict=True)
        ]
        for x in v.double().tolist()
    ]


def exact_winner(logits: list[Fraction]) -> int:
    best = max(logits)
    return logits.index(best) if logits.count(best) == 1 else -1


def exact_gap(logits: list[Fraction], event: Event) -> Fraction:
    outside = [x for token, x in enumerate(logits) if token not in event.tokens]
    return max(logits[token] for token in event.tokens) - max(outside)


def nudged(x: Tensor, g: torch.Generator, steps: int) -> Tensor:
    """Each number a few units in the last place away."""
    moved = torch.randint(-steps, steps + 1, x.shape, generator=g, dtype=torch.int32)
    return (x.view(torch.int32) + moved).view(torch.float32)


def problem(kind: str, seed: int, vocab: int = 11, width: int = 6) -> tuple[Model, Tensor]:
    """Weights and activations that make the argmax hard, each kind in its own way."""
    g = torch.Generator().manual_seed(seed)
    u, v = torch.randn(width, vocab, generator=g), torch.randn(9, width, generator=g)
    bias: Tensor | None = torch.randn(vocab, generator=g)
    column = torch.randn(width, 1, generator=g)
    if kind == "duplicates":  # exact ties of equal columns
        chosen = torch.randint(4, (vocab,), generator=g)
        u, bias = u[:, chosen], bias[chosen]
    elif kind == "ulps":  # rivals that almost win
        u, bias = nudged(column.expand(-1, vocab).contiguous(), g, 2), None
    elif kind == "integers":  # exact ties of different columns
        u, v, bias = (3 * u).round(), (3 * v).round(), bias.round()
    elif kind == "permuted":  # exact ties that every order of summation rounds differently
        v = v[:, :1] * torch.where(torch.arange(width) % 2 == 0, 1.0, -1.0)
        even = torch.stack([torch.randperm(width // 2, generator=g) for _ in range(vocab)], 1)
        halves = column.reshape(-1, 2, 1).expand(-1, -1, vocab)
        u = torch.stack([halves[:, i].gather(0, even) for i in (0, 1)], 1).reshape(width, vocab)
        bias = None
    elif kind == "cancelling":  # large terms that cancel, and a difference that float32 loses
        u = nudged((2.0**20 * column).expand(-1, vocab).contiguous(), g, 1)
        u[1], v[:, 1], bias = -u[0], v[:, 0], bias * 2.0**-12
        u[2:] *= 2.0**-20
    elif kind == "beyond float64":  # 2⁻⁶⁰ beside 1: only rational arithmetic tells
        u = column.expand(-1, vocab).clone()
        u[-1] = torch.randint(-2, 3, (vocab,), generator=g) * 2.0**-60
        bias = None
    elif kind == "scales":
        u = u * 2.0 ** torch.randint(-20, 21, (vocab,), generator=g)
        v = v * 2.0 ** torch.randint(-20, 21, (9, 1), generator=g)
    elif kind == "zero":
        u, bias = torch.zeros_like(u), None
    return linear(u, bias), v


KINDS = [
    *("random", "duplicates", "ulps", "integers", "permuted"),
    *("cancelling", "beyond float64", "scales", "zero"),
]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 3, RIVALS]))
def test_winners_and_gaps_are_those_of_rational_arithmetic(
    kind: str, seed: int, rivals: int
) -> None:
    model, v = problem(kind, seed)
    logits = exact_logits(model, v)
    margin = readout(model).margin(v).tolist()
    won = winners(model, v)
    assert won.token.tolist() == [exact_winner(row) for row in logits]
    leads = [(top := sorted(row, reverse=True))[0] - top[1] for row in logits]
    assert won.near_ties == sum(a <= b for a, b in zip(leads, margin, strict=True))

    g = torch.Generator().manual_seed(seed)
    events = [TokenIs(t) for t in range(model.vocab_size)]
    events += [TokenIn(frozenset({0, 1})), TokenIn(frozenset({2, 3, 7, 8, 9}))]
    rows = torch.randint(len(v), (70,), generator=g)
    owner = torch.randint(len(events), (70,), generator=g)
    decider = Decider(model, events, rivals)
    for _ in range(2):  # the second time with rivals
        near, gap = decider.near_ties.clone(), decider(v[rows], owner)
        near = decider.near_ties - near
        exact = [exact_gap(logits[i], events[j]) for i, j in zip(rows, owner, strict=True)]
        assert (gap > 0).tolist() == [x > 0 for x in exact]
        assert (gap == 0).tolist() == [x == 0 for x in exact]
        for found, x, i in zip(gap.tolist(), exact, rows.tolist(), strict=True):
            shown = -math.inf if x < -margin[i] else float(x)
            assert found == pytest.approx(shown, rel=1e-9, abs=1e-6 * margin[i])
        close = [abs(x) <= margin[i] for x, i in zip(exact, rows.tolist(), strict=True)]
        assert near.tolist() == torch.bincount(owner[close], minlength=len(events)).tolist()


@pytest.mark.parametrize("kind", ["ulps", "cancelling"])
def test_without_its_margin_the_argmax_is_wrong(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same products, trusted to the last bit."""

    def zero(self: Readout, v: Tensor) -> Tensor:
        return torch.zeros(len(v), dtype=torch.float64)

    monkeypatch.setattr(Readout, "margin", zero)
    wrong_winners = wrong_hits = 0
    for seed in range(10):
        model, v = problem(kind, seed)
        logits = exact_logits(model, v)
        expected = torch.tensor([exact_winner(row) for row in logits])
        wrong_winners += int((winners(model, v).token != expected).sum())
        decider = Decider(model, [TokenIs(t) for t in range(model.vocab_size)])
        for token in range(model.vocab_size):
            gap = decider(v, torch.full((len(v),), token))
            wrong_hits += int(((gap > 0) != (expected == token)).sum())
    assert wrong_winners > 3
    assert wrong_hits > 3


# --- the bound


@pytest.mark.parametrize("width", [1, 7, 64, 512, 3000])
def test_every_way_to_the_logits_stays_within_half_the_margin(width: int) -> None:
    """Numbers of one sign do not cancel: their sums come nearest to the bound."""
    g = torch.Generator().manual_seed(width)
    for sign in (True, False):
        u, v = torch.rand(width, 40, generator=g) + 0.5, torch.rand(30, width, generator=g) + 0.5
        bias = torch.rand(40, generator=g) * 100
        if not sign:
            u, v, bias = u - 1, v - 1, bias - 50
        model = linear(u, bias)
        out = readout(model)
        exact = v.double() @ u.double() + bias.double()
        bound = out.margin(v)[:, None] / 2
        tokens = torch.arange(40).expand(30, -1)
        shortlist = torch.nn.functional.linear(v, out.rows, out.bias)
        one_by_one = torch.zeros(30, 40)
        for k in range(width):  # the worst order there is: one long chain
            one_by_one += v[:, k, None] * u[k]
        for found in (out.logits(v), out.of(v, tokens), shortlist, one_by_one + bias):
            assert ((found.double() - exact).abs() <= bound).all()
        assert ((out.of(v.double(), tokens) - exact).abs() <= out.finer * bound).all()


def test_a_chain_of_unlucky_roundings_needs_the_factor_d() -> None:
    """1 followed by terms just over half a unit: each addition rounds up. A bound of √d fails."""
    width = 512
    v = torch.ones(1, width)
    u = torch.full((width, 1), 2.0**-24 * 1.0001)
    u[0] = 1
    total = torch.zeros(1)
    for k in range(width):
        total += v[0, k] * u[k]
    error = abs(float(total) - float(v.double() @ u.double()))
    norms = float(v.norm() * u.norm())
    assert error > math.sqrt(width) * 2**-24 * norms / 2
    assert error <= float(readout(linear(u.expand(-1, 2).contiguous())).margin(v)) / 2


def test_products_rounded_to_bfloat16_by_the_users_wish_widen_the_margin() -> None:
    model, v = problem("random", 0)
    strict = readout(model).margin(v)
    torch.set_float32_matmul_precision("medium")
    try:
        loose, won = readout(model).margin(v), winners(model, v)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert (loose > 2**-6 / (model.width * 2**-24) / 10 * strict).all()
    assert won.token.tolist() == [exact_winner(row) for row in exact_logits(model, v)]


@pytest.mark.parametrize(
    ("dtype", "nearness"), [(torch.bfloat16, 50), (torch.float16, 500), (torch.float64, 50)]
)
def test_other_precisions_are_decided_exactly_too(dtype: torch.dtype, nearness: int) -> None:
    g = torch.Generator().manual_seed(3)
    u = (torch.randn(20, 1, generator=g) + torch.randn(20, 8, generator=g) / nearness).to(dtype)
    v = torch.randn(60, 20, generator=g).to(dtype)
    model = linear(u, torch.zeros(8, dtype=dtype))
    expected = torch.tensor([exact_winner(row) for row in exact_logits(model, v)])
    assert torch.equal(winners(model, v).token, expected)
    decider = Decider(model, [TokenIs(t) for t in range(8)])
    for token in range(8):
        assert torch.equal(decider(v, torch.full((60,), token)) > 0, expected == token)
    if dtype != torch.float64:  # the control: logits in the weights' own precision tie and lie
        assert not torch.equal((v @ u).argmax(1), expected)


def test_numbers_that_are_not_finite_are_refused() -> None:
    u = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    spoilt = torch.ones(2, 4)
    spoilt[1, 2] = math.nan
    nan_weights = u.clone()
    nan_weights[0, 0] = math.nan
    cases = [(u, spoilt), (u, spoilt * math.inf), (nan_weights, torch.ones(2, 4))]
    for weights, v in [*cases, (u * 1e30, torch.full((2, 4), 1e30))]:
        with pytest.raises(LongshotError, match="not finite"):
            winners(linear(weights), v)
        with pytest.raises(LongshotError, match="not finite"):
            Decider(linear(weights), [TokenIs(1)])(v, torch.zeros(2, dtype=torch.int64))


# --- ties


@pytest.fixture
def rational(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many logits each call of the rational arithmetic was asked for."""
    asked: list[int] = []
    exact = Readout.exact

    def counting(self: Readout, v: Tensor, tokens: Tensor) -> list[Fraction]:
        asked.append(len(tokens))
        return exact(self, v, tokens)

    monkeypatch.setattr(Readout, "exact", counting)
    return asked


@pytest.mark.parametrize("kind", ["no weights", "no activations", "twins"])
def test_ties_of_equal_columns_and_of_zeros_need_no_rational_arithmetic(
    kind: str, rational: list[int]
) -> None:
    """A model whose weights are all zero ties on every row with every token."""
    g = torch.Generator().manual_seed(5)
    u, v = torch.randn(16, 300, generator=g), torch.randn(500, 16, generator=g)
    if kind == "twins":
        u = torch.cat([u, u], 1)[:, torch.randperm(600, generator=g)]
    model = linear(u if kind != "no weights" else 0 * u)
    v = v if kind != "no activations" else 0 * v
    won = winners(model, v)
    assert (won.token == -1).all()
    assert won.near.all()
    decider = Decider(model, [TokenIs(t) for t in range(model.vocab_size)])
    best = (v @ model.unembedding).argmax(1)  # one of those that tie
    assert (decider(v, best) == 0).all()
    assert int(decider.near_ties.sum()) == 500
    assert sum(rational) == 0


def test_ties_of_different_columns_are_for_rational_arithmetic(rational: list[int]) -> None:
    """The control: it is asked, for as many logits as tie and no more."""
    u = torch.tensor([[1.0, 0, 1, 9], [0, 1, -1, -9], [1, 1, 2, 0]])
    v = torch.tensor([[2.0, 2, 1]])
    assert winners(linear(u), v).token.tolist() == [-1]
    assert rational == [2]


@pytest.mark.parametrize("vocab", [2, 5, 12, 64, 1001])
def test_vocabularies_that_fill_their_lanes_and_others(vocab: int) -> None:
    """Columns in pairs a rounding apart, some of them equal, over more rows than a block has."""
    g = torch.Generator().manual_seed(vocab)
    u = nudged(torch.randn(8, -(-vocab // 2), generator=g).repeat(1, 2)[:, :vocab], g, 1)
    u[:, 0] *= 4
    u[:, -1] = u[:, 0]
    v = torch.cat([torch.randn(BLOCK + 3, 8, generator=g), u.mT[:1]])
    model = linear(u)
    won, chosen = winners(model, v), torch.arange(0, len(v), 1 + len(v) * vocab // 4000)
    chosen[-1] = len(v) - 1
    assert won.token[chosen].tolist() == [exact_winner(x) for x in exact_logits(model, v[chosen])]
    assert won.near_ties > 0
    assert won.token[-1] == -1


# --- devices


def test_all_that_meets_the_activations_is_on_their_device() -> None:
    model, v, events = hard_rows(300)
    owner, columns = torch.arange(300) % len(events), model.unembedding
    expected, gap = winners(model, v), Decider(model, events)(v, owner)
    differences = logit_differences(model, v, tuple(events))
    with pretended_device() as device:
        there = linear(columns.to(device), model.unembedding_bias.to(device))
        moved = v.to(device)
        won, decider = winners(there, moved), Decider(there, events)
        found = decider(moved, owner)
        rival = decider.best_rival(moved, owner)
        delta = logit_differences(there, moved, tuple(events))
    assert isinstance(rival, FarTensor)
    assert int(won.near_ties) > 3
    for here, back in zip((*expected, gap, *differences), (*won, found, *delta), strict=True):
        assert type(back) is Tensor
        assert torch.equal(here, back)


# --- what must not matter


def hard_rows(rows: int) -> tuple[Model, Tensor, list[Event]]:
    """Many activations near many boundaries: columns in tight clusters, the events among them."""
    g = torch.Generator().manual_seed(11)
    centres = torch.randn(24, 1, 10, generator=g).expand(-1, 9, -1).reshape(24, 90).contiguous()
    model = linear(nudged(centres, g, 1000), torch.zeros(90))
    events = [TokenIs(4), TokenIn(frozenset({14, 15})), TokenIs(24), TokenIs(50)]
    return model, torch.randn(rows, 24, generator=g), events


def test_the_answer_does_not_depend_on_rivals_neighbours_or_order() -> None:
    model, v, events = hard_rows(600)
    owner = torch.arange(600) % len(events)
    usual = Decider(model, events)
    gap = usual(v, owner)
    assert int(usual.near_ties.min()) > 1  # there is something to disagree on
    assert int((gap > 0).sum()) > 3
    for rivals in (1, 5, RIVALS):
        taught = Decider(model, [*events, TokenIs(7), TokenIs(70)], rivals)
        taught(v.flip(0), torch.full((600,), 4))
        assert torch.equal(taught(v, owner), gap)
        assert torch.equal(taught.near_ties[:4], usual.near_ties)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(1))
    shuffled = Decider(model, events)
    assert torch.equal(shuffled(v[order], owner[order]), gap[order])
    assert torch.equal(shuffled.near_ties, usual.near_ties)
    piecewise = Decider(model, events)
    sizes = [1, 2, 3, UNEMBED_BLOCK, UNEMBED_BLOCK + 1, 600 - 6 - 2 * UNEMBED_BLOCK - 1]
    pieces = zip(v.split(sizes), owner.split(sizes), strict=True)
    assert torch.equal(torch.cat([piecewise(x, o) for x, o in pieces]), gap)
    for i, event in enumerate(events):
        alone = Decider(model, [event])
        mine = owner == i
        assert torch.equal(alone(v[mine], torch.zeros(150, dtype=torch.int64)), gap[mine])
        assert int(alone.near_ties) == int(usual.near_ties[i])


def test_winners_do_not_depend_on_neighbours() -> None:
    model, v, _ = hard_rows(200)
    whole = winners(model, v)
    two = (v.double() @ model.unembedding.double()).topk(2)
    lead, margin = two.values[:, 0] - two.values[:, 1], readout(model).margin(v)
    assert whole.token.tolist() == two.indices[:, 0].tolist()
    assert whole.near_ties == int((lead <= margin).sum())
    for low, high in ((0.1, 0.5), (0.5, 1), (1, 2), (2, 99)):  # leads on all sides of the margin
        assert int(((lead > low * margin) & (lead <= high * margin)).sum()) > 3
    single = [winners(model, row[None]) for row in v]
    assert whole.token.tolist() == [int(one.token) for one in single]
    assert whole.near_ties == sum(one.near_ties for one in single)


def test_rivals_spare_most_rows_the_whole_vocabulary() -> None:
    g = torch.Generator().manual_seed(2)
    bias = torch.zeros(3000)
    bias[:20] = 30  # a few tokens that nearly always win
    model = linear(torch.randn(16, 3000, generator=g), bias)
    decider = Decider(model, [TokenIs(2000)])
    for _ in range(3):
        decider(torch.randn(1000, 16, generator=g), torch.zeros(1000, dtype=torch.int64))
    assert int(decider.unembedded) < 300
    assert decider.macs(0, 3000) == 16 * (3000 * RIVALS + int(decider.unembedded) * 3000)


def test_large_sets_are_gathered_in_pieces() -> None:
    g = torch.Generator().manual_seed(4)
    model = linear(torch.randn(64, 300, generator=g))
    v = torch.randn(1000, 64, generator=g)
    event = TokenIn(frozenset(range(0, 300, 2)))
    gap = Decider(model, [event])(v, torch.zeros(1000, dtype=torch.int64))
    assert torch.equal(gap > 0, event.score(v.double() @ model.unembedding.double()) > 0)


@pytest.mark.parametrize("vocab", [2, 5, 8])
def test_an_event_of_all_tokens_has_no_rival(vocab: int) -> None:
    model = linear(torch.randn(4, vocab, generator=torch.Generator().manual_seed(0)))
    decider = Decider(model, [TokenIn(frozenset(range(vocab)))])
    v = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    assert decider(v, torch.zeros(3, dtype=torch.int64)).tolist() == [math.inf] * 3
    assert int(decider.near_ties) == 0


def test_no_rows_are_no_trouble() -> None:
    model, v, events = hard_rows(1)
    assert len(Decider(model, events)(v[:0], torch.zeros(0, dtype=torch.int64))) == 0
    assert winners(model, v[:0]).near_ties == 0
