"""`longshot truth deepen`, `certificates` and `check`: truth below samples, and what checks it."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn

from longshot.cli.app import (
    JsonOption,
    SeedOption,
    console,
    going_on,
    say,
    some_inputs,
    some_models,
)
from longshot.cli.truth import (
    AddressOption,
    CorpusOption,
    EngineOption,
    StoreOption,
    WhereArgument,
    WorkersOption,
    cells_of,
    places,
    truth,
)
from longshot.errors import LongshotError, visible

if TYPE_CHECKING:
    from longshot.truth.deepen import DeepStatus

ModelArgument = Annotated[
    str, typer.Argument(autocompletion=some_models, help="Models, separated by commas, or 'all'.")
]
InputsArgument = Annotated[
    str, typer.Argument(autocompletion=some_inputs, help="Inputs, separated by commas, or 'all'.")
]


@truth.command()
def deepen(
    model: ModelArgument,
    inputs: InputsArgument,
    within: Annotated[
        str, typer.Option("--range", help="The probabilities of interest, LOW:HIGH.")
    ] = "1e-9:1e-5",
    per_decade: Annotated[int, typer.Option(help="Candidates in each decade of it.")] = 8,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no further cell after that long.")
    ] = None,
    seed: SeedOption = 0,
    corpus: CorpusOption = None,
    store: StoreOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
    address: AddressOption = None,
) -> None:
    """Certify rare tokens, down to what no samples see, by two estimators that check each other.

    It needs samples of both halves first (longshot truth make), or a shipped table. Stop it at any
    moment and run it again to go on.

    Example: [bold]longshot truth deepen mini-1l hex[/]
    """
    from longshot.engines import make_engine
    from longshot.truth.deepen import Depths, deepen
    from longshot.truth.make import parse_range
    from longshot.truth.store import Store
    from longshot.truth.tables import default_store, load_truth

    wanted = Depths(*parse_range(within), per_decade, seed)
    runner, place = make_engine(engine, workers, address), store or default_store()
    started = time.monotonic()
    with (
        going_on(f"all pieces that were finished are in {place}"),
        Store(place, create=True) as pieces,
        _DeepDisplay() as display,
    ):
        for cell in cells_of(model, inputs, corpus):
            if minutes is not None and time.monotonic() - started > 60 * minutes:
                break
            samples = pieces.truth(cell.key) if pieces.spans(cell.key) else None
            samples = samples or load_truth(cell.model, cell.inputs, asked=(model, inputs))
            found = deepen(cell, pieces, runner, wanted, samples, display)
            certified = sum(each.is_certified for each in found)
            say(f"{cell.key}: {certified} of {len(found)} candidates certified")


@truth.command()
def certificates(
    where: WhereArgument = None,
    names: Annotated[bool, typer.Option(help="Every candidate, with what became of it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """How many tokens of each decade are certified, and why the others are not.

    Example: [bold]longshot truth certificates --names[/]
    """
    from longshot.truth.certified import candidate_records, count_by_decade
    from longshot.truth.summary import truths_at

    found = [t for place in places(where) for t in truths_at(place) if t.pieces]
    if not found:
        raise LongshotError("No cell has certificates; make some with: longshot truth deepen M I")
    if as_json:
        typer.echo(json.dumps([r for t in found for r in candidate_records(t)], indent=2))
        return
    if names:
        for record in (r for t in found for r in candidate_records(t)):
            known = f"{record['probability']:.2e} ± {record['relative_error']:.0%}"
            what = record["refusal"] or f"certified, {record['apart']:+.1f} errors apart"
            cell = f"{record['model']} on {record['inputs']}"
            typer.echo(visible(f"{cell}: token {record['token']}, {known}: {what}"))
        return
    typer.echo(count_by_decade(found))


@truth.command()
def check(
    where: WhereArgument = None,
    known: Annotated[float, typer.Option(help="The error of the tokens that are compared.")] = 0.25,
    within: Annotated[str, typer.Option("--range", help="Their probabilities.")] = "1e-7:1e-2",
) -> None:
    """Compare what truth calls known with plain samples that are no part of it.

    Prefixes alone with all plain samples, and each half as it ships with those of the other.

    Example: [bold]longshot truth check[/]
    """
    from longshot.truth.certified import markdown_checks
    from longshot.truth.make import parse_range
    from longshot.truth.summary import truths_at

    low, high = parse_range(within)
    found = [t for place in places(where) for t in truths_at(place)]
    plain = [t for t in found if "brute" in t.tallies]
    if not plain:
        raise LongshotError(
            "No cell has plain samples to compare with; make some with: "
            "longshot truth make --kind brute --model M --inputs I"
        )
    typer.echo(markdown_checks(plain, known, low, high))


class _DeepDisplay:
    """A line that changes on a terminal; elsewhere a line a minute, for a log."""

    def __init__(self) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None)
        self._printed = -math.inf

    def __enter__(self) -> _DeepDisplay:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, status: DeepStatus) -> None:
        text = (
            f"{visible(status.cell)}: {status.pieces} pieces, {status.scouted} scouted, "
            f"{status.certified} of {status.candidates} candidates certified"
        )
        self._bar.update(self._task, description=text)
        if not console.is_terminal and time.monotonic() - self._printed > 60:
            self._printed = time.monotonic()
            say(text)
