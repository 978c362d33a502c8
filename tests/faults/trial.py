"""One command under one fault after the other."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.faults.commands import COMMANDS, run, with_fault
from tests.faults.injector import FAULTS


def tried(
    name: str, prepared: Path, most: int | None, seed: int, first: int = 1, last: int | None = None
) -> tuple[int, int, int]:
    """How many points there are, how many from `first` to `last` were tried, how many by kills."""
    command, folder = COMMANDS[name], prepared.parent / f"{prepared.name}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared, folder)
    (folder / "study.toml").write_text(
        (folder / "study.toml").read_text().replace(str(prepared), str(folder))
    )
    run(command.arguments(folder))  # what it imports is then shared by all that are forked
    _clear(folder)
    code, printed, points = with_fault(command, folder, None, "")
    assert code == 0, printed
    expected = command.data(folder)
    assert expected
    draw, kills = random.Random(f"{seed} {name}"), 0
    numbers = list(range(first, min(last or len(points), len(points)) + 1))
    some = sorted(draw.sample(numbers, min(most or len(numbers), len(numbers))))
    for at in some:
        fault = draw.choice(FAULTS) if most else FAULTS[(at + seed) % len(FAULTS)]
        where = f"{name}, point {at} ({points[at - 1]}), {fault}"
        _clear(folder)
        code, printed, _ = with_fault(command, folder, at, fault)
        assert "Traceback" not in printed, f"{where}: {printed}"
        assert code in (0, 1, 2, -9), f"{where}: {code}"
        kills += code == -9
        found = command.data(folder)
        assert found.items() <= expected.items(), f"{where}: something else is there"
        if code == 0:
            assert found == expected, f"{where}: done, but not there"
        code, printed, _ = with_fault(command, folder, None, "")
        assert code == 0, f"{where}, again: {printed}"
        assert command.data(folder) == expected, f"{where}: not the same when run again"
    return len(points), len(some), kills


def _clear(folder: Path) -> None:
    """Take away what a command left; a report may be there before."""
    for left in ("made", "run", "pages", "out"):
        shutil.rmtree(folder / left, ignore_errors=True)
