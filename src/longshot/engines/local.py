"""Worker processes on this machine, or this very process when one worker is enough."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from longshot.errors import LongshotError
from longshot.threads import torch_threads
from longshot.work import Item, Result

_function: Callable[[Any], Any]  # a worker's own copy


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
        pool = ProcessPoolExecutor(
            self.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_install,
            initargs=(pickle.dumps(function),),
        )
        try:
            running: set[Future[Result]] = set()
            while True:
                for item in islice(items, self.workers - len(running)):
                    running.add(pool.submit(_call, item))
                if not running:
                    return
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        except BrokenProcessPool as error:
            raise LongshotError(
                "A worker process died (killed, or out of memory); what had finished is kept, "
                "and running again goes on from there."
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _install(pickled: bytes) -> None:
    global _function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _function = pickle.loads(pickled)


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers: they would wait for items for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(item: Any) -> Any:
    return _function(item)
