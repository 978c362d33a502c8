"""Files that did harm once: small ones that took gigabytes, and faults of other libraries."""

from __future__ import annotations

import json
import sqlite3
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from longshot.database import _added
from longshot.files import DIGEST, read_tensors, tensor_digest
from tests.checkpoint_files import their_state
from tests.fuzz.kinds import KINDS
from tests.fuzz.worker import _good, limit_memory, megabytes, outcome
from tests.toys import toy_network


def large_vocabulary(folder: Path) -> None:
    """A table of a kilobyte that claims a vocabulary of 3·10^8, under a right checksum."""
    tensors, metadata = read_tensors(folder / "table.safetensors")
    metadata["vocab_size"] = str(3 * 10**8)
    metadata[DIGEST] = tensor_digest(tensors, metadata)
    save_file(tensors, folder / "table.safetensors", metadata)


def packed_zeros(path: Path, table: str, column: str) -> None:
    """A quarter of a gigabyte of zeros in a megabyte, under right checksums."""
    packing = zlib.compressobj(1)
    bomb = b"".join(packing.compress(bytes(2**24)) for _ in range(16)) + packing.flush()
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = 1", (bomb,))
    seal = bytes(16)
    for row in connection.execute(f"SELECT * FROM {table}"):
        seal = _added(seal, *row)
    connection.execute("UPDATE seals SET seal = ? WHERE name = ?", (seal, table))
    connection.commit()
    connection.close()


def shared_storage(folder: Path) -> None:
    """Tensors that all look at the same eight megabytes: copies of them would be many gigabytes."""
    one = torch.zeros(2**21)
    state = their_state(toy_network()) | {f"blocks.{i}.x": one for i in range(1000)}
    torch.save(state, folder / "model_final.pth")


def packed_archive(folder: Path) -> None:
    """An archive of torch whose entries are packed."""
    path = folder / "model_final.pth"
    with zipfile.ZipFile(path) as source:
        entries = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, raw in entries.items():
            target.writestr(name, raw + bytes(2**26 if name.endswith("/0") else 0))


def part(name: str, value: Any) -> Callable[[Path], None]:
    """A tokenizer with another part."""

    def change(folder: Path) -> None:
        path = folder / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))

    return change


def large_id(folder: Path) -> None:
    """A token past all others: a tokenizer is written down by counting up to it."""
    path = folder / "tokenizer.json"
    raw = json.loads(path.read_text())
    raw["model"]["vocab"]["<|BOS|>"] = 2**31
    path.write_text(json.dumps(raw))


def many_spellings(folder: Path) -> None:
    """A slot that stands twice, repeated: each repetition spells the whole vocabulary."""
    path = folder / "t.toml"
    text = path.read_text().replace("repeat = 2", "repeat = 65536")
    path.write_text(text.replace("{name}", "{name} and {name}"))


CUT = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 5}
ATTACKS: dict[str, tuple[str, Any]] = {
    "vocabulary": ("table", large_vocabulary),
    "zeros in a store": ("store", lambda f: packed_zeros(f / "store.sqlite", "shards", "sums")),
    "zeros in a run": ("run", lambda f: packed_zeros(f / "run.sqlite", "rows", "estimate")),
    "many spellings": ("template", many_spellings),
    "large id": ("tokenizer", large_id),
    "shared storage": ("their-weights", shared_storage),
    "packed archive": ("their-weights", packed_archive),
    "cut texts": ("tokenizer", part("truncation", CUT)),
    "chunks of nothing": ("tokenizer", part("pre_tokenizer", {"type": "FixedLength", "length": 0})),
    "a map of nothing": (
        "tokenizer",
        part("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    ),
    "padding": (
        "tokenizer",
        part("padding", {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_id": 0,
                         "pad_to_multiple_of": None, "pad_type_id": 0, "pad_token": "x"}),
    ),
}  # fmt: skip


def attack(folder: Path, pipe: Any) -> None:
    """All attacks in one process with limits, which tells what came of each."""
    torch.set_num_threads(1)
    made = {}
    for name, (kind, change) in ATTACKS.items():
        made[name] = (_good(KINDS[kind], folder / name), folder / name / KINDS[kind].file)
        change(folder / name)
    limit_memory()
    before = megabytes()
    for name, (kind, _) in ATTACKS.items():
        good, path = made[name]
        pipe.send((name, outcome(KINDS[kind], good, path, True)["outcome"], megabytes() - before))
    pipe.close()
