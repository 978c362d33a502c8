"""Damaged truth is refused: no bit of a table or a store can change and be believed."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from longshot.errors import LongshotError
from longshot.estimate import CellKey
from longshot.files import read_tensors, tensor_digest
from longshot.truth.store import Store
from longshot.truth.tables import SHIPPED, read_table, table_path, write_table
from longshot.truth.tally import Shard, Span, Stream, Tally
from tests.truth.test_store import CELL, filled, same, shard

TABLE = SHIPPED / "mini-4l-icl.safetensors"


def test_no_flipped_bit_of_a_table_is_believed(tmp_path: Path) -> None:
    whole, draw = TABLE.read_bytes(), random.Random(0)
    path, refused = tmp_path / "t.safetensors", 0
    for _ in range(300):
        at, bit = draw.randrange(len(whole)), draw.randrange(8)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        try:
            cell, shards, _ = read_table(path)
        except LongshotError:
            refused += 1
        else:
            expected = read_table(TABLE)
            assert cell == expected[0]
            assert all(same(a, b) for a, b in zip(shards, expected[1], strict=True))
    assert refused > 290


def test_no_flipped_bit_of_a_store_is_believed(tmp_path: Path) -> None:
    path = filled(tmp_path / "s", *(shard(i, i + 1) for i in range(12)))
    whole, draw = path.read_bytes(), random.Random(1)
    with Store(path) as store:
        expected = store.shards(CELL)
    for _ in range(300):
        at, bit = draw.randrange(len(whole)), draw.randrange(8)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        try:
            with Store(path) as store:
                found = store.shards(CELL)
        except LongshotError:
            continue
        assert all(same(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE shards SET samples = samples + 1 WHERE start = 1",
        "DELETE FROM shards WHERE start = 1",
        "UPDATE cells SET vocab_size = 51",
        "INSERT INTO shards SELECT cell, kind, seed, half, 8, 9, 1, 1, 0, sums FROM shards LIMIT 1",
    ],
)
def test_a_row_that_was_changed_lost_or_put_in_is_seen(tmp_path: Path, change: str) -> None:
    path = filled(tmp_path / "s", shard(0, 1), shard(1, 2))
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(LongshotError, match="not those that were written, by their checksums"):
        Store(path)


def test_a_store_from_before_there_were_checksums_is_read_and_gets_them(tmp_path: Path) -> None:
    path = filled(tmp_path / "s", shard(0, 1))
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE seals")
        connection.execute("DROP TABLE pieces")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with Store(path) as store:
        assert same(store.shards(CELL)[0], shard(0, 1))
    filled(path, shard(1, 2))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE shards SET leaves = leaves + 1")
    connection.close()
    with pytest.raises(LongshotError, match="checksums"):
        Store(path)


def stated(**change: object) -> list[object]:
    known = {
        "kind": "conditional", "seed": 0, "half": 0, "start": 0, "stop": 4, "samples": 10,
        "leaves": 100, "near_ties": 0,
    }  # fmt: skip
    return list((known | change).values())


@pytest.mark.parametrize(
    ("change", "total", "squares"),
    [
        ({}, [9.0, 1.5], [9.0, 0.5]),
        ({}, [-1.0, 1.0], [0.5, 0.5]),
        ({}, [float("nan"), 1.0], [0.5, 0.5]),
        ({}, [float("inf"), 1.0], [0.5, 0.5]),
        ({}, [1.0, 1.0], [float("nan"), 0.5]),
        ({}, [1.0, 1.0], [1.5, 0.5]),
        ({}, [5.0, 1.0], [0.1, 0.5]),
        ({"samples": -10}, [1.0, 1.0], [0.5, 0.5]),
        ({"leaves": 5}, [1.0, 1.0], [0.5, 0.5]),
        ({"near_ties": 200}, [1.0, 1.0], [0.5, 0.5]),
        ({"half": 2}, [1.0, 1.0], [0.5, 0.5]),
        ({"start": 4}, [1.0, 1.0], [0.5, 0.5]),
        ({"seed": 2**80}, [1.0, 1.0], [0.5, 0.5]),
        ({"seed": "0"}, [1.0, 1.0], [0.5, 0.5]),
        ({"kind": "guess"}, [1.0, 1.0], [0.5, 0.5]),
    ],
)
def test_what_no_samples_could_have_given_is_refused(
    change: dict[str, object], total: list[float], squares: list[float]
) -> None:
    tokens = torch.tensor([3, 7])
    good = [torch.tensor(each, dtype=torch.float64) for each in ([1.0, 1.0], [0.5, 0.5])]
    assert Shard.checked(CELL, stated(), tokens, good).tally.samples == 10
    for wrong in (torch.tensor([3, 3]), torch.tensor([3, 50]), torch.tensor([-1, 3])):
        with pytest.raises(ValueError, match="vocabulary"):
            Shard.checked(CELL, stated(), wrong, good)
    sums = [torch.tensor(each, dtype=torch.float64) for each in (total, squares)]
    with pytest.raises(ValueError, match="a shard's"):
        Shard.checked(CELL, stated(**change), tokens, sums)


def forged(path: Path, **change: str) -> Path:
    """A table that somebody changed who knows how the checksum is made."""
    tensors, metadata = read_tensors(TABLE)
    metadata |= change
    metadata.pop("digest")
    save_file(tensors, path, metadata | {"digest": tensor_digest(tensors, metadata)})
    return path


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_size": "300000000"},
        {"vocab_size": "-1"},
        {"vocab_size": "9" * 5000},
        {"pieces": "[" * 100_000},
        {"pieces": "{}"},
        {"pieces": "[1, 2]"},
        {"pieces": "7"},
        {"model": "mini\x1b[2J"},
        {"inputs": ""},
    ],
)
def test_a_forged_table_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    with pytest.raises(LongshotError, match=r"damaged table"):
        read_table(forged(tmp_path / "t.safetensors", **change))


def test_names_of_cells_never_leave_the_folder(tmp_path: Path) -> None:
    nasty = ["x/../../y", "../up", "/etc/passwd", "..", ".", "", "a\0b", "a" * 300, "con/", "ß…"]
    folder = tmp_path / "deep" / "tables"
    paths = [table_path(CellKey(name, "m", name, "i", 50), folder) for name in nasty]
    assert all(path.parent == folder and path.name not in ("..", ".") for path in paths)
    assert len(set(paths)) == len(nasty)
    for path, name in zip(paths, nasty, strict=True):
        if name and name.isprintable():
            write_table(path, CellKey(name, "m", name, "i", 50), [shard(0, 4)], "")
    assert {path.parent for path in tmp_path.rglob("*.safetensors")} == {folder}


def test_a_table_in_too_many_pieces_is_neither_written_nor_read(tmp_path: Path) -> None:
    large = CellKey("toy", "m", "camel", "i", 2**20)
    total = torch.zeros(2**20, dtype=torch.float64)
    total[5] = 1.0
    pieces = (
        Shard(Span(Stream("brute", 0, 0), 2 * i, 2 * i + 1), Tally(1, 1, 0, total, total))
        for i in range(33)
    )
    with pytest.raises(LongshotError, match="33 pieces"):
        write_table(tmp_path / "t.safetensors", large, pieces, "")
