"""Truth in small files: those that ship with the package, and any store's as one.

A table holds a cell's shards with neighbours joined, sparse: for each piece i the tensors
`i.tokens`, `i.total` and, of the conditional kind, `i.squares`, and in the metadata the spans, the
sample sizes, both fingerprints and the command that made them, under a checksum of it all, with the
pieces of its certificates. All of it can go back to a store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longshot.errors import LongshotError, first_line
from longshot.estimate import Cell, CellKey
from longshot.files import DIGEST, read_tensors, safe_name, save_tensors, writing
from longshot.inputs import CATALOGUE, Inputs, load_inputs
from longshot.models import Model, load_model
from longshot.truth.certificate import CertificatePiece
from longshot.truth.result import Truth
from longshot.truth.store import Store, same_cell
from longshot.truth.tally import Shard, checked_cell, joined

SHIPPED = Path(__file__).parent / "tables"
VERSION = "2"
SUMS = ("total", "squares")  # the second of conditional samples only
STATED = ("kind", "seed", "half", "start", "stop", "samples", "leaves", "near_ties")


def default_store() -> Path:
    """Where `longshot truth make` keeps its shards unless told otherwise."""
    root = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(root).expanduser() / "longshot" / "truth.sqlite"


def table_path(cell: CellKey, folder: Path | None = None) -> Path:
    """The file of a cell's table, among the shipped ones by default."""
    name = safe_name(f"{cell.model}-{cell.inputs}")
    return (folder or SHIPPED) / f"{name}.safetensors"


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
            truth = _truth_at(path, cell)
            if truth is not None:
                return truth
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


def _truth_at(path: Path, cell: CellKey) -> Truth | None:
    if path.suffix == ".safetensors":
        found, shards, pieces = read_table(path)
        same_cell(cell, found, path)
        return Truth.from_shards(cell, shards, pieces)
    with Store(path) as store:
        return store.truth(cell) if store.spans(cell) else None


def making_command(
    cell: CellKey, shards: Iterable[Shard], certificates: Iterable[CertificatePiece] = ()
) -> str:
    """The command, or one for each seed, that makes these shards and certificates again."""
    leaves: dict[tuple[str, int], int] = {}
    for (kind, seed, _), tally in ((shard.span.stream, shard.tally) for shard in shards):
        leaves[kind, seed] = leaves.get((kind, seed), 0) + tally.leaves
    commands = [
        f"longshot truth make --model {cell.model} --inputs {cell.inputs} --kind {kind} "
        f'--seed {seed} --until "{count} leaves"'
        for (kind, seed), count in leaves.items()
    ]
    commands += [
        f"longshot truth deepen {cell.model} {cell.inputs} --seed {seed}"
        for seed in sorted({piece.key.seed for piece in certificates})
    ]
    return "; ".join(commands)


def write_table(
    path: Path,
    cell: CellKey,
    shards: Iterable[Shard],
    command: str,
    certificates: Iterable[CertificatePiece] = (),
) -> None:
    """A table of all the shards, which come in the order of their spans; whole or not at all."""
    tensors: dict[str, Tensor] = {}
    pieces: list[dict[str, Any]] = []
    index = torch.uint16 if cell.vocab_size <= 2**16 else torch.int32
    for i, (span, tally) in enumerate((piece.span, piece.tally) for piece in joined(shards)):
        tokens, sums = tally.sparse(span.stream.kind)
        tensors[f"{i}.tokens"] = tokens.to(index)
        tensors |= {f"{i}.{name}": each for name, each in zip(SUMS, sums, strict=False)}
        numbers = (*span.stream, span.start, span.stop)
        counted = (tally.samples, tally.leaves, tally.near_ties)
        pieces.append(dict(zip(STATED, (*numbers, *counted), strict=True)))
    if len(pieces) > _most_pieces(cell):
        raise LongshotError(f"{cell} is in {len(pieces)} pieces, too many for one table.")
    metadata = {
        "longshot_truth": VERSION,
        **{name: str(value) for name, value in cell._asdict().items()},
        "pieces": json.dumps(pieces),
        "command": command,
        "certificates": json.dumps([piece.stated for piece in certificates]),
    }
    with writing(path, "table") as aside:
        save_tensors(aside, tensors, metadata)


def read_table(path: Path) -> tuple[CellKey, list[Shard], list[CertificatePiece]]:
    """The cell, the shards and the pieces of certificates of a table, as they were written."""
    tensors, metadata = read_tensors(path)
    if metadata.get("longshot_truth") != VERSION:
        raise LongshotError(f"{path} is no table of truth that this longshot can read.")
    try:
        if DIGEST not in metadata:
            raise ValueError("it has no checksum")
        *names, size = (metadata[name] for name in CellKey._fields)
        cell, pieces = checked_cell(*names, int(size)), json.loads(metadata["pieces"])
        if type(pieces) is not list or not 0 < len(pieces) <= _most_pieces(cell):
            raise ValueError("it is in no number of pieces that a table can be in")
        shards = [_shard(tensors, i, cell, piece) for i, piece in enumerate(pieces)]
        stated = json.loads(metadata.get("certificates", "[]"))
        return cell, shards, [CertificatePiece.checked(cell.vocab_size, piece) for piece in stated]
    except (KeyError, ValueError, TypeError, IndexError, RuntimeError, RecursionError) as error:
        raise LongshotError(f"{path} is a damaged table of truth: {first_line(error)}.") from error


def _most_pieces(cell: CellKey) -> int:
    """How many pieces of a cell fit into half a gigabyte once they are read."""
    return 2**25 // cell.vocab_size


def _shard(tensors: dict[str, Tensor], i: int, cell: CellKey, piece: dict[str, Any]) -> Shard:
    names = SUMS[: 1 if piece["kind"] == "brute" else 2]
    sums = [tensors[f"{i}.{name}"] for name in names]
    return Shard.checked(
        cell, [piece[name] for name in STATED], tensors[f"{i}.tokens"].long(), sums
    )
