"""Shards go in whole or not at all, never twice; every fault is one sentence and loses nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import torch

from longshot.errors import LongshotError
from longshot.estimate import CellKey
from longshot.truth.store import SCHEMA, Store
from longshot.truth.tally import Kind, Shard, Span, Stream, Tally, joined

CELL = CellKey("toy", "m" * 16, "camel", "i" * 16, 50)


def shard(start: int, stop: int, half: int = 0, kind: Kind = "conditional", seed: int = 0) -> Shard:
    g = torch.Generator().manual_seed(start + 1000 * half)
    total = torch.rand(50, generator=g, dtype=torch.float64)
    total[total < 0.5] = 0
    total *= 10 / total.sum()  # as of ten samples, each of which has one winner
    squares = total * 0.9 if kind == "conditional" else total
    return Shard(Span(Stream(kind, seed, half), start, stop), Tally(10, 200, start, total, squares))


def same(a: Shard, b: Shard) -> bool:
    return (
        a.span == b.span
        and torch.equal(a.tally.total, b.tally.total)
        and torch.equal(a.tally.squares, b.tally.squares)
        and (a.tally.samples, a.tally.leaves, a.tally.near_ties)
        == (b.tally.samples, b.tally.leaves, b.tally.near_ties)
    )


def filled(path: Path, *shards: Shard) -> Path:
    with Store(path, create=True) as store:
        for one in shards:
            store.add(CELL, one)
    return path


def add_all(store: Store, starts: range) -> None:
    for start in starts:
        store.add(CELL, shard(start, start + 1))


def spans(path: Path) -> list[Span]:
    with Store(path) as store:
        return store.spans(CELL)


def test_what_goes_in_comes_out_in_the_order_of_spans(tmp_path: Path) -> None:
    shards = [shard(4, 8), shard(0, 4), shard(0, 4, 1), shard(0, 9, kind="brute")]
    path = filled(tmp_path / "deep" / "store.sqlite", *shards)
    with Store(path) as store:
        found = store.shards(CELL)
        assert store.cells() == [CELL]
    expected = sorted(shards, key=lambda s: s.span)
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_a_shard_without_a_winner_comes_back(tmp_path: Path) -> None:
    empty = Shard(Span(Stream("conditional", 0, 0), 0, 1), Tally.empty(50))
    with Store(filled(tmp_path / "s", empty)) as store:
        assert same(store.shards(CELL)[0], empty)


@pytest.mark.parametrize("ends", [(0, 4), (3, 5), (1, 2), (0, 9), (3, 4)])
def test_an_overlap_is_refused(tmp_path: Path, ends: tuple[int, int]) -> None:
    path = filled(tmp_path / "s", shard(0, 4))
    with Store(path) as store, pytest.raises(LongshotError, match="counted twice"):
        store.add(CELL, shard(*ends))
    filled(path, shard(4, 5), shard(0, 4, 1), shard(0, 4, kind="brute"), shard(0, 4, seed=1))
    assert len(spans(path)) == 5


def test_stores_merge_once(tmp_path: Path) -> None:
    a = filled(tmp_path / "a", shard(0, 4), shard(4, 8))
    b = filled(tmp_path / "b", shard(4, 8), shard(8, 12), shard(0, 4, 1))
    with Store(a) as into, Store(b) as source:
        assert into.merge(source) == (2, 1)
        assert into.merge(source) == (0, 3)
    whole = filled(tmp_path / "c", shard(0, 4), shard(4, 8), shard(8, 12), shard(0, 4, 1))
    with Store(a) as one, Store(whole) as other:
        pairs = zip(one.shards(CELL), other.shards(CELL), strict=True)
        assert all(same(x, y) for x, y in pairs)


def test_a_merge_with_one_overlap_changes_nothing(tmp_path: Path) -> None:
    a = filled(tmp_path / "a", shard(0, 4))
    b = filled(tmp_path / "b", shard(0, 4, 1), shard(2, 6))
    with Store(a) as into, Store(b) as source, pytest.raises(LongshotError, match="overlap"):
        into.merge(source)
    assert spans(a) == [shard(0, 4).span]


def test_truth_of_other_weights_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "s", shard(0, 4))
    with Store(path) as store:
        for other in (CELL._replace(model_fingerprint="x"), CELL._replace(inputs_fingerprint="x")):
            for attempt in (
                lambda o=other: store.add(o, shard(8, 9)),
                lambda o=other: store.shards(o),
            ):
                with pytest.raises(LongshotError, match="different version of the"):
                    attempt()
    assert len(spans(path)) == 1


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database " * 100)
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE diary (day TEXT)")
    connection.close()
    for path, reason in ((text, "not a database"), (foreign, "not a truth store")):
        before = path.read_bytes()
        with pytest.raises(LongshotError, match=reason):
            Store(path, create=True)
        assert path.read_bytes() == before
    with pytest.raises(LongshotError, match="no truth store at"):
        Store(tmp_path / "absent")


def test_another_version_or_schema_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "s", shard(0, 4))
    for change, reason in (
        (f"PRAGMA user_version = {Store.version + 1}", f"of version {Store.version + 1}"),
        (f"PRAGMA user_version = {Store.version}", None),
        ("ALTER TABLE shards ADD COLUMN mood TEXT", "not a truth store"),
    ):
        connection = sqlite3.connect(path)
        connection.execute(change)
        connection.commit()
        connection.close()
        if reason:
            with pytest.raises(LongshotError, match=reason):
                Store(path)
    assert set(SCHEMA) == {"cells", "shards", "pieces"}


@pytest.mark.parametrize("keep", [1, 100, 5000, 9000])
def test_a_torn_file_is_a_clear_error(tmp_path: Path, keep: int) -> None:
    path = filled(tmp_path / "s", *(shard(i, i + 1) for i in range(60)))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(LongshotError, match=str(path)), Store(path) as store:
        store.shards(CELL)


def test_a_damaged_shard_is_a_clear_error(tmp_path: Path) -> None:
    path = filled(tmp_path / "s", shard(0, 4))
    for damage in (b"", b"nonsense", sqlite3.Binary(b"x\x9c\x03\x00\x00\x00\x00\x01")):
        connection = sqlite3.connect(path)
        connection.execute("UPDATE shards SET sums = ?", (damage,))
        connection.execute("UPDATE shards SET stop = 4")
        connection.commit()
        connection.close()
        with pytest.raises(LongshotError, match="not those that were written"):
            Store(path)
        with sqlite3.connect(path) as connection:  # as of a forger, who knows of checksums
            connection.execute("DROP TABLE seals")
            connection.execute("DROP TABLE pieces")
            connection.execute("PRAGMA user_version = 1")
        connection.close()
        with Store(path, create=True) as store:
            if damage in (b"", b"nonsense"):
                with pytest.raises(LongshotError, match="failed"):
                    store.shards(CELL)
            else:
                assert float(store.shards(CELL)[0].tally.total.sum()) == 0


def test_a_full_disk_loses_only_the_shard_in_hand(tmp_path: Path) -> None:
    path = filled(tmp_path / "s", shard(0, 1))
    with Store(path, create=True) as store:
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(LongshotError, match="disk is full"):
            add_all(store, range(1, 100))
        done = len(store.spans(CELL))
    assert done >= 1
    filled(path, *(shard(i, i + 1) for i in range(done, 20)))  # with room again it goes on
    with Store(path) as store:
        found = store.shards(CELL)
    assert all(same(a, shard(i, i + 1)) for i, a in enumerate(found))
    assert len(found) == 20


@pytest.mark.parametrize("folder", ["/proc", "/sys/kernel"])
def test_a_folder_that_cannot_be_written_is_a_clear_error(folder: str) -> None:
    """Not by permissions: root, which tests may run as, has them all."""
    with pytest.raises(LongshotError, match=r"The truth store .* failed"):
        Store(Path(folder) / "here" / "store.sqlite", create=True)


def test_a_store_that_cannot_be_written_keeps_what_it_has(tmp_path: Path) -> None:
    path = filled(tmp_path / "s", shard(0, 4))
    with Store(path) as store:
        store._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(LongshotError, match="readonly database"):
            store.add(CELL, shard(4, 8))
    assert spans(path) == [shard(0, 4).span]


def test_numbers_that_sqlite_cannot_hold_are_a_clear_error(tmp_path: Path) -> None:
    with (
        Store(tmp_path / "s", create=True) as store,
        pytest.raises(LongshotError, match="too large"),
    ):
        store.add(CELL, shard(0, 1, seed=2**70))


def test_neighbours_are_joined_and_gaps_are_kept() -> None:
    pieces = list(joined([shard(0, 4), shard(4, 8), shard(8, 9), shard(10, 12), shard(0, 2, 1)]))
    ends = [(p.span.stream.half, p.span.start, p.span.stop) for p in pieces]
    assert ends == [(0, 0, 9), (0, 10, 12), (1, 0, 2)]
    expected = shard(0, 4).tally + shard(4, 8).tally + shard(8, 9).tally
    assert torch.equal(pieces[0].tally.total, expected.total)
    assert pieces[0].tally.samples == 30
