"""A run's report on disk: a page, tables and figures, from stored rows alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from longshot.errors import unknown_name, visible
from longshot.files import safe_name, try_place, write_whole, writing
from longshot.report import DRAWN, FORMATS
from longshot.report.charts import run_charts
from longshot.report.drawing import specs
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
    try_place(folder / "index.html", "report")
    evidence = gather(run, lambda share: progress(0.7 * share, "scoring"))
    return list(_write(evidence, folder, formats, progress))


def _write(
    evidence: Evidence, folder: Path, formats: Sequence[str], progress: Progress
) -> Iterator[Path]:
    grids = tables(evidence)
    if "html" in formats:
        write_whole(folder / "index.html", page(evidence), "page")
        yield folder / "index.html"
    if "md" in formats:
        said = answer(evidence)
        parts = [f"# {evidence.run.name}\n", f"**{said.headline}**\n", "\n".join(said.details)]
        ending = next((name for name in ("png", "svg") if name in formats), "")
        shown = run_charts(evidence) if ending else {}
        pictures = [f"![{visible(name)}](figures/{safe_name(name)}.{ending})\n" for name in shown]
        text = "\n".join([*parts, "", *(as_markdown(grid) for grid in grids), *pictures])
        write_whole(folder / "report.md", "\n".join(visible(line) for line in text.split("\n")))
        yield folder / "report.md"
    if "tex" in formats and grids:
        for grid in grids:
            path = folder / "tables" / f"{safe_name(grid.name)}.tex"
            write_whole(path, as_latex(grid))
            yield path
    endings = [name for name in DRAWN if name in formats]
    planned = run_charts(evidence) if endings else {}
    for number, (name, make) in enumerate(planned.items()):
        spec = specs({name: make})[name]
        for ending in endings:
            path = folder / "figures" / f"{safe_name(name)}.{ending}"
            with writing(path, "figure") as aside:
                aside.write_bytes(drawn(spec, ending))
            yield path
        progress(0.7 + 0.3 * (number + 1) / len(planned), "drawing")


def drawn(spec: dict[str, Any], ending: str) -> bytes:
    """A chart as the bytes of a PNG, SVG or PDF file."""
    import vl_convert

    if ending == "svg":
        plain = {**spec, "config": {**spec.get("config", {}), "aria": False}}
        return re.sub(r"<[^<>]+>", _short, str(vl_convert.vegalite_to_svg(plain))).encode()
    if ending == "png":
        return bytes(vl_convert.vegalite_to_png(spec, scale=RESOLUTION))
    return bytes(vl_convert.vegalite_to_pdf(spec))


def _short(tag: re.Match[str]) -> str:
    """A tag of SVG with numbers to a hundredth of a pixel: a third of the size."""
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag[0])
