"""`longshot demo`: a shipped model, a distribution, and what comes out of it."""

from __future__ import annotations

import torch
from rich.progress import track
from rich.table import Table

from longshot.cli.app import app, console
from longshot.inputs import load_inputs
from longshot.models import load_model

BLOCK = 1024


@app.command()
def demo(
    model: str = "mini-2l", inputs: str = "camel", samples: int = 2**16, seed: int = 0
) -> None:
    """Draw inputs, run a shipped model on them, and show its most and its least common outputs.

    Example: [bold]longshot demo --model mini-4l --inputs english[/]
    """
    language_model = load_model(model)
    distribution = load_inputs(inputs, language_model)
    generator = torch.Generator().manual_seed(seed)
    counts = torch.zeros(language_model.vocab_size, dtype=torch.int64)
    for _ in track(range(samples // BLOCK), description=f"{model} on {inputs}", console=console):
        tokens = distribution.sample(BLOCK, generator)
        activation = language_model.network.activation(language_model.embed(tokens))
        logits = activation @ language_model.unembedding + language_model.unembedding_bias
        counts += torch.bincount(logits.argmax(1), minlength=len(counts))
    ranked = counts.argsort(descending=True)
    seen = ranked[counts[ranked] > 0]
    table = Table(title=f"{len(seen)} different outputs in {int(counts.sum()):,} inputs")
    table.add_column("most common")
    table.add_column("share", justify="right")
    table.add_column("rarest seen")
    table.add_column("share", justify="right")
    show, total = language_model.tokenizer.show, int(counts.sum())
    for common, rare in zip(seen[:8].tolist(), seen.flip(0)[:8].tolist(), strict=True):
        table.add_row(
            show(common),
            f"{int(counts[common]) / total:.2%}",
            show(rare),
            f"{int(counts[rare]) / total:.1e}",
        )
    console.print(table)
    console.print(
        f"Sampling sees nothing rarer than about {1 / total:.0e}: "
        f"{language_model.vocab_size - len(seen)} of {language_model.vocab_size} tokens never won."
    )
