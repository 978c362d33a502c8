"""`longshot models`: what can be loaded by name."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer
from rich.table import Table

from longshot.cli.app import JsonOption, app, console


@app.command()
def models(as_json: JsonOption = False) -> None:
    """List the models that have a name, their size, licence and source.

    A path to a folder, or any causal model of the Hugging Face hub, can be loaded as well.
    """
    from longshot.models import available

    rows = available()
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table("name", "layers", "width", "vocabulary", "licence", "source")
    for row in rows:
        sizes = (str(row.layers), str(row.width), str(row.vocab_size))
        table.add_row(row.name, *sizes, row.licence, row.source)
    console.print(table)
