"""A run from its rows alone, as `longshot rows` prints them: JSON lines, packed by xz or not.

A row says what was asked, the truth and the answer. What it does not say, a run that is read from
it has not: the tuning curves, who made it and when, how many targets there were to choose from, and
of the witnesses all but the first one's text. Rows of an older version lack statistics, without
which some methods have no fit, and what targets share of their cost.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from longshot.errors import LongshotError, first_line, visible
from longshot.estimate import Cost, Estimate, Witness
from longshot.files import TEXT, read_bytes
from longshot.study.store import Chosen, Key, Row, Target, Tuned, checked, made_target

XZ = b"\xfd7zXZ\x00"
COSTS = ("forwards", "backwards", "macs", "seconds")
NOT_SAID = "the row does not say"


def holds_rows(path: Path) -> bool:
    """Whether a file begins as one of rows does."""
    if not path.is_file():
        return False  # a pipe would make us wait
    try:
        with open(path, "rb") as file:
            start = file.read(len(XZ))
    except OSError:
        return False
    return start == XZ or start[:1] == b"{"


def read_rows(path: Path) -> dict[str, Any]:
    """What `Run` is made of: models, inputs and methods in the order in which they first appear."""
    targets: dict[tuple[str, str], dict[int, Target]] = {}
    methods: dict[str, str] = {}
    warm: dict[tuple[str, str, str], float] = {}
    rows: dict[Key, Row] = {}
    for number, plain in enumerate(_records(path), start=1):
        try:
            row, target = _row(plain)
        except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
            raise LongshotError(
                f"Line {number} of {path} is no row of a run: {first_line(error)}."
            ) from error
        key = row.key
        if targets.setdefault(key[1:3], {}).setdefault(key.token, target) != target:
            raise LongshotError(f"{path} has two truths of token {key.token}; line {number}.")
        if rows.setdefault(key, row) is not row:
            raise LongshotError(f"{path} has one row twice; line {number}.")
        if row.estimate is not None:
            methods[key.method] = row.estimate.method
            if isinstance(temperature := row.estimate.settings.get("temperature"), float):
                warm[key[1:4]] = temperature
        methods.setdefault(key.method, key.method)
    if not rows:
        raise LongshotError(f"{path} holds no rows.")
    found = {label: {t for cell, t in warm.items() if cell[2] == label} for label in methods}
    return {
        "study": {
            "name": _name(path),
            "models": list(dict.fromkeys(model for model, _ in targets)),
            "inputs": list(dict.fromkeys(inputs for _, inputs in targets)),
            "methods": {label: {"method": method} for label, method in methods.items()},
        },
        "chosen": {
            ("run", *cell): Chosen(tuple(of.values()), len(of), "") for cell, of in targets.items()
        },
        "rows": tuple(rows[key] for key in sorted(rows)),
        "tuned": {cell: Tuned(t, ()) for cell, t in warm.items() if len(found[cell[2]]) > 1},
    }


def _name(path: Path) -> str:
    """A study's: of the folder for a file that is called after its rows, or else of the file."""
    stem = path.name.split(".")[0]
    return visible(path.resolve().parent.name if stem == "rows" else stem) or "rows"


def _records(path: Path) -> Iterator[dict[str, Any]]:
    packed = read_bytes("file of rows", path, TEXT)
    try:
        if packed.startswith(XZ):
            unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=TEXT)
            packed = unpacking.decompress(packed, TEXT)
            if not unpacking.eof or unpacking.unused_data:
                raise ValueError("it is cut short, or larger than it can be")
        for line in packed.decode().splitlines():
            if line.strip():
                plain = json.loads(line)
                if not isinstance(plain, dict):
                    raise ValueError("a line is no JSON object")
                yield plain
    except (lzma.LZMAError, ValueError, RecursionError) as error:
        raise LongshotError(f"The rows {path} cannot be read: {first_line(error)}.") from error


def _row(plain: Mapping[str, Any]) -> tuple[Row, Target]:
    model, inputs, method = plain["model"], plain["inputs"], plain["method"]
    names = (model, inputs, method)
    if not all(isinstance(name, str) and name and name == visible(name) for name in names):
        raise ValueError("model, inputs or method is no name")
    error = plain["truth_error"]
    truth = made_target(
        plain["token"], plain["text"], plain["truth"], math.inf if error is None else error
    )
    key = Key("run", model, inputs, method, 0.0, truth.token)
    if (failed := plain.get("error")) is not None:
        return Row(key, error=visible(str(failed))), truth
    return Row(key, checked(_estimate(plain))), truth


def _estimate(plain: Mapping[str, Any]) -> Estimate:
    """The answer that a row tells of; a number that JSON had no word for is its −inf or none."""
    log_probability, interval = plain["log_probability"], (plain["low"], plain["high"])
    settings = dict(plain.get("settings") or {})
    if plain.get("temperature") is not None:
        settings["temperature"] = float(plain["temperature"])
    shared = Cost(*(plain.get(f"shared_{name}") or 0 for name in COSTS))
    witness, no_interval = plain.get("witness"), plain.get("no_interval")
    unknown = None in interval
    return Estimate(
        method=plain.get("method_name") or plain["method"],
        settings=settings,
        event=f"token:{plain['token']}",
        seed=plain["seed"],
        budget=plain["budget"],
        log_probability=-math.inf if log_probability is None else float(log_probability),
        standard_error=plain["standard_error"],
        interval=(0.0, 1.0) if unknown else (float(interval[0]), float(interval[1])),
        no_interval=no_interval or (NOT_SAID if unknown else None),
        hits=plain["hits"],
        effective_sample_size=plain["effective_sample_size"],
        pareto_k=plain.get("pareto_k"),
        witnesses=() if witness is None else (Witness((), visible(str(witness)), None, math.nan),),
        statistics={k: v for k, v in (plain.get("statistics") or {}).items() if v is not None},
        warnings=tuple(str(warning) for warning in plain["warnings"]),
        cost=Cost(*(plain[name] - getattr(shared, name) for name in COSTS)),
        shared_cost=shared,
    )
