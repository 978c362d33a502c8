"""The kinds of file that longshot reads: how one is made, and all that is ever read from it.

`read` gives a text that stands for everything a reader would believe. A file that is `sealed`
carries checksums: if it is read at all, it reads as it was written, unless a forger changed it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from longshot.estimate import CellKey, Cost, Estimate, Witness
from longshot.inputs import load_inputs
from longshot.models import Model, load_model
from longshot.study import load_run, read_spec
from longshot.study.store import Chosen, Key, Row, RunStore, Target, Tuned
from longshot.study.summary import score_run, summary
from longshot.truth.paper import read_paper
from longshot.truth.result import Truth
from longshot.truth.store import Store
from longshot.truth.summary import summarise, truths_at
from longshot.truth.tables import read_table, write_table
from longshot.truth.tally import Shard, Span, Stream, Tally
from tests.checkpoint_files import write_ours, write_theirs

CELL = CellKey("toy", "m" * 16, "camel", "i" * 16, 50)

TEMPLATE = """[inputs]
name = "bank-transfer"
text = "Transfer {amount} dollars to {name} now{end}"
[slots.amount]
choices = { " one" = 3, " two" = 1.5 }
[slots.name]
tokens = "starts-with-space-letters"
weights = "english"
repeat = 2
[slots.end]
choices = [".", "!", "?"]
"""

STUDY = """name = "mine"
models = ["mini-1l", "mini-2l"]
inputs = ["camel", "hex"]
seed = 3
[targets]
count = 64
high = 1e-4
[tuning]
temperatures = [0.5, 1.0, 2.0]
budget = 1024
[methods.itgis]
budget = 4096
temperature = "tuned"
[methods.itgis-long]
method = "itgis"
budget = 65536
inputs = ["camel"]
score = "gap"
[temperatures.itgis.mini-1l]
camel = 0.5
"""


@dataclass(frozen=True)
class FileKind:
    """One kind of file: its name, how a good one comes to be, and what is read from it."""

    name: str
    file: str
    make: Callable[[Path], object]
    read: Callable[[Path], str]
    sealed: bool = False


def _shard(start: int, half: int, kind: Any) -> Shard:
    draw = torch.Generator().manual_seed(start + 100 * half)
    total = torch.rand(50, generator=draw, dtype=torch.float64).sub(0.5).clamp(min=0)
    total *= 10 / total.sum()
    squares = total if kind == "brute" else total * 0.9
    span = Span(Stream(kind, 0, half), start, start + 2)
    return Shard(span, Tally(10, 200, start, total, squares))


def _shards() -> list[Shard]:
    kinds = ("brute", "conditional")
    return [_shard(at, half, kind) for kind in kinds for half in (0, 1) for at in (0, 4)]


def _make_table(folder: Path) -> None:
    write_table(folder / "table.safetensors", CELL, _shards(), "make it")


def _make_store(folder: Path) -> None:
    with Store(folder / "store.sqlite", create=True) as store:
        for shard in _shards():
            store.add(CELL, shard)


def _make_run(folder: Path) -> None:
    methods = {"itgis": {"method": None}, "gld": {"method": "gld"}}
    study = {"name": "s", "models": ["m"], "inputs": ["i", "j"], "methods": methods}
    with RunStore(folder / "run.sqlite", create=True) as store:
        store.set_fact("study", json.dumps(study))
        store.claim("m", "i", ("a", "b"))
        targets = tuple(Target(n, f"'{n}'", 10.0**-n, 10.0 ** (-n - 1)) for n in range(4, 8))
        for inputs in ("i", "j"):
            store.choose("run", "m", inputs, Chosen(targets, 9, "made up"))
        store.set_tuned("m", "i", "itgis", Tuned(0.5, ((0.5, 1.0), (1.0, 2.0))))
        rows = [(i, method, n) for i in "ij" for method in methods for n in range(4, 8)]
        keys = [Key("run", "m", i, method, 0.0, n) for i, method, n in rows]
        store.add([Row(key, _estimate(key)) for key in keys], {"python": "3"})


def _estimate(key: Key) -> Estimate:
    return Estimate(
        key.method, {"temperature": 0.5}, f"token:{key.token}", 0, 64, -2.0 * key.token,
        standard_error=1e-5, interval=(1e-9, 1e-3), samples=64, hits=3, effective_sample_size=2.5,
        witnesses=(Witness((1, 2), "a b", -3.0, 0.5),), warnings=("few",), cost=Cost(1, 2, 3, 0.5),
        statistics={"mu": -3.0 * key.token, "sigma": 1.0 + 0.1 * key.token},
    )  # fmt: skip


def _read_model(path: Path) -> str:
    model = load_model(path.parent)
    words = model.tokenizer
    shown = [words.show(token) for token in range(min(words.vocab_size, 50))]
    return f"{model.fingerprint} {model.context} {words.encode('a b c')} {shown} {words.bos}"


@cache
def _mini() -> Model:
    return load_model("mini-1l")


def _read_template(path: Path) -> str:
    inputs = load_inputs(path, _mini())
    drawn = inputs.sample(2, torch.Generator().manual_seed(0)).tolist()
    return f"{inputs.name} {inputs.fingerprint} {drawn}"


def _read_table(path: Path) -> str:
    cell, shards, _ = read_table(path)
    return f"{_truth(Truth.from_shards(cell, shards))} {[s.span for s in shards]}"


def _read_store(path: Path) -> str:
    with Store(path) as store:
        spans = [store.spans(cell) for cell in store.cells()]
    return f"{[_truth(truth) for truth in truths_at(path)]} {spans}"


def _truth(truth: Truth) -> str:
    sums = (truth.probability, truth.standard_error, truth.halves[0].probability)
    digest = hashlib.sha256(b"".join(each.numpy().tobytes() for each in sums)).hexdigest()
    return f"{truth.cell} {digest} {summarise(truth, 1e-7, 1)}"


def _read_run(path: Path) -> str:
    run = load_run(path)
    said = [list(run.records()), list(run.witnesses()), run.tuned, run.methods, run.study]
    text = str(said)
    if text not in _SCORED:  # scoring takes most of the time, and says the same of the same
        _SCORED[text] = str(summary(score_run(run)))
    return text + _SCORED[text]


_SCORED: dict[str, str] = {}


def _make_paper(folder: Path) -> None:
    torch.save(torch.tensor([3, 1, 0, 4]), folder / "frequencies3-hex.pt")


KINDS = {
    kind.name: kind
    for kind in (
        FileKind("config", "config.json", write_ours, _read_model),
        FileKind("weights", "model.safetensors", write_ours, _read_model),
        FileKind("tokenizer", "tokenizer.json", write_ours, _read_model),
        FileKind("their-config", "config.json", write_theirs, _read_model),
        FileKind("their-weights", "model_final.pth", write_theirs, _read_model),
        FileKind(
            "template", "t.toml", lambda f: (f / "t.toml").write_text(TEMPLATE), _read_template
        ),
        FileKind(
            "study",
            "s.toml",
            lambda f: (f / "s.toml").write_text(STUDY),
            lambda path: read_spec(path).model_dump_json(),
        ),
        FileKind("paper", "frequencies3-hex.pt", _make_paper, lambda p: str(read_paper(p))),
        FileKind("table", "table.safetensors", _make_table, _read_table, sealed=True),
        FileKind("store", "store.sqlite", _make_store, _read_store, sealed=True),
        FileKind("run", "run.sqlite", _make_run, _read_run, sealed=True),
    )
}
