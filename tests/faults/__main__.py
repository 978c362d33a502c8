"""`python -m tests.faults [COMMAND …]`: one fault at every injection point of the commands."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

from tests.faults.commands import COMMANDS, prepare
from tests.faults.trial import tried

if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        prepared = Path(place) / "prepared"
        prepared.mkdir()
        prepare(prepared)
        for name in sys.argv[1:] or COMMANDS:
            points, kills = tried(name, prepared, None, seed=0)
            print(f"{name}: {points} points, one fault at each, {kills} of them kills", flush=True)
