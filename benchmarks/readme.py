"""The README's question from Python and from the command line: whole processes, taking turns."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

README = Path(__file__).parents[1] / "README.md"
PAIRS = 3
BAR = 1.2


def main(console: Console) -> None:
    python, shell = blocks()
    commands = ([sys.executable, "-c", python], [sys.executable, "-m", "longshot", *shell])
    environment = {
        k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"
    }  # as a user has it
    for command in commands:
        run(command, environment)
    times = [tuple(run(command, environment) for command in commands) for _ in range(PAIRS)]
    ratio = statistics.median(ours / theirs for ours, theirs in times)
    python_seconds, shell_seconds = (statistics.median(side) for side in zip(*times, strict=True))
    verdict = "" if ratio <= BAR else " MISSED"
    console.print(
        f"README's Python block {python_seconds:.2f} s, its command {shell_seconds:.2f} s: "
        f"ratio {ratio:.2f} (at most {BAR:g}){verdict}"
    )


def blocks() -> tuple[str, list[str]]:
    """The first Python block of the README, and its first question on the command line."""
    text = README.read_text()
    python = re.search(r"```python\n(import longshot as ls\n.*?)```", text, re.S)
    shell = re.search(r"^longshot (estimate .*)$", text, re.M)
    assert python, "the README has no Python block"
    assert shell, "the README has no question"
    return python[1], shell[1].split()


def run(command: list[str], environment: dict[str, str]) -> float:
    """The seconds that a process takes."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.perf_counter() - start
