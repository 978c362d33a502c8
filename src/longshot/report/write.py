"""A run's report on disk: a page, tables and figures, from stored rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from longshot.errors import LongshotError, unknown_name
from longshot.report import DRAWN, FORMATS
from longshot.report.diagnostics import coverage, truth_by_rank, tuning
from longshot.report.embed import write_page
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
        shown = all_figures(evidence) if "png" in formats else ()
        pictures = [f"![{name}](figures/{_file_name(name)}.png)\n" for name, _ in shown]
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
    planned = list(all_figures(evidence)) if endings else []
    for number, (name, make) in enumerate(planned):
        (folder / "figures").mkdir(exist_ok=True)
        with style():
            figure = make()
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # it stays as it is for all endings
            for ending in endings:
                path = folder / "figures" / f"{_file_name(name)}.{ending}"
                dated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
                figure.savefig(path, dpi=RESOLUTION, metadata=dated[ending])
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


def _file_name(name: str) -> str:
    """A name that any file system takes: a model may be named by its path."""
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in name).strip("-.") or "unnamed"
