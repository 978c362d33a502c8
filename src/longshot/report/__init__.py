"""What a stored run shows: tables, figures and a page, without loading any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from longshot.names import DRAWN, FORMATS
from longshot.study import Run

__all__ = ["DRAWN", "FORMATS", "write_report"]


def write_report(
    run: Run,
    folder: Path,
    formats: Sequence[str] = FORMATS,
    progress: Callable[[float, str], None] = lambda share, what: None,
) -> list[Path]:
    """Write the report of a run into a folder; the files, in the order they were written.

    index.html          the page
    report.md           the answer and every table
    tables/NAME.tex     each table, to be taken in by \\input
    figures/NAME.EXT    each figure

    `progress` is called with the share of the work that is done and what is being done.
    """
    from longshot.report import write  # Altair takes longer to load than most commands run

    return write.write_report(run, folder, formats, progress)
