"""Paired differences: what they are of, and that their errors are as large as they say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from longshot.report.evidence import gather
from longshot.report.tables import paired
from longshot.study.fits import LeaveOneOut
from longshot.study.paired import Difference, difference, paired_records, pairs
from longshot.study.scores import CellScore
from longshot.study.summary import CONSTANT, Scored, score_run
from tests.report.synthetic import make_evidence, make_run


@pytest.fixture(scope="module")
def scored() -> list[Scored]:
    return score_run(make_run(("m",), ("hex", "caps"), ("naive", "gld", "itgis"), 12))


def of(scored: list[Scored], label: str) -> list[Scored]:
    return [cell for cell in scored if cell.method == label]


@pytest.mark.parametrize("fitted", [True, False])
def test_a_difference_of_whole_methods_is_the_difference_of_their_means(
    scored: list[Scored], fitted: bool
) -> None:
    first, second = of(scored, "itgis"), of(scored, "naive")
    found = difference(first, second, "is", fitted)
    name = "mean" if fitted else "raw_zeros"
    means = [
        np.mean([getattr(cell.score.losses["is"], name) for cell in cells])
        for cells in (first, second)
    ]
    assert found.mean == pytest.approx(means[1] - means[0])
    assert (found.targets, found.cells) == (24, 2)
    back = difference(second, first, "is", fitted)
    assert back.mean == pytest.approx(-found.mean)
    assert back.error == pytest.approx(found.error)


def test_targets_are_paired_by_their_token(scored: list[Scored]) -> None:
    """A method without some targets, in another order, is compared on those that it has."""
    (first, _), (second, _) = of(scored, "itgis"), of(scored, "naive")
    losses = np.arange(12.0)
    shifted = [_with(first, losses), _with(second, losses + 1, backwards=True)]
    found = difference([shifted[0]], [shifted[1]], "is")
    assert found == Difference(pytest.approx(1.0), pytest.approx(0.0), None, 12, 12, 1)
    tokens = shifted[1].tokens[:5]
    part = replace(shifted[1], tokens=tokens, score=_score(shifted[1], losses[::-1][:5] + 1))
    assert difference([shifted[0]], [part], "is").targets == 5
    alone = replace(part, tokens=tokens[:1], score=_score(part, losses[-1:] + 1))
    assert difference([shifted[0]], [alone], "is") == Difference(None, None, None, 0, 0, 0)


def _score(cell: Scored, losses: np.ndarray) -> CellScore:
    part = cell.score.losses["is"]
    left_out = LeaveOneOut(losses, losses, losses, losses < 0)
    part = replace(part, left_out=left_out)
    judged = np.ones(len(losses), dtype=bool)
    return CellScore(len(losses), 0, {"is": part}, 0, cell.score.coverage, judged, losses, losses)


def _with(cell: Scored, losses: np.ndarray, backwards: bool = False) -> Scored:
    tokens = cell.tokens[::-1] if backwards else cell.tokens
    losses = losses[::-1] if backwards else losses
    return replace(cell, tokens=tokens, score=_score(cell, losses))


def test_the_error_is_that_of_the_mean(scored: list[Scored]) -> None:
    """Over 400 draws of targets in two cells of unlike size and spread: z² has the mean 1.

    Losses of both methods share a part that is ten times as large, so that an error that is not
    paired would be far too long; the tolerance is four errors of the mean of 400 z².
    """
    rng = np.random.default_rng(3)
    cells = of(scored, "itgis"), of(scored, "naive")
    zs, unpaired = [], []
    for _ in range(400):
        made: list[list[Scored]] = [[], []]
        for n, spread, true, (a, b) in zip(
            (40, 90), (0.5, 2.0), (0.3, 0.1), zip(*cells, strict=True), strict=True
        ):
            hard = 10 * rng.normal(size=n)
            losses = hard, hard + true + spread * rng.normal(size=n)
            for side, cell, lost in zip(made, (a, b), losses, strict=True):
                side.append(replace(cell, tokens=tuple(range(n)), score=_score(cell, lost)))
        found = difference(*made, "is")
        zs.append((found.mean - 0.2) / found.error)
        unpaired.append(10 * math.sqrt(2 / 40) / found.error)
    assert abs(np.mean(np.square(zs)) - 1) < 4 * math.sqrt(2 / 400)
    assert np.median(unpaired) > 5


def test_a_lead_is_clear_only_beyond_both_errors() -> None:
    lead = Difference(0.3, 0.1, 0.1, 5, 9, 2)
    assert lead.is_clear
    assert not lead._replace(error=0.2).is_clear
    assert not lead._replace(cell_error=0.2).is_clear
    assert not lead._replace(mean=-0.3).is_clear
    assert lead._replace(cell_error=None).is_clear
    assert not lead._replace(error=None).is_clear


def test_every_pair_is_told_once_the_better_first(scored: list[Scored]) -> None:
    found = pairs(scored, "is")
    assert len(found) == 6
    assert all(fitted.mean >= 0 for _, _, fitted, _ in found)
    assert {label for a, b, *_ in found for label in (a, b)} == {CONSTANT, "naive", "gld", "itgis"}
    records = paired_records(scored)
    assert len(records) == 12
    assert {record["loss"] for record in records} == {"is_loss", "log_mse"}
    grid = paired(make_evidence(make_run(targets=6)), "mini-2l", "log")
    assert len(grid.rows) == 21
    assert (grid.group, grid.loss) == ("mini-2l", "log")


def test_what_was_not_judged_is_in_no_pair() -> None:
    run = make_run(("m",), ("hex",), ("naive", "itgis"), 8)
    cell = ("run", "m", "hex")
    unseen, *rest = run.chosen[cell].targets
    targets = (replace(unseen, probability=0.0, standard_error=math.inf), *rest)
    chosen = {cell: run.chosen[cell]._replace(targets=targets)}
    evidence = gather(replace(run, chosen=chosen))
    assert {f.targets for *_, f, _ in pairs(evidence.scored(), "is")} == {7}
    assert unseen.token not in evidence.scored("m", "itgis")[0].each("is")
