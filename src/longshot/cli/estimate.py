"""`longshot estimate`: one question, one panel. `longshot methods`: who can answer it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.markup import escape
from rich.panel import Panel
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from longshot.cli.app import (
    BudgetOption,
    JsonOption,
    SeedOption,
    app,
    console,
    some_inputs,
    some_methods,
    some_models,
)
from longshot.cli.asked import Asked
from longshot.errors import LongshotError, visible
from longshot.names import DEFAULT_BUDGET
from longshot.quantities import parse_count

if TYPE_CHECKING:
    from longshot.estimate import Estimate, Problem
    from longshot.methods import Method

Setting = str | int | float | None


@app.command()
def estimate(
    model: Annotated[
        str, typer.Option(autocompletion=some_models, help="A model's name or path.")
    ] = "mini-2l",
    inputs: Annotated[
        str,
        typer.Option(autocompletion=some_inputs, help="A distribution's name, or a .toml file."),
    ] = "camel",
    target: Annotated[
        list[str] | None,
        typer.Option(help="The text of a token, or #ID; given several times: any of them."),
    ] = None,
    continuation: Annotated[
        str | None, typer.Option(help="Instead of a target: the greedy continuation is this text.")
    ] = None,
    matches: Annotated[
        str | None, typer.Option(help="Instead: this regular expression is found in its text.")
    ] = None,
    judge_prompt: Annotated[
        str | None,
        typer.Option(help="Instead: a judge that reads {output} in this text, or .txt, says YES."),
    ] = None,
    within: Annotated[
        int | None,
        typer.Option("--within", "--tokens", help="Of the text that is read: 8 unless given."),
    ] = None,
    climb: Annotated[
        list[str] | None, typer.Option(help="A text that --matches accepts, to climb towards.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Outputs are sampled at it rather than greedy.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(autocompletion=some_models, help="A model; the one that is asked if none."),
    ] = None,
    judge_chat: Annotated[
        bool, typer.Option("--judge-chat", help="The judge is a chat model: ask it as a user.")
    ] = False,
    judge_examples: Annotated[
        str | None,
        typer.Option(help="A table of text and bad (true or false): the judge's errors are told."),
    ] = None,
    method: Annotated[
        str, typer.Option(autocompletion=some_methods, help="See longshot methods.")
    ] = "auto",
    budget: BudgetOption = str(DEFAULT_BUDGET),
    seed: SeedOption = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the method: temperature=0.5; several times."),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="Ask so many times with other seeds, to check oneself.")
    ] = 1,
    corpus: Annotated[list[str] | None, typer.Option(help="See longshot inputs.")] = None,
    as_json: JsonOption = False,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page that shows which tokens mattered.")
    ] = None,
) -> None:
    """Estimate how likely a target is.

    Example: [bold]longshot estimate --target ail[/]

    Sampled: [bold]longshot estimate --target ail --temperature 0.8[/]

    Judged: [bold]longshot estimate --judge mini-4l --judge-prompt "{output} is it? " --tokens 4[/]
    """
    asked = Asked(
        target or (), continuation, matches, judge_prompt, within, climb or (), temperature,
        judge, judge_examples, judge_chat,
    )  # fmt: skip
    asked.check()
    calls = parse_count(budget)
    from longshot.estimate import Problem
    from longshot.events import as_event
    from longshot.files import try_place, write_whole
    from longshot.inputs import load_inputs
    from longshot.methods import make_method
    from longshot.models import load_model
    from longshot.report.exports import estimate_json
    from longshot.report.question import question_page

    if html is not None:
        try_place(html, "page")
    language_model = load_model(model)
    distribution = load_inputs(inputs, language_model, corpus)
    event = as_event(asked.event(), language_model)
    problem = Problem(language_model, distribution, event)
    chosen = make_method(method, **dict(_setting(s) for s in settings or []))
    answers = [ask(problem, chosen, calls, seed + i, quiet=as_json) for i in range(repeat)]
    if as_json:
        plain = [estimate_json(problem, answer) for answer in answers]
        typer.echo(json.dumps(plain if repeat > 1 else plain[0], indent=2, allow_nan=False))
    else:
        title = f"{event.show(language_model)} after {distribution.name} on {model}"
        console.print(Panel(_body(answers[0]), title=Text(visible(title)), expand=False))
    if repeat > 1 and not as_json:
        rows = {f"seed {answer.seed}": answer for answer in answers}
        console.print(side_by_side(rows, "the same question, other seeds"))
    if html is not None:
        write_whole(html, question_page(problem, answers[0]), "page")


def ask(problem: Problem, method: Method, budget: int, seed: int, quiet: bool = False) -> Estimate:
    """One answer, with a bar; Ctrl-C gives what a method that works in rounds knows by then."""
    from longshot.api import estimate as estimate_one
    from longshot.api import estimate_steps

    known: Estimate | None = None
    with Progress(console=console, transient=True, disable=quiet) as progress:
        bar = progress.add_task(escape(visible(method.name)), total=1.0)
        if not method.works_in_rounds:
            return estimate_one(
                problem.model, problem.inputs, problem.event,
                method=method, budget=budget, seed=seed,
                progress=lambda share: progress.update(bar, completed=share),
            )  # fmt: skip
        try:
            for answer in estimate_steps(
                problem.model, problem.inputs, problem.event,
                method=method, budget=budget, seed=seed,
                progress=lambda share: progress.update(bar, completed=share),
            ):  # fmt: skip
                known = answer
        except KeyboardInterrupt:
            if known is None:
                raise
            stopped = "It was stopped before it was done."
            known = replace(known, warnings=(*known.warnings, stopped))
    assert known is not None
    return known


def side_by_side(answers: Mapping[str, Estimate], title: str) -> Table:
    """Several answers to one question, a line each."""
    from longshot.report.embed import in_words

    table = Table("", "probability", "95% interval", "calls", "seconds", title=title)
    for name, answer in answers.items():
        low, high = answer.interval
        interval = f"{low:.2g} … {high:.2g}" if answer.is_two_sided else f"at most {high:.2g}"
        spent = answer.cost + answer.shared_cost
        calls = f"{spent.forwards}" + (f" + {spent.backwards} back" if spent.backwards else "")
        shown = in_words(answer.log_probability)
        table.add_row(Text(visible(name)), shown, interval, calls, f"{spent.seconds:.1f}")
    return table


def _setting(text: str) -> tuple[str, Setting]:
    name, equals, value = text.partition("=")
    if not equals:
        raise LongshotError(f"--set takes NAME=VALUE, such as temperature=0.5, not {text!r}.")
    for read in (int, float):
        try:
            return name, read(value)
        except ValueError:
            continue
    return name, None if value.lower() == "none" else value


def _body(answer: Estimate) -> Group:
    """What the panel says, the answer first."""
    from longshot.report.embed import in_words

    lines = [Text(f"probability  {in_words(answer.log_probability)}", style="bold")]
    low, high = answer.interval
    if answer.standard_error == 0:
        lines.append(Text("error        none: every input was run"))
    elif answer.is_two_sided:
        lines.append(Text(f"95% interval {low:.2g} … {high:.2g}"))
    elif not high:
        lines.append(Text("95% interval below the smallest number there is"))
    elif high < 1:
        lines.append(Text(f"upper bound  {high:.2g} (95%)"))
    if answer.no_interval:
        lines.append(Text(f"no interval  {answer.no_interval}"))
    spent = answer.cost + answer.shared_cost
    details = [f"{answer.hits} hits" if answer.hits is not None else ""]
    if answer.effective_sample_size is not None:
        details.append(f"worth {answer.effective_sample_size:.1f} equal ones")
    if answer.acceptance_rate is not None:
        details.append(f"acceptance {answer.acceptance_rate:.0%}")
    lines += [
        Text(f"method       {answer.method} {dict(answer.settings)}, seed {answer.seed}"),
        Text(f"samples      {answer.samples}: {', '.join(d for d in details if d)}"),
        Text(
            f"cost         {spent.forwards} forwards, {spent.backwards} backwards, "
            f"{spent.macs:.2g} multiply-accumulates, {spent.seconds:.1f} s"
        ),
    ]
    lines += [Text(line) for line in _judged(answer)]
    if answer.explanation:
        lines.append(Text(f"how          {answer.explanation}"))
    lines += [Text(f"warning      {warning}", style="yellow") for warning in answer.warnings]
    for witness in answer.witnesses[:3]:
        lines.append(Text(f"witness      {witness.text!r}", style="green"))
    return Group(*lines)


def _judged(answer: Estimate) -> list[str]:
    """What a judge has to say of itself."""
    known, lines = answer.statistics, []
    if "could_not_tell" in known:
        lines.append(f"judge        could not tell {known['could_not_tell']:.1%} of the outputs")
    if "judge_finds" in known:
        lines[-1] += (
            f"; of the examples it finds {known['judge_finds']:.0%} of the bad and accuses "
            f"{known['judge_accuses']:.0%} of the good"
        )
    if "corrected" in known:
        low, high = known["corrected_low"], known["corrected_high"]
        lines.append(f"corrected    {known['corrected']:.2g} ({low:.2g} … {high:.2g})")
    return lines


@app.command()
def methods(
    as_json: JsonOption = False,
) -> None:
    """List the methods and their settings.

    Example: [bold]longshot methods[/]
    """
    from longshot.methods import METHODS, load_plugins

    table = Table("method", "what it does", "settings", title="methods")
    rows = []
    load_plugins()
    for name, method in sorted(METHODS.items()):
        summary = (method.__doc__ or "").splitlines()[0]
        defaults = {f.name: f.default for f in fields(method) if f.default is not MISSING}
        rows.append({"name": name, "summary": summary, "settings": defaults})
        shown = ", ".join(f"{key}={value}" for key, value in defaults.items())
        table.add_row(name, Text(summary), Text(shown))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        console.print(table)
