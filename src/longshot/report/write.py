"""A run's report on disk: a page, tables and figures, from stored rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from longshot.errors import unknown_name, visible
from longshot.files import safe_name, try_place, write_whole, writing
from longshot.report import DRAWN, FORMATS
from longshot.report.diagnostics import coverage, truth_by_rank, tuning
from longshot.report.evidence import LOSS_TITLES, Evidence, gather
from longshot.report.figures import (
    cost_against_accuracy,
    halves,
    loss_by_distribution,
    loss_by_model,
)
from longshot.report.grids import as_latex, as_markdown
from longshot.report.page import page
from longshot.report.scatters import scatter
from longshot.report.style import style
from longshot.report.tables import tables
from longshot.report.words import answer
from longshot.study import Run

RESOLUTION = 160

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
        shown = all_figures(evidence) if "png" in formats else ()
        pictures = [f"![{visible(name)}](figures/{safe_name(name)}.png)\n" for name, _ in shown]
        text = "\n".join([*parts, "", *(as_markdown(grid) for grid in grids), *pictures])
        write_whole(folder / "report.md", "\n".join(visible(line) for line in text.split("\n")))
        yield folder / "report.md"
    if "tex" in formats and grids:
        for grid in grids:
            path = folder / "tables" / f"{safe_name(grid.name)}.tex"
            write_whole(path, as_latex(grid))
            yield path
    endings = [name for name in DRAWN if name in formats]
    planned = list(all_figures(evidence)) if endings else []
    for number, (name, make) in enumerate(planned):
        with style():
            figure = make()
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # it stays as it is for all endings
            for ending in endings:
                path = folder / "figures" / f"{safe_name(name)}.{ending}"
                dated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
                with writing(path, "figure") as aside:
                    figure.savefig(aside, dpi=RESOLUTION, metadata=dated[ending], format=ending)
                yield path
        progress(0.7 + 0.3 * (number + 1) / len(planned), "drawing")


def all_figures(evidence: Evidence) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Every figure that the run has something to show in, by name."""
    if evidence.methods:
        for loss in LOSS_TITLES:
            yield f"loss-by-model-{loss}", partial(loss_by_model, evidence, loss)
            yield f"loss-by-distribution-{loss}", partial(loss_by_distribution, evidence, loss)
            yield f"cost-{loss}", partial(cost_against_accuracy, evidence, loss)
            if evidence.halves():
                yield f"halves-{loss}", partial(halves, evidence, loss)
        yield "coverage", partial(coverage, evidence)
        for model in evidence.models:
            yield f"scatter-raw-{model}", partial(scatter, evidence, model, False)
            yield f"scatter-fitted-{model}", partial(scatter, evidence, model, True)
    for model in evidence.models:
        if any(key[0] == model and tuned.curve for key, tuned in evidence.run.tuned.items()):
            yield f"tuning-{model}", partial(tuning, evidence, model)
    if any(evidence.run.chosen["run", *cell].targets for cell in evidence.run.cells):
        yield "truth", partial(truth_by_rank, evidence)
