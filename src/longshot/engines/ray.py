"""The same on a Ray cluster that the user already has, or on one started here.

The function goes to the object store once and is unpacked once in each worker process. Ray runs an
item again whose worker died; an item depends on nothing but itself, so the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

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
        started = not ray.is_initialized()
        if started:
            self._start(ray)
        try:
            yield from self._tasks(ray, function, iter(items))
        finally:
            if started:
                ray.shutdown()

    def _start(self, ray: Any) -> None:
        if self.address:
            options: dict[str, Any] = {"address": self.address}
        else:
            options = {"address": "local", "num_cpus": self.workers, "include_dashboard": False}
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


def _call(shared: list[Any], item: Any) -> Any:
    import ray
    import torch

    torch.set_num_threads(1)
    reference = shared[0]
    name = reference.hex()
    if name not in _functions:
        _functions.clear()
        _functions[name] = ray.get(reference)
    return _functions[name](item)
