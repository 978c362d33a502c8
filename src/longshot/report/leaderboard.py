"""A leaderboard from stored rows: whose method loses least on the distributions held back.

    [[entries]]
    rows = "results/deep/rows.jsonl.xz"   # as `longshot rows RUN | xz` writes them
    who = "A. Author"
    version = "mine 1.2"
    methods = ["mine"]                     # all that the rows hold, unless some are named

The development half of the distributions is there to be tuned on; the ranking is by the test half
(`report/evidence.py`). All entries must have answered the targets of the first one, with the same
truth; one that lacks some stands below the others, unranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic import Field as Column

from longshot.errors import LongshotError
from longshot.files import read_text
from longshot.methods.base import complaint
from longshot.report.embed import power_of_ten
from longshot.report.evidence import HALVES, Evidence, gather
from longshot.report.grids import Field, Grid, as_markdown
from longshot.study import load_run
from longshot.study.paired import difference
from longshot.study.scores import average, pooled
from longshot.study.summary import CONSTANT, Scored
from longshot.toml import TomlFile

Text = Annotated[str, Column(min_length=1, max_length=100)]
Cells = dict[tuple[str, str], Scored]


class Entry(BaseModel):
    """Who submitted which rows."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rows: Text
    who: Text
    version: Text
    methods: list[Text] | None = None


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    entries: Annotated[list[Entry], Column(min_length=1)]


@dataclass(frozen=True)
class Standing:
    """One method of one entry, on the cells of each half."""

    method: str
    who: str
    version: str
    test: Cells
    development: Cells

    @property
    def loss(self) -> float | None:
        return average(cell.loss("is") for cell in self.test.values())[0]


def read_entries(file: Path) -> list[Entry]:
    """The entries of a leaderboard's file."""
    toml = TomlFile.parse(read_text("leaderboard", file), str(file))
    try:
        return _Entries.model_validate(toml.parsed).entries
    except ValidationError as error:
        first = error.errors()[0]
        what = "is no key of an entry" if first["type"] == "extra_forbidden" else first["msg"]
        toml.refuse(tuple(map(str, first["loc"])), complaint(what))


def leaderboard(file: Path) -> str:
    """The whole page, as Markdown."""
    standings: list[Standing] = []
    truth: dict[tuple[str, str], Any] = {}
    for entry in read_entries(file):
        evidence = gather(load_run(file.parent / entry.rows))
        if unknown := [name for name in entry.methods or () if name not in evidence.methods]:
            raise LongshotError(f"{entry.rows} holds no method {unknown[0]!r}.")
        _same_truth(truth, evidence, entry.rows)
        for label in entry.methods or (CONSTANT, *evidence.methods):
            halves = [_cells(evidence, label, HALVES[half]) for half in ("test", "development")]
            who = "" if label == CONSTANT else entry.who
            standings.append(Standing(label, who, entry.version, *halves))
    return "\n".join([_HEAD, as_markdown(_grid(standings)), _FOOT])


def _cells(evidence: Evidence, label: str, half: Sequence[str]) -> Cells:
    return {(c.model, c.inputs): c for c in evidence.scored(label=label) if c.inputs in half}


def _same_truth(known: dict[tuple[str, str], Any], evidence: Evidence, rows: str) -> None:
    """Refuse rows whose targets or truth are not those of the entries before."""
    first = not known
    for cell in evidence.run.cells:
        targets = {(t.token, t.probability) for t in evidence.run.chosen["run", *cell].targets}
        if first:
            known[cell] = targets
        elif not targets <= known.get(cell, set()):
            model, inputs = cell
            raise LongshotError(
                f"{rows} was judged by other targets of {model} on {inputs} than the first entry."
            )


def _grid(standings: list[Standing]) -> Grid:
    wanted = {cell: len(scored.tokens) for cell, scored in standings[0].test.items()}
    whole = [s for s in standings if {c: len(x.tokens) for c, x in s.test.items()} == wanted]
    whole.sort(key=lambda standing: standing.loss or 0.0)
    parts = [standing for standing in standings if standing not in whole]
    rows = [_row(str(place), s, whole[0]) for place, s in enumerate(whole, start=1)]
    rows += [_row("–", standing, whole[0]) for standing in parts]
    targets, models = sum(wanted.values()), ", ".join(dict.fromkeys(m for m, _ in wanted))
    return Grid(
        name="leaderboard",
        title=f"{len(wanted)} cells of {models}, {targets} targets",
        note="Loss: Itakura–Saito after the leave-one-out fit, averaged over the cells of the test "
        "half (caps, english, spanish, icl). Behind: how much more than the first, target by "
        "target, ± the larger of its errors over targets and over cells. Without a fit a zero "
        "costs what the best constant loses. Held: of the two-sided 95% intervals. MACs: "
        "multiply-accumulates of one target asked alone. Development: the loss on the other half "
        "(hex, camel, colon, if), which is there to be tuned on. An entry without a place lacks "
        "some of the targets.",
        headings=(
            "place", "method", "loss", "behind", "no fit", "zeros", "intervals", "held", "MACs",
            "development", "who", "version",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _row(place: str, standing: Standing, first: Standing) -> tuple[Field, ...]:
    cells = list(standing.test.values())
    found = difference(first.test.values(), cells, "is")
    behind = "–"
    if standing is not first and found.mean is not None and found.error is not None:
        behind = f"{found.mean:.2f} ± {max(found.error, found.cell_error or 0.0):.2f}"
    raw = average(cell.score.losses["is"].raw_zeros for cell in cells)[0]
    targets = sum(cell.score.targets for cell in cells)
    zeros = sum(cell.score.zeros for cell in cells)
    held = pooled(cell.score.coverage for cell in cells)
    spent = [cost.macs for cell in cells if (cost := cell.spent("alone"))]
    development = average(cell.loss("is") for cell in standing.development.values())[0]
    is_constant = standing.method == CONSTANT
    return (
        Field(place),
        Field(standing.method, best=standing is first),
        _number(standing.loss),
        Field(behind),
        _number(raw),
        Field("" if is_constant else f"{zeros / targets:.0%}" if targets else "–"),
        Field(f"{held.given / targets:.0%}" if held.given else "–"),
        Field("–" if held.share is None else f"{held.share:.1%} of {held.given}"),
        Field(power_of_ten(sum(spent) / len(spent)) if spent else "–"),
        _number(development),
        Field(standing.who),
        Field("" if is_constant else standing.version),
    )


def _number(value: float | None) -> Field:
    return Field("–" if value is None else f"{value:.3g}", value)


_HEAD = """\
# Leaderboard

Who estimates rare outputs best? Certified targets of 1e-9 … 1e-5 ([truth](truth.md)), 2^16 calls
each, as the preset `deep` lays them out. This page is made by
`longshot leaderboard docs/leaderboard.toml --out docs/leaderboard.md` from stored rows.
"""

_FOOT = """\
## A method of your own

1. Make it a package with an entry point in the group `longshot.methods`
   (`examples/your-own-method.ipynb` writes one in forty lines; `longshot.testing.check_method` runs
   the contract on it).
2. Tune it on the development half: `longshot run --preset deep --method mine --only
   "inputs=hex,camel,colon,if" --out runs/mine`, then `longshot score runs/mine`.
3. Run it once on the rest: the same without `--only`. It goes on where it was stopped.
4. `longshot rows runs/mine | xz -9e > mine.jsonl.xz`, to be kept beside the other rows, an entry
   in `docs/leaderboard.toml`, the command above, and a pull request with the three files.
"""
