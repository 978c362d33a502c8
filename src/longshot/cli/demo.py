"""`longshot demo`: a shipped model, a distribution, and what comes out of it."""

from __future__ import annotations

from typing import Annotated

import torch
import typer
from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from torch import Tensor

from longshot.cli.app import app, console
from longshot.evaluate import activations, winners
from longshot.inputs import load_inputs
from longshot.models import Model, load_model

BLOCK = 1024  # inputs between two steps of the progress bar
SHOWN = 8


@app.command()
def demo(
    model: Annotated[str, typer.Option(help="A model's name or path.")] = "mini-2l",
    inputs: Annotated[str, typer.Option(help="What it reads: a name or a template.")] = "camel",
    samples: Annotated[int, typer.Option(min=1, help="How many inputs to draw.")] = 2**16,
    seed: Annotated[int, typer.Option(help="The seed of the draws.")] = 0,
) -> None:
    """Draw inputs, run a shipped model on them, and show its most and its least common outputs.

    Example: [bold]longshot demo --model mini-4l --inputs english[/]
    """
    torch.set_num_threads(1)  # products this small lose by sharing, on a busy machine badly
    language_model = load_model(model)
    distribution = load_inputs(inputs, language_model)
    generator = torch.Generator().manual_seed(seed)
    counts = torch.zeros(language_model.vocab_size, dtype=torch.int64)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(f"{language_model.name} reads {distribution.name}", total=samples)
        for start in range(0, samples, BLOCK):
            tokens = distribution.sample(min(BLOCK, samples - start), generator)
            won = winners(language_model, activations(language_model, tokens)).token
            counts += torch.bincount(won[won >= 0], minlength=len(counts))  # −1 is a tie
            progress.advance(task, len(tokens))
    console.print(_table(language_model, counts, samples))
    never = int((counts == 0).sum())
    console.print(
        f"{never:,} of {len(counts):,} tokens were never the output. In {samples:,} inputs, one of "
        f"probability below {0.5 / samples:.0e} is more likely missed than seen."
    )


def _table(model: Model, counts: Tensor, samples: int) -> Table:
    """The tokens that won most often beside those that won least often."""
    ranked = counts.argsort(descending=True, stable=True)
    seen = ranked[counts[ranked] > 0]
    table = Table(title=f"{len(seen):,} different outputs in {samples:,} inputs")
    for heading in ("most common", "rarest seen"):
        table.add_column(heading)
        table.add_column("times", justify="right")
        table.add_column("share", justify="right")
    for common, rare in zip(seen[:SHOWN].tolist(), seen.flip(0)[:SHOWN].tolist(), strict=True):
        cells: list[Text | str] = []  # Text, because a token may look like rich's markup
        for token in (common, rare):
            times = int(counts[token])
            cells += [Text(model.tokenizer.show(token)), f"{times:,}", f"{times / samples:.1e}"]
        table.add_row(*cells)
    return table
