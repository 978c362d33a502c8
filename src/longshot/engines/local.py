"""Worker processes on this machine, or this very process when one worker is enough.

Each worker has a pipe of its own, whose other end is open nowhere else: whenever a worker dies,
also while it starts or halfway through a result, its pipe ends and the driver knows. The function,
which holds the models, is read from a file; nothing larger than a pipe is written before there is
somebody to read it. Nothing slow is imported before a worker watches its parent, so that it does
not outlive one that was killed.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from longshot.allocator import keep_freed_memory
from longshot.errors import LongshotError
from longshot.threads import torch_threads
from longshot.work import Item, Result

DIED = (
    "A worker process died (killed, or out of memory); what had finished is kept, and running "
    "again goes on from there."
)


@dataclass(frozen=True)
class LocalEngine:
    """`workers` processes, each with one torch thread."""

    workers: int = 1

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results as they finish."""
        if self.workers == 1:
            for item in items:
                with torch_threads(1):
                    result = function(item)
                yield result
        else:
            yield from self._in_processes(function, iter(items))

    def _in_processes(
        self, function: Callable[[Item], Result], items: Iterator[Item]
    ) -> Iterator[Result]:
        with _copied(function) as place, _processes(self.workers, place) as idle:
            busy: set[Connection] = set()
            while True:
                for item in islice(items, len(idle)):
                    pipe = idle.pop()
                    _ask(pipe, item)
                    busy.add(pipe)
                if not busy:
                    return
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    result = _answer(ready)
                    busy.remove(ready)
                    idle.append(ready)
                    yield result


@contextmanager
def _copied(function: Callable[[Item], Result]) -> Iterator[Path]:
    """A file that holds the function while the block runs."""
    folder = None
    try:
        folder = tempfile.mkdtemp(prefix="longshot-")
        place = Path(folder) / "function"
        place.write_bytes(pickle.dumps(function))
    except OSError as error:
        shutil.rmtree(folder or "", ignore_errors=True)
        raise LongshotError(f"The workers' models cannot be written: {error.strerror}.") from error
    try:
        yield place
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _processes(count: int, function: Path) -> Iterator[list[Connection]]:
    """The pipes to so many workers, which end with the block."""
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    pipes: list[Connection] = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, function), daemon=True)
            pipes.append(ours)
            process.start()
            theirs.close()  # or it would never end
            processes.append(process)
        started = list(pipes)
    except OSError as error:
        _end(processes, pipes)
        raise LongshotError(f"No worker could be started: {error.strerror}.") from error
    try:
        yield started
    finally:
        _end(processes, pipes)


def _end(processes: list[BaseProcess], pipes: list[Connection]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
    for pipe in pipes:
        pipe.close()


def _ask(pipe: Connection, item: object) -> None:
    try:
        pipe.send(item)
    except OSError as error:
        raise LongshotError(DIED) from error


def _answer(pipe: Connection) -> Any:
    try:
        failed, result = pickle.loads(pipe.recv_bytes())
    except (EOFError, OSError) as error:
        raise LongshotError(DIED) from error
    if failed:
        raise result
    return result


def _work(pipe: Connection, place: Path) -> None:
    """What a worker does: read the function once, then answer items until it is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    threading.Thread(target=_end_with_parent, args=(place,), daemon=True).start()
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()
    function = pickle.loads(place.read_bytes())
    while True:
        try:
            item = pipe.recv()
        except EOFError:
            return
        try:
            answer = pickle.dumps((False, function(item)))
        except Exception as error:
            error.add_note(traceback.format_exc())
            answer = _pickled(error)
        pipe.send_bytes(answer)


def _pickled(error: Exception) -> bytes:
    """An exception for the driver; as its text where it cannot travel."""
    try:
        packed = pickle.dumps((True, error))
        pickle.loads(packed)
    except Exception:
        packed = pickle.dumps((True, RuntimeError(f"{type(error).__name__}: {error}")))
    return packed


def _end_with_parent(place: Path) -> None:
    """A parent that was killed can neither end its workers nor take its file away."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        shutil.rmtree(place.parent, ignore_errors=True)
        os._exit(1)
