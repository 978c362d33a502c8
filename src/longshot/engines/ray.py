"""The same on a Ray cluster that the user already has, or on one started here.

The function goes to the object store once and is unpacked once in each worker process. Ray runs an
item again whose worker died; an item depends on nothing but itself, so the result is the same.
A Ray that was started here ends with its driver, also if that is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

from longshot.allocator import keep_freed_memory
from longshot.engines import leftovers
from longshot.errors import LongshotError, first_line, needs
from longshot.work import Item, Result

RETRIES = 5
_functions: dict[str, Callable[[Any], Any]] = {}  # a worker's own copies


@dataclass(frozen=True)
class RayEngine:
    """At most `workers` tasks at a time, of one core each.

    An `address` of None starts Ray on this machine for the length of the work; "auto" or a host
    and port join a running cluster.
    """

    workers: int = 1
    address: str | None = None

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results as they finish."""
        try:
            import ray
        except ImportError as error:
            raise needs("The engine 'ray'", "ray", "ray") from error
        with nullcontext() if ray.is_initialized() else self._cluster(ray):
            yield from self._tasks(ray, function, iter(items))

    @contextmanager
    def _cluster(self, ray: Any) -> Iterator[None]:
        """The cluster at the address, or one of our own, while the block runs."""
        watched = not self.address and leftovers.PROCESSES.is_dir()
        with _own_folder() if watched else nullcontext() as folder:
            try:
                self._start(ray, folder)
                yield
            finally:
                ray.shutdown()

    def _start(self, ray: Any, folder: str | None) -> None:
        if self.address:
            options: dict[str, Any] = {"address": self.address}
        else:
            options = {"address": "local", "num_cpus": self.workers, "include_dashboard": False}
        if folder is not None:
            options["_temp_dir"] = folder
        try:
            ray.init(logging_level="ERROR", log_to_driver=False, **options)
        except Exception as error:  # Ray raises plain ones too, when it is slow to start
            reason = first_line(error)
            raise LongshotError(
                f"No Ray cluster could be reached at {self.address}: {reason}"
                if self.address
                else f"Ray could not be started here: {reason}"
            ) from error

    def _tasks(
        self, ray: Any, function: Callable[[Item], Result], items: Iterator[Item]
    ) -> Iterator[Result]:
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)
        shared = ray.put(function)
        running: list[Any] = []
        try:
            while True:
                for item in islice(items, self.workers - len(running)):
                    running.append(task.remote([shared], item))
                if not running:
                    return
                finished, running = ray.wait(running, num_returns=1)
                yield ray.get(finished[0])
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error  # what the function itself raised
        except ray.exceptions.RayError as error:
            raise LongshotError(
                f"The Ray cluster lost a task {RETRIES + 1} times "
                f"({type(error).__name__}); what had finished is kept."
            ) from error
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


@contextmanager
def _own_folder() -> Iterator[str]:
    """A place for the files of a Ray of our own, watched by a process that outlives this one."""
    try:
        folder = tempfile.mkdtemp(prefix="ray-", dir=os.environ.get("RAY_TMPDIR"))
        command = [sys.executable, "-I", leftovers.__file__, folder]
        watch = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise LongshotError(f"Ray could not be started here: {error.strerror}.") from error
    try:
        yield folder
    finally:
        watch.communicate(b"ended")


def _call(shared: list[Any], item: Any) -> Any:
    import ray
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()
    reference = shared[0]
    name = reference.hex()
    if name not in _functions:
        _functions.clear()
        _functions[name] = ray.get(reference)
    return _functions[name](item)
