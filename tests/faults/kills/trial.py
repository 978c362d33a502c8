"""One process killed while it works: who, when, and what came of it.

A case is a command (truth or a study) on two workers, who is killed (the driver, a local worker, a
Ray worker), and when: before the first result, among them, or as the last one is written. Whoever
is killed, the command ends and its workers with it; run again, it leaves what an undisturbed one
leaves.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import select
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.commands import COMMANDS, GOAL, prepare, run

WORK = {"truth": ("made/store.sqlite", "shards"), "study": ("run/run.sqlite", "rows")}
"""Where each command's results are counted: file and table."""
VICTIMS = ("driver", "local worker", "ray driver", "ray worker")
MOMENTS = ("start", "middle", "end")
PATIENCE = 120  # seconds of a driver that has something left to do, on a machine that may be busy
SECONDS = 10
"""Within which what a killed driver had started ends."""


@dataclass(frozen=True)
class Case:
    """One kill."""

    number: int
    work: str
    victim: str
    moment: str

    @property
    def engine(self) -> str:
        return "ray" if "ray" in self.victim else "local"


def cases() -> Iterator[Case]:
    """All combinations, again and again."""
    every = itertools.cycle(itertools.product(MOMENTS, VICTIMS, WORK))
    for number, (moment, victim, work) in enumerate(every):
        yield Case(number, work, victim, moment)


class Killed:
    """A folder prepared once, in which one case after the other is tried."""

    def __init__(self, folder: Path) -> None:
        self.prepared = folder / "prepared"
        self.prepared.mkdir(parents=True)
        prepare(self.prepared)
        study = self.prepared / "study.toml"
        study.write_text(study.read_text().replace("count = 3", "count = 12"))
        self.expected: dict[str, dict[str, str]] = {}
        self.totals: dict[str, int] = {}
        for name, (file, table) in WORK.items():
            assert run(self._typed(name))[0] == 0
            self.expected[name] = COMMANDS[name].data(self.prepared)
            self.totals[name] = _count(self.prepared / file, table)
            assert self.totals[name] > 2

    def outcome(self, case: Case, seed: int) -> str:
        """What came of a kill: "killed", "done before", or what went wrong."""
        draw, command = random.Random(f"{seed} {case.number}"), COMMANDS[case.work]
        total = self.totals[case.work]
        for left in ("made", "run"):
            shutil.rmtree(self.prepared / left, ignore_errors=True)
        how = ["--engine", case.engine, "--workers", "2"]
        wanted = {"start": 0, "middle": draw.randint(1, total - 2), "end": total}
        stop = Stop(WORK[case.work][1], wanted[case.moment])
        driver = _start([*self._typed(case.work), *how], self.prepared / "told", stop)
        known: set[int] = {driver}
        try:
            if case.moment == "start":
                reached = _wait(driver, known, lambda: bool(_workers(driver, case.engine)))
                time.sleep(draw.random() * reached)
            else:
                _wait(driver, known, stop.reached)
                known |= set(_family(driver))
            victim = self._victim(case, driver, draw)
            was_there = victim is not None and _kill(victim)
            stop.go_on()
            if not _wait(driver, known, lambda: False, until_it_ends=True):
                return "the driver hangs"
        finally:
            _end(driver)
        left = _alive_after(known - {driver}, SECONDS)
        if left:
            return f"{len(left)} workers outlive the driver"
        told = (self.prepared / "told").read_text() if (self.prepared / "told").exists() else ""
        if "Traceback" in told:
            return f"a traceback: {told[-300:]}"
        if not was_there and not told.startswith("0\n"):
            return f"nobody was killed, and yet: {told[-300:]}"
        found = command.data(self.prepared)
        if not found.items() <= self.expected[case.work].items():
            return "something else is there"
        code, printed = run(self._typed(case.work))
        if code != 0:
            return f"run again it ends with {code}: {printed[-300:]}"
        if command.data(self.prepared) != self.expected[case.work]:
            return "run again it leaves something else"
        return "killed" if was_there else "done before"

    def _typed(self, name: str) -> list[str]:
        """The command with more work than one fault needs."""
        typed = COMMANDS[name].arguments(self.prepared)
        return ["12000 leaves" if word == GOAL[1] else word for word in typed]

    def _victim(self, case: Case, driver: int, draw: random.Random) -> int | None:
        if case.victim.endswith("driver"):
            return driver
        workers = _workers(driver, case.engine)
        return draw.choice(workers) if workers else None


class Stop:
    """Where a driver waits until somebody has been killed: before it writes its n-th result."""

    def __init__(self, table: str, number: int) -> None:
        self.table, self.number, self.seen = table, number, 0
        (self.told, self.tell), (self.may, self.let) = os.pipe(), os.pipe()

    def reached(self) -> bool:
        """Whether the driver waits there."""
        return bool(select.select([self.told], [], [], 0)[0])

    def go_on(self) -> None:
        """Let the driver go on; nobody needs this any more."""
        for end in (self.told, self.tell, self.may, self.let):
            os.close(end)

    def watch(self) -> None:
        """In the driver: every connection to a database looks at its statements."""
        os.close(self.let)  # or its end would never be seen
        connect = sqlite3.connect

        def watching(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*arguments, **options)
            connection.set_trace_callback(self._look)
            return connection

        sqlite3.connect = watching  # type: ignore[assignment]

    def _look(self, statement: str) -> None:
        if statement.startswith("INSERT") and f"INTO {self.table} " in statement:
            self.seen += 1
            if self.seen == self.number:
                os.write(self.tell, b".")
                os.read(self.may, 1)


def _start(arguments: list[str], told: Path, stop: Stop) -> int:
    """The command in a process of its own; what it prints is written down when it ends."""
    told.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            stop.watch()
            quiet = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(quiet, number)
            code, printed = run(arguments)
            told.write_text(f"{code}\n{printed}")
        finally:
            os._exit(0)
    return child


def _wait(
    driver: int, known: set[int], ready: Callable[[], bool], until_it_ends: bool = False
) -> bool:
    """Until something is so (True), or the driver has ended; its family is noted meanwhile."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        known |= set(_family(driver))
        if driver not in _ended and os.waitpid(driver, os.WNOHANG)[0]:
            _ended.add(driver)
        if driver in _ended:
            return until_it_ends
        if ready():
            return True
        time.sleep(0.02)
    return False


_ended: set[int] = set()


def _end(driver: int) -> None:
    """Nothing of a case goes on into the next one."""
    if driver not in _ended:
        os.kill(driver, signal.SIGKILL)
        os.waitpid(driver, 0)
        _ended.add(driver)


def _kill(process: int) -> bool:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _family(ancestor: int) -> list[int]:
    """The processes that descend from one, by the kernel's own lists of children."""
    found: list[int] = []
    for lists in Path(f"/proc/{ancestor}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, lists.read_text().split()):
                found += [child, *_family(child)]
    return found


def _workers(driver: int, engine: str) -> list[int]:
    """The processes that compute for a driver."""
    mark = b"ray::" if engine == "ray" else b"spawn_main"
    found = []
    for process in _family(driver):
        try:
            typed = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if mark in typed:
            found.append(process)
    return sorted(found)


def _alive_after(orphans: set[int], seconds: float) -> list[int]:
    """Those that do not end soon, which are then ended here."""
    end = time.monotonic() + seconds
    alive = sorted(orphans)
    while alive and time.monotonic() < end:
        alive = [process for process in alive if _runs(process)]
        time.sleep(0.05)
    for process in alive:
        _kill(process)
    return alive


def _runs(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def _count(path: Path, table: str) -> int:
    """The rows of a database that another process writes."""
    if not path.is_file():
        return 0
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.1)
        try:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error:
        return 0
