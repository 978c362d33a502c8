"""`longshot compare-methods`: one question, all methods that can answer it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from longshot.api import DEFAULT_BUDGET
from longshot.cli.app import SeedOption, app, console, say
from longshot.cli.estimate import ask, side_by_side
from longshot.errors import LongshotError
from longshot.estimate import Estimate, Job, Problem
from longshot.events import as_event
from longshot.inputs import load_inputs
from longshot.methods import METHODS, load_plugins
from longshot.models import load_model


@app.command("compare-methods")
def compare_methods(
    model: Annotated[str, typer.Argument(help="A model's name or path.")],
    inputs: Annotated[str, typer.Argument(help="A distribution's name, or a .toml file.")],
    target: Annotated[str, typer.Argument(help="The text of a token, or #ID.")],
    budget: Annotated[int, typer.Option(help="Model calls of each method, at most.")] = (
        DEFAULT_BUDGET
    ),
    seed: SeedOption = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask all methods that can answer a question, each by its defaults.

    Example: [bold]longshot compare-methods mini-2l camel ail --budget 4096[/]
    """
    language_model = load_model(model)
    distribution = load_inputs(inputs, language_model)
    token = int(target[1:]) if target[:1] == "#" and target[1:].isdigit() else target
    problem = Problem(language_model, distribution, as_event(token, language_model))
    load_plugins()
    answers: dict[str, Estimate] = {}
    for name in sorted(METHODS):
        method = METHODS[name]()
        try:
            method.check(Job(language_model, distribution, (problem.event,), budget, seed))
        except LongshotError as refusal:
            if not as_json:
                say(f"{name} cannot answer: {refusal}")
            continue
        answers[name] = ask(problem, method, budget, seed, quiet=as_json)
    if as_json:
        plain = {name: answer.to_dict() for name, answer in answers.items()}
        typer.echo(json.dumps(plain, indent=2))
    else:
        title = f"{problem.event.show(language_model)} after {distribution.name} on {model}"
        console.print(side_by_side(answers, title))
