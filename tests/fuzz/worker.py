"""One process that spoils files and reads them, case after case, within limits."""

from __future__ import annotations

import os
import random
import resource
import shutil
import traceback
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from longshot.errors import LongshotError
from tests.fuzz.kinds import KINDS, FileKind
from tests.fuzz.mutate import SPOILS

SECONDS = 10
MEGABYTES = 1000


def work(pipe: Connection, folder: str, seed: int, first: int, step: int, only: list[str]) -> None:
    """Case after case from `first` on; each is told through the pipe."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["RUST_BACKTRACE"] = "0"  # a panic's backtrace takes longer than the case
    good = {name: _good(kind, Path(folder) / "good" / name) for name, kind in KINDS.items()}
    names = only or list(KINDS)
    limit_memory()
    case = first
    while True:
        kind = KINDS[names[case % len(names)]]
        spoilt = Path(folder) / "spoilt" / kind.name
        told = one_case(kind, good[kind.name], Path(folder) / "good" / kind.name, spoilt,
                        random.Random(f"{seed} {case}"))  # fmt: skip
        if told["outcome"] in ("traceback", "believed"):  # before the next case takes its place
            kept = Path(folder) / f"kept-{case}"
            shutil.copytree(spoilt, kept, dirs_exist_ok=True)
        pipe.send({"case": case, "kind": kind.name, "megabytes": megabytes(), **told})
        case += step


def limit_memory() -> None:
    """A gigabyte more than what is mapped now: torch maps far more than it uses."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEGABYTES * 10**6
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def megabytes() -> float:
    """The most that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _good(kind: FileKind, folder: Path) -> str:
    """What a good file reads as; made again if a worker before this one left it half made."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind.make(folder)
    return kind.read(folder / kind.file)


def one_case(
    kind: FileKind, good: str, source: Path, folder: Path, draw: random.Random
) -> dict[str, str]:
    """Spoil a copy of a good file and read it."""
    _restore(kind, source, folder)
    spoil = draw.choice(SPOILS[kind.name])
    try:
        forged = spoil(folder / kind.file, draw)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        return {"outcome": "the same", "what": f"not spoilt: {error}"}  # an impossible mutation
    return outcome(kind, good, folder / kind.file, forged)


def _restore(kind: FileKind, source: Path, folder: Path) -> None:
    """A good copy: only what a case before spoils or leaves behind is written anew."""
    if not folder.is_dir():
        shutil.copytree(source, folder)
    for path in folder.iterdir():
        if not (source / path.name).exists():
            path.unlink()
    shutil.copyfile(source / kind.file, folder / kind.file)


def outcome(kind: FileKind, good: str, path: Path, forged: bool) -> dict[str, str]:
    """What reading the file comes to."""
    try:
        found = kind.read(path)
    except LongshotError as error:
        whole = str(error).isprintable() or "\n" not in str(error)
        return {"outcome": "refused", "what": "" if whole else "several lines"}
    except BaseException as error:  # the finding; a panic of Rust is no Exception
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = next(
            (f"{f.filename.split('longshot/')[-1]}:{f.lineno}"
             for f in reversed(traceback.extract_tb(error.__traceback__))
             if "/longshot/" in f.filename),
            f"{last.filename}:{last.lineno}",
        )  # fmt: skip
        name = type(error).__name__
        return {"outcome": "traceback", "what": f"{name} at {where}: {str(error)[:200]}"}
    if found == good:
        return {"outcome": "the same", "what": ""}
    if kind.sealed and not forged:
        return {"outcome": "believed", "what": f"{kind.name} believed: {path}"}
    return {"outcome": "read", "what": ""}
