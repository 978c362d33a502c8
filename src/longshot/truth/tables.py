"""Truth in small files: those that ship with the package, and any store's as one.

A table holds a cell's shards with neighbours joined, sparse: for each piece i the tensors
`i.tokens`, `i.total` and, of the conditional kind, `i.squares`, and in the metadata the spans, the
sample sizes, both fingerprints and the command that made them. Its pieces can go back to a store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cell, CellKey
from longshot.inputs import CATALOGUE, Inputs, load_inputs
from longshot.models import Model, load_model
from longshot.truth.result import Truth
from longshot.truth.store import Store, same_cell
from longshot.truth.tally import KINDS, Shard, Span, Stream, Tally, joined

SHIPPED = Path(__file__).parent / "tables"
VERSION = "1"
SUMS = ("total", "squares")  # the second of conditional samples only
NUMBERS = ("samples", "leaves", "near_ties")


def default_store() -> Path:
    """Where `longshot truth make` keeps its shards unless told otherwise."""
    root = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(root).expanduser() / "longshot" / "truth.sqlite"


def table_path(cell: CellKey, folder: Path | None = None) -> Path:
    """The file of a cell's table, among the shipped ones by default."""
    return (folder or SHIPPED) / f"{cell.model}-{cell.inputs}.safetensors"


def load_truth(
    model: str | Path | Model,
    inputs: str | Path | Inputs,
    source: str | Path | None = None,
    *,
    asked: tuple[str, str] | None = None,
) -> Truth:
    """Every token's probability when `model` reads `inputs`, with its standard error.

    From the shipped table or, where there is none, from the store that `longshot truth make`
    fills; `source` names another table or store. `asked` is what the command line calls the two,
    where they are given as objects.
    """
    names = asked or (
        model if isinstance(model, str | Path) else model.name,
        inputs if isinstance(inputs, str | Path) else _catalogued(inputs.name),
    )
    model = load_model(model)
    cell = Cell(model, load_inputs(inputs, model)).key
    for path in [Path(source)] if source else [table_path(cell), default_store()]:
        if path.is_file():
            shards = _shards_at(path, cell)
            if shards:
                return Truth.from_shards(cell, shards)
        elif source:
            raise LongshotError(f"There is no table or store of truth at {path}.")
    place = f" --store {source}" if source else ""
    raise LongshotError(
        f"There is no truth of {cell}{f' in {source}' if source else ''}; make it with: "
        f'longshot truth make --model {names[0]} --inputs {names[1]} --until "2**24 leaves"'
        f"{place}"
    )


def _catalogued(name: str) -> str:
    """What the command line takes for inputs of this name: of a template it wants the file."""
    return name if name in CATALOGUE else "FILE.toml"


def _shards_at(path: Path, cell: CellKey) -> list[Shard]:
    if path.suffix == ".safetensors":
        found, shards = read_table(path)
        same_cell(cell, found, path)
        return shards
    with Store(path) as store:
        return store.shards(cell)


def making_command(cell: CellKey, shards: Sequence[Shard]) -> str:
    """The command, or one for each seed, that makes these shards again."""
    leaves: dict[tuple[str, int], int] = {}
    for (kind, seed, _), tally in ((shard.span.stream, shard.tally) for shard in shards):
        leaves[kind, seed] = leaves.get((kind, seed), 0) + tally.leaves
    return "; ".join(
        f"longshot truth make --model {cell.model} --inputs {cell.inputs} --kind {kind} "
        f'--seed {seed} --until "{count} leaves"'
        for (kind, seed), count in leaves.items()
    )


def write_table(path: Path, cell: CellKey, shards: Sequence[Shard], command: str) -> None:
    """A table of all the shards, whole or not at all."""
    pieces = joined(shards)
    tensors: dict[str, Tensor] = {}
    described: list[dict[str, Any]] = []
    index = torch.uint16 if cell.vocab_size <= 2**16 else torch.int32
    for i, (span, tally) in enumerate((piece.span, piece.tally) for piece in pieces):
        tokens, sums = tally.sparse(span.stream.kind)
        tensors[f"{i}.tokens"] = tokens.to(index)
        tensors |= {f"{i}.{name}": each for name, each in zip(SUMS, sums, strict=False)}
        numbers = {name: getattr(tally, name) for name in NUMBERS}
        described.append(
            {**span.stream._asdict(), "start": span.start, "stop": span.stop, **numbers}
        )
    metadata = {
        "longshot_truth": VERSION,
        **{name: str(value) for name, value in cell._asdict().items()},
        "pieces": json.dumps(described),
        "command": command,
    }
    unfinished = path.with_suffix(".unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, unfinished, metadata)
        unfinished.replace(path)
    except (OSError, SafetensorError) as error:
        unfinished.unlink(missing_ok=True)
        raise LongshotError(f"The table {path} cannot be written: {error}.") from error


def read_table(path: Path) -> tuple[CellKey, list[Shard]]:
    """The cell and the shards of a table."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise LongshotError(f"{path} is damaged or no table of truth: {error}.") from error
    if metadata.get("longshot_truth") != VERSION:
        raise LongshotError(f"{path} is no table of truth that this longshot can read.")
    try:
        fields = {name: metadata[name] for name in CellKey._fields}
        cell = CellKey(**{**fields, "vocab_size": int(fields["vocab_size"])})
        pieces = json.loads(metadata["pieces"])
        return cell, [_piece(tensors, i, cell, piece) for i, piece in enumerate(pieces)]
    except (KeyError, ValueError, TypeError, IndexError, RuntimeError) as error:
        raise LongshotError(f"{path} is a damaged table of truth: {error!r}.") from error


def _piece(tensors: dict[str, Tensor], i: int, cell: CellKey, piece: dict[str, Any]) -> Shard:
    stream = Stream(piece["kind"], int(piece["seed"]), int(piece["half"]))
    if stream.kind not in KINDS or stream.half not in (0, 1):
        raise ValueError(f"unknown stream {stream}")
    sums = [tensors[f"{i}.{name}"] for name in SUMS[: 1 if stream.kind == "brute" else 2]]
    tokens, numbers = tensors[f"{i}.tokens"].long(), (int(piece[name]) for name in NUMBERS)
    span = Span(stream, int(piece["start"]), int(piece["stop"]))
    return Shard(span, Tally.from_sparse(cell.vocab_size, tokens, sums, *numbers))
