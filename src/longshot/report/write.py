"""A run's report on disk: a page, tables and figures, from stored rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from longshot.errors import LongshotError, unknown_name
from longshot.report import DRAWN, FORMATS
from longshot.report.charts import run_charts
from longshot.report.drawing import spec_of
from longshot.report.embed import write_page
from longshot.report.evidence import Evidence, gather
from longshot.report.grids import as_latex, as_markdown
from longshot.report.page import page
from longshot.report.tables import tables
from longshot.report.words import answer
from longshot.study import Run

RESOLUTION = 2
"""Pixels of a PNG for each of the page's."""

Progress = Callable[[float, str], None]


def write_report(run: Run, folder: Path, formats: Sequence[str], progress: Progress) -> list[Path]:
    """What the package's `write_report` does."""
    for name in formats:
        if name not in FORMATS:
            raise unknown_name("format", name, FORMATS)
    evidence = gather(run, lambda share: progress(0.7 * share, "scoring"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return list(_write(evidence, folder, formats, progress))
    except OSError as error:
        raise LongshotError(
            f"The report cannot be written to {folder}: {error.strerror}."
        ) from error


def _write(
    evidence: Evidence, folder: Path, formats: Sequence[str], progress: Progress
) -> Iterator[Path]:
    grids = tables(evidence)
    if "html" in formats:
        write_page(folder / "index.html", page(evidence))
        yield folder / "index.html"
    if "md" in formats:
        said = answer(evidence)
        parts = [f"# {evidence.run.name}\n", f"**{said.headline}**\n", "\n".join(said.details)]
        shown = run_charts(evidence) if "png" in formats else {}
        pictures = [f"![{name}](figures/{_file_name(name)}.png)\n" for name in shown]
        text = "\n".join([*parts, "", *(as_markdown(grid) for grid in grids), *pictures])
        (folder / "report.md").write_text(text, encoding="utf-8")
        yield folder / "report.md"
    if "tex" in formats and grids:
        (folder / "tables").mkdir(exist_ok=True)
        for grid in grids:
            path = folder / "tables" / f"{_file_name(grid.name)}.tex"
            path.write_text(as_latex(grid), encoding="utf-8")
            yield path
    endings = [name for name in DRAWN if name in formats]
    planned = run_charts(evidence) if endings else {}
    for number, (name, make) in enumerate(planned.items()):
        (folder / "figures").mkdir(exist_ok=True)
        spec = spec_of(make())
        for ending in endings:
            path = folder / "figures" / f"{_file_name(name)}.{ending}"
            path.write_bytes(drawn(spec, ending))
            yield path
        progress(0.7 + 0.3 * (number + 1) / len(planned), "drawing")


def drawn(spec: dict[str, Any], ending: str) -> bytes:
    """A chart as the bytes of a PNG, SVG or PDF file."""
    import vl_convert

    if ending == "svg":
        return str(vl_convert.vegalite_to_svg(spec)).encode()
    if ending == "png":
        return bytes(vl_convert.vegalite_to_png(spec, scale=RESOLUTION))
    return bytes(vl_convert.vegalite_to_pdf(spec))


def _file_name(name: str) -> str:
    """A name that any file system takes: a model may be named by its path."""
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in name).strip("-.") or "unnamed"
