"""Certificates: what pieces come to, when they certify, and the driver that makes them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from longshot.engines import LocalEngine
from longshot.errors import LongshotError
from longshot.estimate import Cell, CellKey
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.truth import Truth
from longshot.truth import deepen as deepening
from longshot.truth.certificate import Certificate, CertificatePiece, Opinion, PieceKey
from longshot.truth.certified import candidate_records, count_by_decade
from longshot.truth.deepen import Depths, deepen, guess_vocabulary, run_piece
from longshot.truth.make import Goal, make_truth
from longshot.truth.store import Store
from longshot.truth.tables import load_truth, read_table, write_table
from tests.toys import toy_model

ONE = LocalEngine(1)
CELL = CellKey("m", "1", "i", "2", 100)


def piece(p: float, error: float | None, part: int = 0, **key: object) -> CertificatePiece:
    named = {"estimator": "leafwise", "half": 1, "token": 7, "seed": 0, "part": part, **key}
    log_p = math.log(p) if p else -math.inf
    return CertificatePiece(PieceKey(**named), log_p, error, 1000, 5, 0.5)  # type: ignore[arg-type]


def test_pieces_are_averaged_and_the_larger_of_two_errors_is_taken() -> None:
    alike = Opinion.of([piece(2e-8, 0.2), piece(2e-8, 0.2, 1)])
    assert math.exp(alike.log_probability) == pytest.approx(2e-8)
    assert alike.relative_error == pytest.approx(0.2 / math.sqrt(2))
    assert alike.macs == 10
    apart = Opinion.of([piece(1e-8, 0.1), piece(3e-8, 0.1, 1)])
    assert math.exp(apart.log_probability) == pytest.approx(2e-8)
    assert apart.relative_error == pytest.approx(0.5)  # (3 − 1)/2 of 2, over √2, times √2
    one = Opinion.of([piece(2e-8, 0.2), piece(0.0, None, 1)])
    assert math.exp(one.log_probability) == pytest.approx(1e-8)
    assert one.relative_error == pytest.approx(1)
    assert Opinion.of([piece(0.0, None)]) == Opinion(-math.inf, math.inf, 5, 0.5)


def certificate(**opinions: tuple[float, float]) -> Certificate:
    return Certificate(7, -18.0, {n: Opinion(math.log(p), e) for n, (p, e) in opinions.items()})


def test_two_opinions_that_agree_certify_and_nothing_else_does() -> None:
    good = certificate(leafwise=(1e-8, 0.1), splitting=(1.3e-8, 0.3), samples=(9e-8, 2.0))
    assert good.is_certified
    weights = [100, 1 / 0.09]
    expected = (1e-8 * weights[0] + 1.3e-8 * weights[1]) / sum(weights)
    assert good.probability == pytest.approx(expected)
    assert good.relative_error == pytest.approx(sum(weights) ** -0.5)
    assert good.apart == pytest.approx(-math.log(1.3) / math.hypot(0.1, 0.3))
    for found, reason in (
        (certificate(leafwise=(1e-8, 0.1), splitting=(4e-8, 0.3)), "disagree by 4.4 errors"),
        (certificate(leafwise=(1e-8, 0.1), splitting=(1e-8, 0.6)), "only leafwise"),
        (certificate(leafwise=(1e-8, 0.4), splitting=(1e-8, 0.4)), "relative error is 0.28"),
        (certificate(splitting=(1e-8, 0.9)), "no estimator"),
    ):
        assert reason in str(found.refusal)
        assert not found.is_certified


def test_certified_probabilities_hold_as_often_as_their_errors_say() -> None:
    """Simulated opinions around a known truth: z is normal, and few are refused."""
    g, z, refused = torch.Generator().manual_seed(0), [], 0
    for _ in range(2000):
        noise = (0.15 * torch.randn(4, generator=g, dtype=torch.float64) - 0.15**2 / 2).exp()
        pieces = [
            piece(1e-8 * float(x), 0.15, i % 2, estimator=("leafwise", "splitting")[i // 2])
            for i, x in enumerate(noise)
        ]
        found = Truth(CELL, {}, (Truth(CELL, {}), Truth(CELL, {})), tuple(pieces)).certificates[0]
        refused += not found.is_certified
        z.append((found.log_probability - math.log(1e-8)) / found.relative_error)
    assert refused < 20
    assert sum(abs(x) < 1.96 for x in z) / len(z) == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize(
    "change",
    [
        {0: "mhis"}, {1: 2}, {2: 100}, {2: -1}, {4: 0.5}, {5: 0.5}, {5: math.nan}, {6: -1.0},
        {6: 0.0}, {7: 0}, {8: 2**70}, {9: None}, {9: math.inf}, {9: "x"},
    ],
)  # fmt: skip
def test_a_piece_that_no_estimator_gave_is_refused(change: dict[int, object]) -> None:
    stated = list(piece(1e-8, 0.2).stated)
    assert CertificatePiece.checked(100, stated) == piece(1e-8, 0.2)
    nothing = piece(0.0, None)
    assert CertificatePiece.checked(100, nothing.stated) == nothing
    for place, value in change.items():
        stated[place] = value
    with pytest.raises(ValueError, match="certificate"):
        CertificatePiece.checked(100, stated)


def toy_cell() -> Cell:
    """A toy whose 8⁴ inputs can be listed, most of whose tokens never win."""
    ids, free = range(2, 10), []
    for i in range(4):
        weights = [1.5 ** (j + i) for j in range(8)]
        free.append(TokenDistribution.from_weights(ids, weights))
    return Cell(toy_model(6, vocab=12), ProductInputs("toy", free))


@pytest.fixture(scope="module")
def exact() -> torch.Tensor:
    cell = toy_cell()
    tokens = torch.cartesian_prod(*(d.support for d in cell.inputs.positions))
    from longshot.evaluate import activations, winners

    won = winners(cell.model, activations(cell.model, tokens)).token
    p = torch.zeros(cell.model.vocab_size, dtype=torch.float64)
    return p.index_add(0, won, cell.inputs.log_prob(tokens).exp())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepening, "PIECES", (4096, 4096, 16384))
    monkeypatch.setattr(deepening, "SCOUT", 2048)
    monkeypatch.setattr(deepening, "GUESS", 512)


def deepened(path: Path, wanted: Depths, stop_after: int | None = None) -> list[CertificatePiece]:
    """Certificates of the toy in a store, perhaps interrupted."""
    cell = toy_cell()

    class Stopped(Exception):
        pass

    def count(status: deepening.DeepStatus) -> None:
        if stop_after is not None and status.pieces >= stop_after:
            raise Stopped

    with Store(path, create=True) as store:
        if not store.spans(cell.key):
            make_truth([cell], store, ONE, Goal(leaves=20_000))
        try:
            deepen(cell, store, ONE, wanted, store.truth(cell.key), count)
        except Stopped:
            assert stop_after is not None
        return store.pieces(cell.key)


def without_seconds(pieces: list[CertificatePiece]) -> list[object]:
    return [found._replace(seconds=0.0) for found in pieces]


@pytest.mark.usefixtures("quick")
def test_certificates_of_a_toy_hold_and_an_interrupted_run_goes_on(
    tmp_path: Path, exact: torch.Tensor
) -> None:
    wanted = Depths(1e-4, 1e-1, per_decade=3)
    whole = deepened(tmp_path / "whole", wanted)
    for stop in (1, 4, 7):
        deepened(tmp_path / "parts", wanted, stop)
    assert without_seconds(deepened(tmp_path / "parts", wanted)) == without_seconds(whole)
    with Store(tmp_path / "whole") as store:
        truth = store.truth(toy_cell().key)
    certified = [c for c in truth.certificates if c.is_certified]
    assert len(certified) >= 2
    for found in certified:
        z = (found.log_probability - float(exact[found.token].log())) / found.relative_error
        assert abs(z) < 4
    table = count_by_decade([truth])
    assert "toy" in table
    records = list(candidate_records(truth))
    assert {r["token"] for r in records} == {c.token for c in truth.certificates}


@pytest.mark.usefixtures("quick")
def test_pieces_go_through_stores_and_tables_unchanged(tmp_path: Path) -> None:
    pieces = deepened(tmp_path / "s", Depths(1e-3, 1e-1, per_decade=1))
    cell = toy_cell()
    with Store(tmp_path / "s") as store, Store(tmp_path / "t", create=True) as other:
        shards = store.shards(cell.key)
        assert other.merge(store) == (len(shards) + len(pieces), 0)
        assert other.merge(store) == (0, len(shards) + len(pieces))
        assert other.pieces(cell.key) == pieces
    path = tmp_path / "t.safetensors"
    write_table(path, cell.key, shards, "", pieces)
    assert read_table(path)[2] == pieces
    assert load_truth(cell.model, cell.inputs, path).pieces == tuple(pieces)


def test_a_store_of_the_version_before_certificates_is_read_and_brought_up_to_date(
    tmp_path: Path,
) -> None:
    import sqlite3

    path, cell = tmp_path / "s", toy_cell()
    with Store(path, create=True) as store:
        make_truth([cell], store, ONE, Goal(leaves=200))
        before = store.shards(cell.key)
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE pieces")
    connection.execute("DELETE FROM seals WHERE name = 'pieces'")
    connection.execute("PRAGMA user_version = 2")
    connection.commit()
    connection.close()
    with Store(path) as store:
        assert store.pieces(cell.key) == []
        assert len(store.shards(cell.key)) == len(before)
    with Store(path, create=True) as store:
        store.add_piece(cell.key, piece(1e-8, 0.2))
    with Store(path) as store:
        assert store.pieces(cell.key) == [piece(1e-8, 0.2)]
        assert store.version == 3


def test_a_piece_depends_on_its_name_alone() -> None:
    key = PieceKey("leafwise", 1, 8, 0, 0)
    one, again = (run_piece(toy_cell(), key)._replace(seconds=0.0) for _ in range(2))
    assert one == again
    assert run_piece(toy_cell(), key._replace(part=1)).log_probability != one.log_probability


def test_the_guess_covers_the_vocabulary(exact: torch.Tensor) -> None:
    cell = toy_cell()
    guess = guess_vocabulary(cell, cell.generator(0, "guess"))
    assert len(guess) == cell.model.vocab_size
    likely = exact > 0.02
    assert float((guess - exact.log())[likely].abs().max()) < 1.5


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(LongshotError, match="No probability"):
        Depths(1e-5, 1e-9)
    with pytest.raises(LongshotError, match="a decade"):
        Depths(per_decade=0)
    assert [round(math.exp(low), 12) for low, _ in Depths().decades] == [1e-9, 1e-8, 1e-7, 1e-6]
