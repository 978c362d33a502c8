"""What a killed driver leaves of a Ray of its own is ended, and nothing else is."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longshot.engines import leftovers

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
DRIVER = """
import itertools
from longshot.engines.ray import RayEngine
from tests.engines.work import sleep
for _ in RayEngine(2).map(sleep, itertools.repeat(0.2)): pass
"""


def within(seconds: float, so: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not so() and time.monotonic() < end:
        time.sleep(0.05)
    return so()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """A folder, a process that writes to a log there, and one that does not."""
    folder = tmp_path / "ray"
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        inside = subprocess.Popen(SLEEP, stdout=log)
    outside = subprocess.Popen(SLEEP)
    yield folder, inside, outside
    for process in (inside, outside):
        process.kill()
        process.wait()


@pytest.mark.parametrize("word", [b"", b"ended"])
def test_without_a_word_what_logs_there_is_ended(
    word: bytes, two: tuple[Path, subprocess.Popen[bytes], subprocess.Popen[bytes]]
) -> None:
    folder, inside, outside = two
    watch = subprocess.Popen(
        [sys.executable, "-I", leftovers.__file__, str(folder)], stdin=subprocess.PIPE
    )
    assert not within(0.5, lambda: inside.poll() is not None)  # its driver lives
    watch.communicate(word, timeout=10)
    assert (inside.poll() is None) == bool(word)
    assert outside.poll() is None
    assert not folder.exists()


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra 'ray'")
@pytest.mark.parametrize("more", [0.0, 1.0, 8.0])
def test_a_killed_driver_leaves_no_process(more: float) -> None:
    """Real Ray, killed while it starts and while it works; it would leave some for 25 seconds."""
    place = tempfile.mkdtemp()  # pytest's own is too deep for the names of sockets
    environment = {**os.environ, "RAY_TMPDIR": place}
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], env=environment)
    try:
        assert within(60, lambda: len(leftovers.processes_in(place)) > 2)  # driver, servers
        time.sleep(more)
    finally:
        driver.kill()
        driver.wait()
    assert within(10, lambda: not os.listdir(place))
    assert not leftovers.processes_in(place)
    os.rmdir(place)
