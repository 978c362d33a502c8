"""One question as a page: the estimate, its witnesses, and which of their tokens mattered."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float64
from torch import Tensor

from longshot.errors import LongshotError, visible
from longshot.estimate import Estimate, Problem, Witness
from longshot.evaluate import Evaluator, Tails
from longshot.inputs import as_product, is_product
from longshot.models import Model
from longshot.report.charts import one_estimate
from longshot.report.drawing import Chart, specs
from longshot.report.embed import (
    chart_page,
    figure,
    in_words,
    paragraphs,
    power_of_ten,
    unbroken,
)
from longshot.threads import threads_for
from longshot.truth import load_truth

REDRAWN = 16


def question_page(problem: Problem, answer: Estimate) -> str:
    """The whole page of one estimate, with the shipped truth where there is one."""
    model, inputs = problem.model, problem.inputs
    title = visible(f"{problem.event.show(model)} after {inputs.name} on {model.name}")
    with threads_for(model.width):
        scores = token_scores(problem, answer.witnesses)
    truth = known_truth(problem)
    drawn = {"estimate": partial(estimate_chart, answer, truth)}
    charts = specs(drawn if _has_numbers(answer, truth) else {})
    known = "" if truth is None else f"{power_of_ten(truth[0], 2)} ± {power_of_ten(truth[1])}"
    said = f"The shipped truth, from samples of another kind: {known}." if known else ""
    return chart_page(
        "question",
        title,
        f"""<section id="answer">
<h1><code>{html.escape(visible(problem.event.show(model)))}</code></h1>
<p class="where">{unbroken(visible(f"after {inputs.name} on {model.name}"))}</p>
<p class="probability">{html.escape(_headline(answer))}</p>
<p class="interval">{html.escape(_interval(answer))} {said}</p>
{figure("estimate", "") if charts else ""}
<ul class="warnings">{paragraphs(answer.warnings)}</ul></section>
<section id="witnesses"><h2>Inputs that do it</h2>
{_shading(scores)}{_witnesses(problem, answer.witnesses, scores)}</section>
<section id="facts"><h2>How it was found</h2>
<dl class="facts-list">{_facts(answer)}</dl></section>""",
        "",
        charts,
        ["itgis"],
    )


def known_truth(problem: Problem) -> tuple[float, float] | None:
    """The probability that truth on this machine gives the event's tokens, with its error."""
    kind, _, tokens = problem.event.key.partition(":")
    if kind != "token":
        return None
    try:
        truth = load_truth(problem.model, problem.inputs)
    except LongshotError:
        return None
    chosen = [int(token) for token in tokens.split(",")]
    p, error = truth.probability[chosen].sum(), truth.standard_error[chosen].square().sum().sqrt()
    return (float(p), float(error)) if p > 0 and error < float("inf") else None


def estimate_chart(answer: Estimate, truth: tuple[float, float] | None = None) -> Chart:
    """The estimate, its interval and the truth on one axis."""
    kind = "two-sided" if answer.is_two_sided else "upper bound"
    low, high = answer.interval
    return one_estimate(answer.probability, (low, high) if 0 < high < 1 else None, truth, kind)


def _has_numbers(answer: Estimate, truth: tuple[float, float] | None) -> bool:
    return answer.probability > 0 or 0 < answer.interval[1] < 1 or truth is not None


def _shading(scores: Float64[Tensor, "witness position"]) -> str:
    if not scores.any():
        return ""
    return (
        '<figcaption>Shading says which tokens mattered: they speak <span class="swatch for">'
        '</span> for or <span class="swatch against"></span> against the target. A token\'s score '
        "is how much of the target's lead is lost, on average, when that token alone is drawn anew "
        "from its distribution; the pointer shows it.</figcaption>"
    )


def token_scores(
    problem: Problem, witnesses: Sequence[Witness]
) -> Float64[Tensor, "witness position"]:
    """How much of the event's lead each token of each witness holds.

        s_i = gap(x) − E_{y~p_i} gap(x with y at position i)

    is what redrawing the token costs on average, over `REDRAWN` tokens at the middles of as many
    equal shares of p_i. Zero at fixed positions, and everywhere for an event that has no score or
    inputs whose tokens are not independent.
    """
    model, event = problem.model, problem.event
    scores = torch.zeros(len(witnesses), problem.inputs.length, dtype=torch.float64)
    if not witnesses or not event.can_be_climbed or not is_product(problem.inputs):
        return scores
    inputs = as_product(problem.inputs, "a page")
    tokens = torch.tensor([witness.tokens for witness in witnesses]).repeat_interleave(REDRAWN, 0)
    tails = Tails(Evaluator(model, [event], "gap"), torch.zeros_like(tokens[:, 0]), inputs.length)
    own = tails.whole(tokens, gradient=False).score.double()
    middles = (torch.arange(REDRAWN, dtype=torch.float64) + 0.5) / REDRAWN
    for i in inputs.free_positions:
        p, redrawn = inputs.positions[i], tokens.clone()
        redrawn[:, i] = p.support[p.invert(middles)].repeat(len(witnesses))
        cost = own - tails.changed(redrawn, i, gradient=False).score.double()
        scores[:, i] = cost.view(-1, REDRAWN).mean(1)
        tails.put_back(slice(None))
    return scores


def _headline(answer: Estimate) -> str:
    is_tiny = answer.probability < 1e-300
    return in_words(answer.log_probability) if is_tiny else power_of_ten(answer.probability, 2)


def _interval(answer: Estimate) -> str:
    if answer.interval[1] == 0:
        return "95% interval: below the smallest number there is."
    if not answer.is_two_sided:
        bound = answer.interval[1]
        known = f"At most {power_of_ten(bound, 2)} (95%)" if bound < 1 else "No interval"
        reason = (answer.no_interval or "No sample hit.").rstrip(".")
        return f"{known}: {reason[:1].lower()}{reason[1:]}."
    low, high = (power_of_ten(end, 2) if end > 0 else "0" for end in answer.interval)
    return f"95% interval {low} … {high}."


def _facts(answer: Estimate) -> str:
    spent = answer.cost + answer.shared_cost
    settings = ", ".join(
        f"{name} {value}" for name, value in answer.settings.items() if value is not None
    )
    facts = {
        "method": f"{answer.method} ({settings})" if settings else answer.method,
        "why": answer.explanation or None,
        "budget, seed": f"{answer.budget:,} calls, {answer.seed}",
        "samples": f"{answer.samples:,}",
        "hits": None if answer.hits is None else f"{answer.hits:,}",
        "worth equal ones": _short(answer.effective_sample_size),
        "Pareto k": _short(answer.pareto_k),
        "acceptance": None if answer.acceptance_rate is None else f"{answer.acceptance_rate:.0%}",
        "standard error": _short(answer.standard_error),
        "cost": f"{spent.forwards:,} forwards, {spent.backwards:,} backwards, "
        f"{power_of_ten(spent.macs)} multiply-accumulates, "
        f"{spent.seconds:.2g} s",
    }
    return "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>"
        for name, value in facts.items()
        if value is not None
    )


def _short(value: float | None) -> str | None:
    if value is None or not math.isfinite(value):
        return None
    if 1e3 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value == 0 or 1e-3 <= abs(value) < 1e3 else power_of_ten(value)


def _witnesses(
    problem: Problem, witnesses: Sequence[Witness], scores: Float64[Tensor, "witness position"]
) -> str:
    if not witnesses:
        return "<p>No input that produces the target was found.</p>"
    free = {i for i in range(problem.inputs.length) if scores[:, i].any()}
    largest = max((abs(float(row[i])) for row in scores for i in free), default=0.0) or 1.0
    items = []
    for witness, row in zip(witnesses, scores.tolist(), strict=True):
        spans = [
            _token(problem.model, token, row[i] if i in free else None, largest)
            for i, token in enumerate(witness.tokens)
        ]
        probable = ""
        if witness.log_prob is not None:
            exponent = f"{witness.log_prob / math.log(10):.1f}".replace("-", "−")
            probable = f"probability 10<sup>{exponent}</sup> as an input; "
        items.append(
            f'<li><p class="tokens">{"".join(spans)}</p>'
            f"<p>{probable}the target is ahead by {witness.gap:.2f} in its logit.</p></li>"
        )
    return f'<ol class="witnesses">{"".join(items)}</ol>'


def _token(model: Model, token: int, score: float | None, largest: float) -> str:
    texts = model.tokenizer.texts
    text = texts[token] if token < len(texts) else None
    shown = html.escape(visible(model.tokenizer.show(token) if text is None else text))
    if score is None:
        return f'<span class="fixed" title="fixed">{shown}</span>'
    side = "for" if score > 0 else "against"
    weight = abs(score) / largest
    return f'<span class="{side}" style="--w:{weight:.3f}" title="{score:+.2f}">{shown}</span>'
