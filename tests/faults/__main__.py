"""`python -m tests.faults [COMMAND …]`: one fault at every injection point of the commands."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from tests.faults.commands import COMMANDS, prepare
from tests.faults.trial import tried

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=", ".join(COMMANDS))
    parser.add_argument("--first", type=int, default=1, help="the first point of each command")
    parser.add_argument("--last", type=int, help="and the last one")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        prepared = Path(place) / "prepared"
        prepared.mkdir()
        prepare(prepared)
        for name in options.commands or COMMANDS:
            points, some, kills = tried(name, prepared, None, 0, options.first, options.last)
            print(f"{name}: {some} of {points} points, {kills} of them by kills", flush=True)
