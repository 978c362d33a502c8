"""`longshot truth`: make, look at, merge, import and export ground truth."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from longshot.cli.app import (
    JsonOption,
    SeedOption,
    app,
    completing,
    console,
    going_on,
    say,
    some_inputs,
    some_models,
)
from longshot.errors import LongshotError, unknown_name, visible
from longshot.names import INPUTS, KINDS, ZOO_NAMES
from longshot.quantities import parse_count

if TYPE_CHECKING:
    from longshot.estimate import Cell
    from longshot.truth.make import TruthStatus
    from longshot.truth.summary import Summary
    from longshot.truth.tally import Kind

truth = typer.Typer(help="Ground truth: the probability of every token.", no_args_is_help=True)
app.add_typer(truth, name="truth")

StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store", help="The file of shards; ~/.local/share/longshot/truth.sqlite unless given."
    ),
]
RangeOption = Annotated[
    str, typer.Option("--range", help="The probabilities of interest, LOW:HIGH.")
]
CorpusOption = Annotated[list[str] | None, typer.Option(help="See longshot inputs.")]
EngineOption = Annotated[str, typer.Option(help="local or ray.")]
WorkersOption = Annotated[int, typer.Option(help="Processes, or Ray tasks, at a time.")]
AddressOption = Annotated[
    str | None, typer.Option(help="A running Ray cluster: auto, or HOST:PORT.")
]
WhereArgument = Annotated[
    Path | None,
    typer.Argument(
        help="A store, a table or a folder of tables; by default what ships and what was made."
    ),
]


@truth.command()
def make(
    model: Annotated[
        str,
        typer.Option(
            autocompletion=some_models, help="Models, separated by commas, or 'all' shipped."
        ),
    ],
    inputs: Annotated[
        str, typer.Option(autocompletion=some_inputs, help="Inputs, separated by commas, or 'all'.")
    ],
    until: Annotated[
        str | None, typer.Option(help='Leaves a cell to reach, such as "2**24 leaves".')
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after that long.")] = None,
    relative_error: Annotated[
        float | None, typer.Option(help="The median over the tokens in the range to reach.")
    ] = None,
    within: RangeOption = "1e-7:1e-4",
    kind: Annotated[
        str,
        typer.Option(
            autocompletion=completing(lambda: list(KINDS)),
            help="conditional, or brute: plain samples.",
        ),
    ] = KINDS[1],
    seed: SeedOption = 0,
    shard: Annotated[
        str | None, typer.Option(help="Leaves or samples in one shard: what a kill can lose.")
    ] = None,
    corpus: CorpusOption = None,
    store: StoreOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
    address: AddressOption = None,
) -> None:
    """Sample until a goal is met; stop it at any moment and run it again to go on.

    Example: [bold]longshot truth make --model mini-1l --inputs all --until "2**24 leaves"[/]
    """
    from longshot.engines import make_engine
    from longshot.truth import make as making
    from longshot.truth.store import Store
    from longshot.truth.tables import default_store

    low, high = making.parse_range(within)
    leaves = parse_count(until, "leaves") if until else None
    goal = making.Goal(leaves, minutes, relative_error, low, high)
    if "samples" in (until or "") and _kind(kind) == "conditional":
        raise LongshotError(f"conditional truth counts leaves, not samples: {until!r}.")
    runner = make_engine(engine, workers, address)
    cells = cells_of(model, inputs, corpus)
    kept = f"all shards that were finished are in {store or default_store()}"
    with (
        going_on(kept),
        Store(store or default_store(), create=True) as shards,
        _TruthDisplay() as display,
    ):
        done = making.make_truth(
            cells,
            shards,
            runner,
            goal,
            kind=_kind(kind),
            seed=seed,
            shard_leaves=parse_count(shard, "leaves") if shard else None,
            on_progress=display,
        )
    say(
        f"{done.leaves:,} leaves in {done.seconds:.0f} s; "
        f"{done.in_range:,} tokens seen in {within}; all of it is in {store or default_store()}"
    )


@truth.command()
def show(
    where: WhereArgument = None,
    within: RangeOption = "1e-7:1e-4",
    as_json: JsonOption = False,
) -> None:
    """What truth there is, and how well it is known.

    Example: [bold]longshot truth show ~/.local/share/longshot/truth.sqlite[/]
    """
    from longshot.truth.summary import HEADER, row

    found = _summaries(where, within)
    if as_json:
        typer.echo(json.dumps([asdict(summary) for summary in found], indent=2))
        return
    there = " and ".join(map(str, places(where)))
    table = Table(*HEADER, title=visible(f"truth in {there}, range {within}"))
    for summary in found:
        table.add_row(*row(summary))
    console.print(table)


@truth.command("table")
def table_(where: WhereArgument = None, within: RangeOption = "1e-7:1e-4") -> None:
    """The same as a Markdown table, as `docs/truth.md` has it."""
    from longshot.truth.summary import markdown

    typer.echo(markdown(_summaries(where, within)))


@truth.command()
def merge(
    into: Annotated[Path, typer.Argument(help="The store that takes over.")],
    stores: Annotated[list[Path], typer.Argument(help="The stores to take from.")],
) -> None:
    """Put several stores' shards into one; each store goes in whole or not at all."""
    from longshot.truth.store import Store

    with Store(into, create=True) as target:
        for path in stores:
            with Store(path) as source:
                added, known = target.merge(source)
            say(f"{path}: {added} shards added, {known} were there already")


@truth.command("import")
def import_(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A table of ours, or the paper's frequencies32-DIST.pt; "
            "without one, it is fetched from the authors' bucket."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Whose truth a paper's file is.")] = None,
    inputs: Annotated[str | None, typer.Option(help="What to fetch from the bucket.")] = None,
    corpus: CorpusOption = None,
    store: StoreOption = None,
) -> None:
    """Bring a table, or the paper's published truth, into a store.

    Example: [bold]longshot truth import frequencies32-hex.pt --model gelu-1l[/]
    """
    from longshot.estimate import Cell
    from longshot.inputs import load_inputs
    from longshot.models import load_model
    from longshot.truth.paper import import_from_bucket, import_paper, paper_inputs
    from longshot.truth.store import Store
    from longshot.truth.tables import default_store, read_table

    if file is not None and not file.is_file():
        raise LongshotError(f"There is no file {file}.")
    if file is not None and file.suffix == ".safetensors":
        name, shards, pieces = read_table(file)
    else:
        if model is None or (file is None and inputs is None):
            raise LongshotError("Say whose truth it is: --model M, and --inputs I without a file.")
        language_model = load_model(model)
        wanted = inputs or paper_inputs(file or Path())[0]
        name = Cell(language_model, load_inputs(wanted, language_model, corpus)).key
        shards = import_paper(file, name) if file else import_from_bucket(model, name)
        pieces = []
    with Store(store or default_store(), create=True) as target:
        for shard in shards:
            target.add(name, shard)
        for piece in pieces:
            target.add_piece(name, piece)
    leaves = sum(shard.tally.leaves for shard in shards)
    say(f"{name}: {leaves:,} leaves are now in {store or default_store()}")


@truth.command()
def export(
    store: StoreOption = None,
    to: Annotated[Path, typer.Option(help="The folder of tables.")] = Path("truth"),
) -> None:
    """Write each cell of a store as a small table, as the package ships them."""
    from longshot.truth.store import Store
    from longshot.truth.tables import default_store, making_command, table_path, write_table

    with Store(store or default_store()) as source:
        for name in source.cells():
            path, pieces = table_path(name, to), source.pieces(name)
            command = making_command(name, source.each_shard(name), pieces)
            write_table(path, name, source.each_shard(name), command, pieces)
            say(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def cells_of(models: str, inputs: str, corpus: list[str] | None) -> list[Cell]:
    """Every pair of the named models and inputs."""
    from longshot.estimate import Cell
    from longshot.inputs import load_inputs
    from longshot.models import load_model

    names = list(ZOO_NAMES) if models == "all" else models.split(",")
    wanted = list(INPUTS) if inputs == "all" else inputs.split(",")
    loaded = [load_model(name) for name in names]
    return [Cell(model, load_inputs(name, model, corpus)) for model in loaded for name in wanted]


def _kind(name: str) -> Kind:
    from longshot.truth.tally import KINDS

    for kind in KINDS:
        if kind == name:
            return kind
    raise unknown_name("kind of truth", name, KINDS)


def _summaries(where: Path | None, within: str) -> list[Summary]:
    from longshot.truth.make import parse_range
    from longshot.truth.summary import summarise, truths_at

    low, high = parse_range(within)
    found = (truth for place in places(where) for truth in truths_at(place))
    return [summarise(truth, low, high) for truth in found]


def places(where: Path | None) -> list[Path]:
    """Where truth is looked for: in one place, or in what ships and in the usual store."""
    from longshot.truth.tables import SHIPPED, default_store

    made = [default_store()] if default_store().is_file() else []
    return [where] if where is not None else [SHIPPED, *made]


class _TruthDisplay:
    """A bar on a terminal; elsewhere a line a minute, for a log."""

    def __init__(self) -> None:
        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=1.0)
        self._first: float | None = None
        self._printed = 0.0

    def __enter__(self) -> _TruthDisplay:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, status: TruthStatus) -> None:
        share, seconds = status.share, status.seconds
        self._first = share if self._first is None else self._first
        gained = share - self._first
        left = f"{(1 - share) / gained * seconds / 60:,.0f} min left" if gained > 0 else "…"
        text = f"{status.rate:,.0f} leaves/s, {left}, {status.in_range:,} tokens in range"
        self._bar.update(self._task, completed=share, description=text)
        if not console.is_terminal and time.monotonic() - self._printed > 60:
            self._printed = time.monotonic()
            say(f"{share:.1%}: {text}")
