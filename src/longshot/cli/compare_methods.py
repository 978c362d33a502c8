"""`longshot compare-methods`: one question, all methods that can answer it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from longshot.cli.app import (
    BudgetOption,
    JsonOption,
    SeedOption,
    app,
    console,
    say,
    some_inputs,
    some_models,
)
from longshot.cli.estimate import ask, side_by_side
from longshot.errors import LongshotError
from longshot.names import DEFAULT_BUDGET
from longshot.quantities import parse_count

if TYPE_CHECKING:
    from longshot.estimate import Estimate


@app.command("compare-methods")
def compare_methods(
    model: Annotated[
        str, typer.Argument(autocompletion=some_models, help="A model's name or path.")
    ],
    inputs: Annotated[
        str,
        typer.Argument(autocompletion=some_inputs, help="A distribution's name, or a .toml file."),
    ],
    target: Annotated[str, typer.Argument(help="The text of a token, or #ID.")],
    budget: BudgetOption = str(DEFAULT_BUDGET),
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Ask all methods that can answer a question, each by its defaults.

    Example: [bold]longshot compare-methods mini-2l camel ail --budget 4k[/]
    """
    calls = parse_count(budget)
    from longshot.estimate import Job, Problem
    from longshot.events import as_event
    from longshot.inputs import load_inputs
    from longshot.methods import METHODS, load_plugins
    from longshot.models import load_model
    from longshot.report.exports import estimate_json

    language_model = load_model(model)
    distribution = load_inputs(inputs, language_model)
    token = int(target[1:]) if target[:1] == "#" and target[1:].isdigit() else target
    problem = Problem(language_model, distribution, as_event(token, language_model))
    load_plugins()
    answers: dict[str, Estimate] = {}
    for name in sorted(METHODS):
        method = METHODS[name]()
        try:
            method.check(Job(language_model, distribution, (problem.event,), calls, seed))
        except LongshotError as refusal:
            if not as_json:
                say(f"{name} cannot answer: {refusal}")
            continue
        answers[name] = ask(problem, method, calls, seed, quiet=as_json)
    if as_json:
        plain = {name: estimate_json(problem, answer) for name, answer in answers.items()}
        typer.echo(json.dumps(plain, indent=2, allow_nan=False))
    else:
        title = f"{problem.event.show(language_model)} after {distribution.name} on {model}"
        console.print(side_by_side(answers, title))
