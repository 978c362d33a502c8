"""`python leftovers.py FOLDER`: ends what is left of a Ray whose driver was killed.

A driver that is killed takes Ray's two servers with it. What those had started asks after them for
up to two minutes: agents, and workers that are still starting. This process waits for a word on
stdin, or its end, which comes with the driver's, however that dies. Without a word it ends all
processes that have a file open in FOLDER, which holds Ray's logs; then it takes the folder away.
Where there is no /proc they end by themselves. Nothing but the standard library is imported.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PROCESSES = Path("/proc")
SETTLED = 1.0  # seconds without a process: one that was being started has opened its log by then


def processes_in(folder: str) -> list[int]:
    """All processes but this one that have a file open in a folder."""
    found = []
    for process in PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            opened = (os.readlink(file) for file in (process / "fd").iterdir())
            if int(process.name) != os.getpid() and any(f.startswith(f"{folder}/") for f in opened):
                found.append(int(process.name))
    return found


def main(folder: str) -> None:
    """Wait for the driver, and clear up after it."""
    last = -math.inf if sys.stdin.read() else time.monotonic()
    while time.monotonic() < last + SETTLED:
        for process in processes_in(folder):
            last = time.monotonic()
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
