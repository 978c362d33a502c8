"""What the README says to type works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_blocks_run(code: str) -> None:
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as the tests themselves
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=one_thread
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


def test_commands_and_links_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link).exists(), link
