"""Which tokens a truth calls known, where a token's own spread cannot be believed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from longshot.estimate import CellKey
from longshot.numerics import derived_generator
from longshot.truth import Truth
from longshot.truth.certified import check, markdown_checks
from longshot.truth.tally import Tally

TOKENS, PREFIXES, INPUTS = 1500, 4000, 2**21


def masses(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rare tokens that live on few prefixes: how likely each is, and what a prefix gives it."""
    p = 10 ** (-6 + 2 * torch.rand(TOKENS, generator=generator, dtype=torch.float64))
    heavy = 0.002 + 0.05 * torch.rand(TOKENS, generator=generator, dtype=torch.float64)
    return p, heavy


def sampled(generator: torch.Generator) -> tuple[Truth, Tensor]:
    """Half of a token's probability lies evenly on all prefixes, the other on a few."""
    p, heavy = masses(derived_generator(0, "masses"))
    even = torch.poisson(torch.full_like(p, 50.0), generator=generator) / 50 * p / 2 * PREFIXES
    found = torch.poisson(PREFIXES * p / 2 / heavy, generator=generator)
    total = even + found * heavy
    squares = even.square() / PREFIXES + found * heavy.square()
    counts = torch.poisson(p * INPUTS, generator=generator)
    cell = CellKey("m", "1", "i", "2", TOKENS)
    prefixes = Tally(PREFIXES, 100 * PREFIXES, 0, total, squares)
    return Truth(
        cell, {"conditional": prefixes, "brute": Tally(INPUTS, INPUTS, 0, counts, counts)}
    ), p


def test_a_token_whose_heavy_prefixes_were_missed_is_not_called_known() -> None:
    """By its own spread it is the best known of all, and half as likely as it is in truth."""
    truth, p = sampled(derived_generator(0, "known"))
    alone = Truth(truth.cell, {"conditional": truth.tallies["conditional"]})
    wrong = (alone.probability / p).log().abs() > 0.5
    by_own = alone.relative_error <= 0.25
    known = alone.known_to(0.25)
    assert float((wrong & by_own).sum() / by_own.sum()) > 0.5
    assert int(known.sum()) > 50
    assert float((wrong & known).sum() / known.sum()) < 0.05


def test_the_check_sees_what_the_spread_alone_believes(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [sampled(derived_generator(seed, "known"))[0] for seed in (1, 2)]
    tallies = {
        kind: halves[0].tallies[kind] + halves[1].tallies[kind] for kind in halves[0].tallies
    }
    truth = Truth(halves[0].cell, tallies, tuple(halves))
    found = check(truth, 0.25, 1e-7, 1e-3)
    assert found.prefixes is not None
    for agreed in (found.prefixes, found.shipped):
        assert agreed.tokens > 50
        assert 0.6 < agreed.mean_square < 1.5
        assert abs(agreed.mean) < 0.3
        assert agreed.within > 0.9
    assert found.shipped.tokens > found.prefixes.tokens  # both halves, and two kinds know more
    monkeypatch.setattr(Truth, "known_to", lambda self, r: self.relative_error <= r)
    believed = check(truth, 0.25, 1e-7, 1e-3).prefixes
    assert believed is not None
    assert believed.mean_square > 3
    assert markdown_checks([truth], 0.25, 1e-7, 1e-3).count("\n") == 2


def test_no_kind_is_weighted_by_less_than_rare_tokens_have_in_common() -> None:
    """Together with plain samples, what was missed comes back."""
    truth, p = sampled(derived_generator(2, "known"))
    missed = truth.tallies["conditional"].total < 0.6 * PREFIXES * p
    assert int(missed.sum()) > 500
    often = missed & (p * INPUTS > 50)
    error = (truth.probability / p)[often] - 1
    alone = truth.tallies["conditional"].total[often] / PREFIXES / p[often] - 1
    assert abs(float(error.mean())) < abs(float(alone.mean())) / 2
