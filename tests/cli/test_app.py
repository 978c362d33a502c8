"""The command line itself."""

from __future__ import annotations

import subprocess
import sys

import longshot


def test_it_runs_as_a_module_and_says_its_version() -> None:
    command = [sys.executable, "-m", "longshot", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"longshot {longshot.__version__}\n"
