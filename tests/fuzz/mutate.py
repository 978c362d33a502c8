"""Ways to spoil a file: by its bytes, and by what its bytes mean.

A mutation is a function of the good file, the folder's randomness and nothing else. One that is
`forged` mends the checksums again, as somebody would who means harm: what it makes need not read as
before, but still may do no harm.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import re
import sqlite3
import string
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from longshot.database import _added
from longshot.files import DIGEST, tensor_digest

NUMBERS = [
    0, -1, 1, 2, 7, 255, 2**16, 2**20, 2**20 + 1, 3 * 10**8, 2**31, 2**32 - 1, 2**53, 2**63 - 1,
    -(2**63), 2**64, 10**30, 0.5, -0.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
TEXTS = [
    "", " ", "x/../../y", "/etc/passwd", "[/x]", "\x1b[2J", "\u202e", "a\nb", "\0", "é" * 40,
    "A" * 5000, "null", "brute", "conditional", "gld", "itgis", "ü", ":smile:",
]  # fmt: skip
ODD = [None, True, False, [], {}, [[]], {"a": 1}, [1, "x", None], "text", b"bytes"]


def any_value(draw: random.Random) -> Any:
    return draw.choice(draw.choice((NUMBERS, TEXTS, ODD)))


# --- by bytes


def mutate_bytes(raw: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        at = draw.randrange(len(raw) + 1)
        length = draw.choice((1, 1, 2, 4, 8, 64, 1024))
        noise = draw.choice((bytes(length), b"\xff" * length, draw.randbytes(length)))
        match draw.randrange(7):
            case 0 if at < len(raw):
                raw = raw[:at] + bytes([raw[at] ^ 1 << draw.randrange(8)]) + raw[at + 1 :]
            case 1:
                raw = raw[:at]
            case 2:
                raw = raw[:at] + noise + raw[at:]
            case 3:
                raw = raw[:at] + noise + raw[at + length :]
            case 4:
                raw = raw[:at] + raw[at + length :]
            case 5:
                other = draw.randrange(len(raw) + 1)
                raw = raw[:at] + raw[other : other + length] + raw[at + length :]
            case _:
                number = draw.choice([n for n in NUMBERS if isinstance(n, int)])
                raw = raw[:at] + (number % 2**64).to_bytes(8, "little") + raw[at + 8 :]
    return raw


# --- by meaning


def mutate_json(value: Any, draw: random.Random, depth: int = 0) -> Any:
    """The same value with something in it changed, dropped, doubled or nested."""
    if depth < 12 and isinstance(value, dict) and value and draw.random() < 0.85:
        changed, key = dict(value), draw.choice(list(value))
        match draw.randrange(8):
            case 0:
                del changed[key]
            case 1:
                changed[str(draw.choice(TEXTS))] = changed.pop(key)
            case _:
                changed[key] = mutate_json(value[key], draw, depth + 1)
        return changed
    if depth < 12 and isinstance(value, list) and value and draw.random() < 0.85:
        at, items = draw.randrange(len(value)), list(value)
        match draw.randrange(6):
            case 0:
                del items[at]
            case 1:
                items = items * 2 if len(items) < 1000 else items[:at]
            case _:
                items[at] = mutate_json(value[at], draw, depth + 1)
        return items
    if type(value) in (int, float) and draw.random() < 0.6:
        return draw.choice(NUMBERS)
    if isinstance(value, str) and draw.random() < 0.5:
        return draw.choice((value[:-1], value + value, value.upper(), draw.choice(TEXTS)))
    if draw.random() < 0.02:
        return json.loads("[" * 900 + "]" * 900)
    found = any_value(draw)
    return found.decode() if isinstance(found, bytes) else found


def json_file(raw: bytes, draw: random.Random) -> bytes:
    value = json.loads(raw)
    for _ in range(draw.choice((1, 1, 2, 3))):
        value = mutate_json(value, draw)
    return json.dumps(value).encode()


def hostile_tokenizer(raw: bytes, draw: random.Random) -> bytes:
    """A part that the library knows, with a number or a text that it does not expect."""
    number, text = draw.choice(NUMBERS), draw.choice(TEXTS)
    cut = {"direction": "Right", "max_length": number, "strategy": "LongestFirst", "stride": 5}
    pad = {"strategy": {"Fixed": number}, "direction": "Right", "pad_to_multiple_of": None,
           "pad_id": 0, "pad_type_id": 0, "pad_token": text}  # fmt: skip
    part = draw.choice((
        {"truncation": cut},
        {"padding": pad},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": text}},
        {"pre_tokenizer": {"type": "FixedLength", "length": number}},
        {"decoder": {"type": "Strip", "content": text[:1], "start": number, "stop": number}},
        {"model": {"type": "Unigram", "unk_id": number, "vocab": [[text, number]]}},
        {"model": {"type": "WordPiece", "unk_token": text, "vocab": {text: number},
                   "continuing_subword_prefix": "", "max_input_chars_per_word": number}},
    ))  # fmt: skip
    return json.dumps(json.loads(raw) | part).encode()


def toml_file(raw: bytes, draw: random.Random) -> bytes:
    lines = raw.decode().split("\n")
    for _ in range(draw.choice((1, 1, 2, 3))):
        at = draw.randrange(len(lines))
        match draw.randrange(6):
            case 0:
                del lines[at : at + 1]
                lines = lines or [""]
            case 1:
                lines.insert(at, draw.choice(lines))
            case 2:
                key = "".join(draw.choices(string.ascii_lowercase + ".\"'[]{}= ", k=6))
                lines[at] = f"{key} = {json.dumps(mutate_json(1, draw))}"
            case _:
                value = json.dumps(_plain(any_value(draw))).replace("NaN", "nan")
                value = value.replace("Infinity", "inf").replace("null", '""')
                lines[at] = re.sub(r"= .*", lambda _, v=value: f"= {v}", lines[at])
    return "\n".join(lines).encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def safetensors_header(raw: bytes, draw: random.Random, forged: bool = False) -> bytes:
    """A changed header in front of the same data, its length right; or a right checksum too."""
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    metadata = header.get("__metadata__", {})
    if forged and "pieces" in metadata:
        pieces = json.loads(metadata["pieces"])
        if draw.random() < 0.7:
            metadata["pieces"] = json.dumps(mutate_json(pieces, draw))
        else:
            key = draw.choice([name for name in metadata if name != DIGEST])
            metadata[key] = str(any_value(draw))
    else:
        header = mutate_json(header, draw)
    packed = json.dumps(header).encode()
    return len(packed).to_bytes(8, "little") + packed + raw[8 + size :]


def forged_table(raw: bytes, draw: random.Random) -> bytes:
    """Other numbers under a right checksum."""
    from safetensors.torch import load, save

    raw = safetensors_header(raw, draw, forged=True) if draw.random() < 0.6 else raw
    tensors = load(raw)
    size = int.from_bytes(raw[:8], "little")
    metadata = json.loads(raw[8 : 8 + size])["__metadata__"]
    metadata = {str(name): str(text) for name, text in metadata.items()}
    if draw.random() < 0.6:
        name = draw.choice(list(tensors))
        match draw.randrange(4):
            case 0:
                tensors[name] = tensors[name].float()
            case 1:
                tensors[name] = tensors[name][: draw.randrange(len(tensors[name]) + 1)].clone()
            case 2:
                tensors[name] = tensors[name].reshape(1, -1)
            case _ if tensors[name].is_floating_point():
                tensors[name][draw.randrange(len(tensors[name]))] = float(
                    draw.choice([n for n in NUMBERS if abs(n) < 2**64 or n != n])
                )
            case _:
                del tensors[name]
    metadata[DIGEST] = tensor_digest(tensors, metadata)
    return save(tensors, metadata)


def sqlite_rows(path: Path, draw: random.Random, forged: bool) -> None:
    """A value, a row or the schema changed by SQL; the seals made right again by a forger."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    tables = [
        row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    try:
        for _ in range(draw.choice((1, 1, 2))):
            table = draw.choice([name for name in tables if not name.startswith("sqlite")])
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            column = draw.choice(columns)
            ids = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")] or [1]
            with suppress(sqlite3.Error, OverflowError):
                match draw.randrange(8):
                    case 0:
                        connection.execute(
                            f"DELETE FROM {table} WHERE rowid = ?", (draw.choice(ids),)
                        )
                    case 1:
                        connection.execute(f"PRAGMA user_version = {draw.randrange(5)}")
                    case 2:
                        connection.execute(f"CREATE VIEW v{draw.randrange(9)} AS SELECT 1")
                    case _:
                        (old,) = connection.execute(
                            f"SELECT {column} FROM {table} WHERE rowid = ?", (draw.choice(ids),)
                        ).fetchone() or (None,)
                        connection.execute(
                            f"UPDATE {table} SET {column} = ? WHERE rowid = ?",
                            (_changed(old, draw), draw.choice(ids)),
                        )
        if forged:
            with suppress(sqlite3.Error):
                for table in [name for name in tables if name != "seals"]:
                    seal = bytes(16)
                    for row in connection.execute(f"SELECT * FROM {table}"):
                        seal = _added(seal, *row)
                    connection.execute("UPDATE seals SET seal = ? WHERE name = ?", (seal, table))
        connection.commit()
    finally:
        connection.close()


def _changed(value: Any, draw: random.Random) -> Any:
    """Another value for a column; what is packed is unpacked, changed and packed again."""
    if isinstance(value, bytes) and draw.random() < 0.8:
        try:
            raw = zlib.decompress(value)
        except zlib.error:
            return mutate_bytes(value, draw)
        if draw.random() < 0.02:
            return zlib.compress(bytes(2**28))
        if raw[:1] == b"{":
            return zlib.compress(json_file(raw, draw))
        return zlib.compress(mutate_bytes(raw, draw))
    if isinstance(value, str) and value[:1] in "[{" and value and draw.random() < 0.8:
        return json_file(value.encode(), draw).decode()
    found = any_value(draw)
    return found if isinstance(found, str | bytes | int | float | None) else json.dumps(found)


def torch_archive(raw: bytes, draw: random.Random) -> bytes:
    """An entry of the archive changed, packed, doubled or dropped; its CRC is right."""
    source, target = zipfile.ZipFile(io.BytesIO(raw)), io.BytesIO()
    names = source.namelist()
    chosen, how = draw.choice(names), draw.randrange(6)
    packing = zipfile.ZIP_DEFLATED if draw.random() < 0.1 else zipfile.ZIP_STORED
    with zipfile.ZipFile(target, "w", packing) as archive:
        for name in names:
            data = source.read(name)
            if name == chosen or (how == 5 and name.endswith("data.pkl")):
                match how:
                    case 0:
                        continue
                    case 1:
                        data = data[: draw.randrange(len(data) + 1)]
                    case 2:
                        data = data + bytes(draw.choice((1, 1000, 2**20)))
                    case 3 if name.endswith(".pkl"):
                        data = pickle.dumps({"a": [draw.choice(ODD)] * 9}, protocol=2)
                    case _:
                        data = mutate_bytes(data, draw)
            archive.writestr(name, data)
    return target.getvalue()


Spoil = Callable[[Path, random.Random], bool]
"""Spoils the file at a path; whether it did so as a forger."""


def _by(change: Callable[[bytes, random.Random], bytes], forged: bool = False) -> Spoil:
    def spoil(path: Path, draw: random.Random) -> bool:
        path.write_bytes(change(path.read_bytes(), draw))
        return forged

    return spoil


def _rows(path: Path, draw: random.Random) -> bool:
    forged = draw.random() < 0.7
    sqlite_rows(path, draw, forged)
    return forged


SPOILS: dict[str, list[Spoil]] = {
    "config": [_by(json_file), _by(mutate_bytes)],
    "their-config": [_by(json_file), _by(mutate_bytes)],
    "tokenizer": [_by(json_file), _by(hostile_tokenizer), _by(mutate_bytes)],
    "weights": [_by(safetensors_header), _by(mutate_bytes)],
    "their-weights": [_by(torch_archive), _by(mutate_bytes)],
    "paper": [_by(torch_archive), _by(mutate_bytes)],
    "template": [_by(toml_file), _by(mutate_bytes)],
    "study": [_by(toml_file), _by(mutate_bytes)],
    "table": [_by(safetensors_header), _by(mutate_bytes), _by(forged_table, forged=True)],
    "store": [_rows, _rows, _by(mutate_bytes)],
    "run": [_rows, _rows, _by(mutate_bytes)],
}
