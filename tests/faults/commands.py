"""The five commands that write, what their data are, and one run of each with a fault in it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longshot.cli import main
from longshot.models.checkpoints import ZOO
from longshot.study import load_run
from longshot.truth.store import Store
from longshot.truth.tables import read_table
from tests.checkpoint_files import write_config_and_weights
from tests.faults.injector import Injector
from tests.toys import toy_network

GOAL = ("--until", "600 leaves", "--shard", "150")
STUDY = """name = "s"
models = ["{model}"]
inputs = ["icl"]
[targets]
count = 3
high = 1.0
relative_error = 9.0
[methods.naive]
budget = 64
[methods.gld]
budget = 64
"""


@dataclass(frozen=True)
class Command:
    """What is typed, what it leaves behind, and whether what is there is whole.

    `data` reads what a command keeps, as comparable values by name. Whatever is there after a
    fault is equal to what an undisturbed command leaves, name by name.
    """

    arguments: Callable[[Path], list[str]]
    data: Callable[[Path], dict[str, str]]


def prepare(folder: Path) -> None:
    """A tiny model, its truth and a study of it."""
    model = folder / "tiny"
    write_config_and_weights(model, toy_network(layers=1, vocab=4096, context=40))
    shutil.copy(ZOO / "tokenizer.json", model)
    (folder / "study.toml").write_text(STUDY.format(model=model))
    cell = ["--model", str(model), "--inputs", "icl"]
    assert run(["truth", "make", *cell, *GOAL, "--store", str(folder / "known.sqlite")])[0] == 0
    known = ["--truth", str(folder / "known.sqlite")]
    study = ["run", str(folder / "study.toml"), "--out", str(folder / "known"), *known]
    assert run(study)[0] == 0


def _make(folder: Path) -> list[str]:
    cell = ["--model", str(folder / "tiny"), "--inputs", "icl"]
    return ["truth", "make", *cell, *GOAL, "--store", str(folder / "made" / "store.sqlite")]


def _study(folder: Path) -> list[str]:
    known = ["--truth", str(folder / "known.sqlite")]
    return ["run", str(folder / "study.toml"), "--out", str(folder / "run"), *known]


def _report(folder: Path) -> list[str]:
    formats = ["--format", "html", "--format", "md", "--format", "tex"]
    return ["report", str(folder / "known"), "--out", str(folder / "report"), *formats]


def _estimate(folder: Path) -> list[str]:
    cell = ["--model", str(folder / "tiny"), "--inputs", "icl", "--target", "#7"]
    page = ["--html", str(folder / "pages" / "page.html"), "--json"]
    return ["estimate", *cell, "--method", "naive", "--budget", "64", *page]


def _export(folder: Path) -> list[str]:
    return ["truth", "export", "--store", str(folder / "known.sqlite"), "--to", str(folder / "out")]


def _shards(path: Path) -> dict[str, str]:
    if not path.is_file() or not path.stat().st_size:
        return {}
    with Store(path) as store:
        return {
            f"{cell} {shard.span}": f"{shard.tally.total.tolist()} {shard.tally.squares.tolist()}"
            for cell in store.cells()
            for shard in store.shards(cell)
        }


def _rows(folder: Path) -> dict[str, str]:
    with contextlib.suppress(Exception) if not _has_rows(folder) else contextlib.nullcontext():
        kept = ("log_probability", "truth", "hits", "standard_error", "witness")
        return {
            f"{record['method']} {record['token']}": str([record.get(name) for name in kept])
            for record in load_run(folder).records()
            if record["error"] is None
        }
    return {}


def _has_rows(folder: Path) -> bool:
    path = folder / "run.sqlite"
    if not path.is_file():
        return False
    connection = sqlite3.connect(path)
    try:
        return bool(connection.execute("SELECT count(*) FROM rows").fetchone()[0])
    except sqlite3.Error:
        return False
    finally:
        connection.close()


def _files(folder: Path) -> dict[str, str]:
    """What is written, but for what was left beside it."""
    found = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix != ".unfinished"]
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def _pages(folder: Path) -> dict[str, str]:
    """A page tells its seconds: it is compared without its figures."""
    return {
        name: "".join(c for c in text if not c.isdigit())[:200] + text[-20:]
        for name, text in _files(folder).items()
    }


def _tables(folder: Path) -> dict[str, str]:
    return {
        path.name: str([(s.span, s.tally.total.tolist()) for s in read_table(path)[1]])
        for path in sorted(folder.glob("*.safetensors"))
    }


COMMANDS = {
    "truth": Command(_make, lambda folder: _shards(folder / "made" / "store.sqlite")),
    "study": Command(_study, lambda folder: _rows(folder / "run")),
    "report": Command(_report, lambda folder: _files(folder / "report")),
    "estimate": Command(_estimate, lambda folder: _pages(folder / "pages")),
    "export": Command(_export, lambda folder: _tables(folder / "out")),
}


def run(arguments: list[str]) -> tuple[int, str]:
    """The command line in this process: its exit code, and all that it printed."""
    before, sys.argv = sys.argv, ["longshot", *arguments]
    printed = io.StringIO()
    code: object = 0
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main.run()
    except SystemExit as left:
        code = left.code
    except BaseException:
        code = 99
        printed.write(traceback.format_exc())
    finally:
        sys.argv = before
    return (code if isinstance(code, int) else 0), printed.getvalue()


def with_fault(
    command: Command, folder: Path, at: int | None, fault: str
) -> tuple[int, str, list[str]]:
    """One run in a process of its own: exit code (−9 if killed), what it printed, its points."""
    told = folder / "told.json"
    told.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            injector = Injector(folder, at, fault)
            with injector():
                code, printed = run(command.arguments(folder))
            told.write_text(json.dumps([code, printed, injector.points]))
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return -os.WTERMSIG(status), "", []
    code, printed, points = json.loads(told.read_text())
    return code, printed, points
