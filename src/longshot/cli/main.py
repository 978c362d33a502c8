"""The entry point: importing a command's file puts it on the app."""

from __future__ import annotations

from longshot.cli import (  # noqa: F401
    compare_methods,
    deep,
    demo,
    estimate,
    inputs,
    leaderboard,
    look,
    models,
    report,
    score,
    study,
    truth,
)
from longshot.cli.app import run as run

if __name__ == "__main__":
    run()
