"""`longshot look`: what does the model say?"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from longshot.cli.app import JsonOption, SeedOption, app, console, some_inputs, some_models
from longshot.errors import visible
from longshot.names import MOST, SAMPLES

if TYPE_CHECKING:
    from longshot.look import Sayings

SHOWN = 60  # characters of an example


@app.command()
def look(
    model: Annotated[
        str, typer.Argument(autocompletion=some_models, help="A model's name or path.")
    ],
    inputs: Annotated[
        str, typer.Argument(autocompletion=some_inputs, help="A distribution's name, or a file.")
    ],
    tokens: Annotated[int, typer.Option(min=1, help="Of each output.")] = 1,
    most: Annotated[int, typer.Option(help="Inputs that are all run.")] = MOST,
    samples: Annotated[int, typer.Option(min=1, help="Where there are more.")] = SAMPLES,
    rows: Annotated[int, typer.Option(min=1, help="Outputs that are shown.")] = 20,
    seed: SeedOption = 0,
    corpus: Annotated[list[str] | None, typer.Option(help="See longshot inputs.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Look at what a model says before asking how likely something is.

    Example: [bold]longshot look mini-2l camel[/]
    """
    from longshot.inputs import load_inputs
    from longshot.look import look as look_at
    from longshot.models import load_model

    language_model = load_model(model)
    distribution = load_inputs(inputs, language_model, corpus)
    with Progress(console=console, transient=True, disable=as_json) as progress:
        bar = progress.add_task("look", total=1.0)
        found = look_at(
            language_model, distribution, tokens=tokens, most=most, samples=samples, seed=seed,
            progress=lambda share: progress.update(bar, completed=share),
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    how = "all" if found.is_exact else "a sample of"
    title = f"{model} after {how} {found.inputs} inputs {distribution.name}"
    table = Table("output", "probability", "inputs", "for example", title=Text(visible(title)))
    for output in found.outputs[:rows]:
        table.add_row(
            Text(repr(output.text)),
            f"{output.probability:.3g}",
            str(output.seen),
            Text(_end(output.example)),
        )
    console.print(table)
    for line in _rest(found, rows):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _end(text: str) -> str:
    """The end of a text on one line: what is nearest to the output."""
    shown = repr(text)[1:-1]
    return shown if len(shown) <= SHOWN else "…" + shown[-SHOWN:]


def _rest(found: Sayings, rows: int) -> list[str]:
    """What the table does not show."""
    lines = []
    if more := found.outputs[rows:]:
        mass = sum(output.probability for output in more)
        rarest = ", ".join(repr(output.text) for output in more[-5:])
        lines.append(f"{len(more)} more outputs with {mass:.3g} in all; the rarest: {rarest}")
    if not found.is_exact:
        lines.append(f"never seen: about {found.never_seen:.2g} of the probability")
    if found.runners_up:
        near = ", ".join(f"{near.text} ({near.gap:.2g})" for near in found.runners_up)
        lines.append(f"never first, but near it (by how much its logit was behind): {near}")
    return lines
