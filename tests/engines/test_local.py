"""Local workers: one thread each, results as they finish, faults in a sentence."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from longshot.engines import LocalEngine, make_engine
from longshot.errors import LongshotError
from longshot.truth.shards import ShardRunner
from longshot.truth.tally import KINDS, Span, Stream
from tests.engines.work import Heavy, complain, die, sleep, speak_and_die, threads
from tests.truth.toys import toy_cell


def test_one_worker_is_this_process_with_one_thread() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert list(LocalEngine(1).map(threads, [1, 2])) == [(i, 1, os.getpid()) for i in (1, 2)]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def endless_tasks(taken: list[int]) -> Iterator[tuple[int, Span]]:
    for i in itertools.count():
        taken.append(i)
        yield 0, Span(Stream(KINDS[i % 2], 0, 0), i, i + 1)


def test_two_workers_give_the_same_shards_as_one() -> None:
    """And they take items only as they become free: there may be no end of them."""
    runner = ShardRunner((toy_cell(),))
    taken: list[int] = []
    results = LocalEngine(2).map(runner, endless_tasks(taken))
    together = {shard.span: shard.tally for _, shard in itertools.islice(results, 6)}
    results.close()  # type: ignore[attr-defined]
    assert len(taken) <= 6 + 2
    alone = LocalEngine(1).map(runner, [(0, span) for span in together])
    for _, shard in alone:
        tally = together[shard.span]
        assert torch.equal(tally.total, shard.tally.total)
        assert torch.equal(tally.squares, shard.tally.squares)
        assert tally.near_ties == shard.tally.near_ties


def test_what_goes_wrong_in_a_worker_is_told() -> None:
    with pytest.raises(LongshotError, match="item 7 is not to my liking"):
        list(LocalEngine(2).map(complain, [7]))
    with pytest.raises(LongshotError, match="A worker process died"):
        list(LocalEngine(2).map(die, [7]))


def spend(seconds: float) -> None:
    list(LocalEngine(2).map(sleep, [seconds, seconds]))


def test_workers_do_not_outlive_a_parent_that_was_killed() -> None:
    parent = multiprocessing.get_context("fork").Process(target=spend, args=(60,))
    parent.start()
    assert parent.pid is not None
    deadline = time.monotonic() + 60
    while len(workers := _children(parent.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    while not all(_is_asleep_in_python(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    while any(_alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(workers) >= 2
    assert not any(_alive(pid) for pid in workers)


def test_a_worker_watches_its_parent_before_it_imports_anything_slow() -> None:
    """Or the workers of a driver that is killed at once live on until torch is there."""
    asks = "import sys, longshot.engines.local; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def _children(pid: int) -> list[int]:
    """Those that are workers, not Python's own helper."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
                found.append(int(child))
    return found


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _is_asleep_in_python(pid: int) -> bool:
    """Started far enough to have the thread that watches its parent."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except FileNotFoundError:
        return True


def test_engines_are_made_by_name() -> None:
    assert make_engine("local", 3) == LocalEngine(3)
    with pytest.raises(LongshotError, match="did you mean 'local'"):
        make_engine("locl")
    with pytest.raises(LongshotError, match="at least one worker"):
        make_engine("local", 0)
    with pytest.raises(LongshotError, match="Only the engine 'ray' takes an address"):
        make_engine("local", 1, "auto")


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2, 0.5, 1.0, 1.5])
def test_a_worker_that_dies_while_it_starts_is_told(delay: float) -> None:
    """Whatever a worker is doing when it is killed, and however large what it was to read."""
    function = Heavy(bytes(2**24))
    killer = threading.Thread(target=_kill_first_child, args=(delay,))
    killer.start()
    began = time.monotonic()
    with pytest.raises(LongshotError, match="A worker process died"):
        list(LocalEngine(2).map(function, iter([3.0, 3.0, 3.0])))
    killer.join()
    assert time.monotonic() - began < 30


def test_a_worker_that_dies_halfway_through_a_result_is_told() -> None:
    """Its last words are larger than a pipe, and end in the middle."""
    results = LocalEngine(2).map(speak_and_die, [0, 2**22])
    assert next(results) == b""
    time.sleep(3)  # while the other speaks to nobody, and dies
    began = time.monotonic()
    with pytest.raises(LongshotError, match="A worker process died"):
        next(results)
    assert time.monotonic() - began < 10


def test_a_full_disk_for_the_workers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/self")
    with pytest.raises(LongshotError, match="cannot be written"):
        list(LocalEngine(2).map(threads, [1, 2]))


def _kill_first_child(delay: float) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for pid in _children(os.getpid()):
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.001)
