"""`longshot inputs`: the distributions, and what one of them looks like."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from longshot.cli.app import JsonOption, SeedOption, app, console, some_inputs, some_models
from longshot.errors import LongshotError, visible

if TYPE_CHECKING:
    from longshot.inputs import Inputs, PositionSummary, Product
    from longshot.models import Model, Tokenizer

WHO = "longshot inputs"


@app.command()
def inputs(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="show NAME",
            autocompletion=lambda incomplete: [
                *(["show"] if "show".startswith(incomplete) else []),
                *some_inputs(incomplete),
            ],
            help="Draw from one of them instead of listing all.",
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Show a template instead of a name.")] = None,
    model: Annotated[
        str, typer.Option(autocompletion=some_models, help="Whose tokens the inputs are made of.")
    ] = "mini-2l",
    number: Annotated[
        int, typer.Option("-n", min=0, max=10**5, help="How many inputs to draw.")
    ] = 5,
    seed: SeedOption = 0,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            help="A text to count token frequencies in: FILE, LANGUAGE=FILE, "
            "hf-dataset:REPOSITORY:CONFIGURATION, or 'paper'; may be given several times."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the distributions of inputs, or draw from one and describe its positions.

    Examples: [bold]longshot inputs[/], [bold]longshot inputs show camel --model mini-2l -n 3[/]
    """
    from longshot.inputs import load_inputs
    from longshot.models import load_model

    match what or [], file:
        case [], None:
            _list(load_model(model), corpus, as_json)
        case (["show", name], None):
            shown = load_model(model)
            _show(load_inputs(name, shown, corpus), shown, number, seed, as_json)
        case ["show"], Path(suffix=".toml"):
            shown = load_model(model)
            _show(load_inputs(file, shown, corpus), shown, number, seed, as_json)
        case _:
            raise LongshotError(
                "Write longshot inputs, or longshot inputs show NAME, "
                "or longshot inputs show --file TEMPLATE.toml."
            )


def _list(model: Model, corpus: list[str] | None, as_json: bool) -> None:
    from longshot.inputs import CATALOGUE, as_product, load_inputs

    table = Table(
        "name", "what it is", "tokens", "random", title=visible(f"inputs for {model.name}")
    )
    rows: list[dict[str, object]] = []
    for name, entry in CATALOGUE.items():
        row: dict[str, object] = {"name": name, "summary": entry.summary}
        try:
            inputs = as_product(load_inputs(name, model, corpus), WHO)
        except LongshotError as error:  # one that needs a corpus hides none of the others
            rows.append(row | {"problem": str(error)})
            table.add_row(name, Text(f"{entry.summary}\n{error}"), "–", "–")
        else:
            free = len(inputs.free_positions)
            rows.append(row | {"length": inputs.length, "random_positions": free})
            table.add_row(name, Text(entry.summary), str(inputs.length), str(free))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        console.print(table)


def _show(inputs: Inputs, model: Model, number: int, seed: int, as_json: bool) -> None:
    from torch import Generator

    from longshot.inputs import as_finite, as_product, is_finite, is_product

    padded = inputs.sample(number, Generator().manual_seed(seed)).tolist()
    drawn = [[token for token in row if token >= 0] for row in padded]
    product = as_product(inputs, WHO) if is_product(inputs) else None
    if as_json:
        typer.echo(_json(inputs, product, drawn, model.tokenizer))
        return
    if product is not None:
        bits = sum(summary.entropy_bits for summary in product.describe())
        what = f"{len(product.free_positions)} of them random, {bits:.1f} bits an input"
    else:
        what = "at most"
        if is_finite(inputs):
            what += f", {as_finite(inputs, WHO).count} inputs in all"
    headline = f"{inputs.name} for {model.name}: {inputs.length} tokens, {what}"
    headline = headline.replace("tokens, at most", "tokens at most")
    console.print(Text(visible(headline), style="bold"))
    for tokens in drawn:
        console.print(_coloured(tokens, model.tokenizer), soft_wrap=True)
    if product is not None:
        console.print(_position_table(product.describe(), model.tokenizer))


def _coloured(tokens: list[int], tokenizer: Tokenizer) -> Text:
    """Tokens on alternating backgrounds, or between bars where there is no colour."""
    line = Text()
    for i, token in enumerate(tokens):
        if console.color_system is None and i:
            line.append("|")
        line.append(_visible(token, tokenizer), style=("black on cyan", "black on yellow")[i % 2])
    return line


def _visible(token: int, tokenizer: Tokenizer) -> str:
    """A token's text on one line: what does not print is escaped."""
    text = tokenizer.texts[token]
    if text is None:
        return tokenizer.show(token)
    return visible(text)


def _position_table(summaries: tuple[PositionSummary, ...], tokenizer: Tokenizer) -> Table:
    table = Table("position", "support", "entropy (bits)", "most likely tokens")
    for where, summary in _folded(summaries):
        if summary.fixed is not None:
            table.add_row(where, "fixed", "0", Text(tokenizer.show(summary.fixed)))
            continue
        shown = (f"{tokenizer.show(token)} {p:.1%}" for token, p in summary.likeliest)
        table.add_row(
            where, str(summary.size), f"{summary.entropy_bits:.2f}", Text("  ".join(shown))
        )
    return table


def _folded(summaries: tuple[PositionSummary, ...]) -> Iterator[tuple[str, PositionSummary]]:
    """Runs of positions that are described alike, each as one line."""
    for _, run in groupby(summaries, key=lambda s: (s.size, s.entropy_bits, s.likeliest)):
        first, *rest = run
        yield f"{first.position}–{rest[-1].position}" if rest else str(first.position), first


def _json(
    inputs: Inputs, product: Product | None, drawn: list[list[int]], tokenizer: Tokenizer
) -> str:
    known: dict[str, object] = {
        "name": inputs.name,
        "fingerprint": inputs.fingerprint,
        "length": inputs.length,
    }
    if product is not None:
        known["free_positions"] = product.free_positions
        known["positions"] = [asdict(summary) for summary in product.describe()]
    samples = [{"tokens": tokens, "text": tokenizer.decode(tokens)} for tokens in drawn]
    return json.dumps(known | {"samples": samples}, indent=2)
