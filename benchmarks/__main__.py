"""`python -m benchmarks [NAME …]`: run all benchmarks, or those named.

A benchmark is a module of this folder with a `main(console) -> None`; nothing else registers it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable

import torch
from rich.console import Console

import benchmarks
from longshot.errors import LongshotError, unknown_name


def registered() -> dict[str, Callable[[Console], None]]:
    """The benchmarks by name, in alphabetical order."""
    found = {}
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name == "__main__":  # it is running already
            continue
        main = getattr(importlib.import_module(f"benchmarks.{module.name}"), "main", None)
        if main is not None:
            found[module.name] = main
    return found


WIDTH = 150  # of tables in a file, whole


def run(names: list[str]) -> None:
    """Run the benchmarks of these names; all of them if there are none."""
    known = registered()
    for name in names:
        if name not in known:
            raise unknown_name("benchmark", name, known)
    torch.set_num_threads(1)  # ratios of one thread do not depend on who else uses the machine
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    for name in names or known:
        known[name](console)


if __name__ == "__main__":
    try:
        run(sys.argv[1:])
    except LongshotError as error:
        sys.exit(f"error: {error}")
