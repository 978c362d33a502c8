"""Functions that engines can carry to other processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from longshot.errors import LongshotError
from longshot.truth.shards import ShardRunner
from longshot.truth.tally import Shard, Span


def threads(item: int) -> tuple[int, int, int]:
    return item, torch.get_num_threads(), os.getpid()


def complain(item: int) -> int:
    raise LongshotError(f"item {item} is not to my liking")


def die(item: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return item


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@dataclass(frozen=True)
class Heavy:
    """Sleeps, and weighs more than any pipe holds."""

    weight: bytes

    def __call__(self, seconds: float) -> float:
        return sleep(seconds)


def speak_and_die(size: int) -> bytes:
    """Bytes that are killed on their way to the driver."""

    def end() -> None:
        time.sleep(1.5)  # the pipe is full by then, unless somebody reads it
        os.kill(os.getpid(), signal.SIGKILL)

    if size:
        threading.Thread(target=end).start()
        time.sleep(1)
    return bytes(size)


@dataclass(frozen=True)
class DiesOnce:
    """Runs shards, but the worker of one of them is killed when it has half of it done."""

    runner: ShardRunner
    flag: Path

    def __call__(self, task: tuple[int, Span]) -> tuple[int, Shard]:
        number, span = task
        if span.start == 2 and not self.flag.exists():
            self.runner((number, span._replace(stop=span.start + 1)))
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.runner(task)
