"""One question as a page: the estimate, its witnesses, and which of their tokens mattered."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

from longshot.estimate import Estimate, Problem, Witness
from longshot.evaluate import Evaluator, Tails
from longshot.inputs import as_product, is_product
from longshot.models import Model
from longshot.report.embed import fill, in_words, power_of_ten, read_asset, unbroken

REDRAWN = 16
_UNSEEN = re.compile("[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def question_page(problem: Problem, answer: Estimate) -> str:
    """The whole page of one estimate."""
    model, inputs = problem.model, problem.inputs
    title = f"{problem.event.show(model)} after {inputs.name} on {model.name}"
    scores = token_scores(problem, answer.witnesses)
    return fill(
        "question.html",
        {
            "TITLE": html.escape(_visible(title)),
            "EVENT": html.escape(_visible(problem.event.show(model))),
            "WHERE": unbroken(_visible(f"after {inputs.name} on {model.name}")),
            "PROBABILITY": html.escape(_headline(answer)),
            "INTERVAL": html.escape(_interval(answer)),
            "BAR": _bar(answer),
            "FACTS": _facts(answer),
            "WARNINGS": "".join(f"<li>{html.escape(w)}</li>" for w in answer.warnings),
            "WITNESSES": _witnesses(problem, answer.witnesses, scores),
            "STYLE": read_asset("page.css") + read_asset("question.css"),
        },
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
        return "95% interval: below the smallest number there is"
    if not answer.is_two_sided:
        bound = answer.interval[1]
        known = f"At most {power_of_ten(bound, 2)} (95%)" if bound < 1 else "No interval"
        reason = (answer.no_interval or "No sample hit.").rstrip(".")
        return f"{known}: {reason[:1].lower()}{reason[1:]}."
    low, high = (power_of_ten(end, 2) if end > 0 else "0" for end in answer.interval)
    return f"95% interval {low} … {high}"


def _bar(answer: Estimate) -> str:
    """The estimate and its interval on a logarithmic axis of whole powers of ten."""
    if answer.probability <= 0 and answer.interval[1] in (0, 1):
        return ""
    ends = [end for end in answer.interval if 0 < end < 1]
    known = [*ends, *([answer.probability] if answer.probability > 0 else [])]
    if not known:
        return ""
    logs = [math.log10(value) for value in known]
    first, last = math.floor(min(logs) - 0.3), math.ceil(max(logs) + 0.3)
    step = max(1, math.ceil((last - first) / 8))

    def x(log: float) -> float:
        return round(12 + 576 * (log - first) / (last - first), 1)

    parts = [
        f'<line class="rule" x1="{x(p)}" y1="6" x2="{x(p)}" y2="34"/>'
        f'<text x="{x(p)}" y="52" text-anchor="middle">{power_of_ten(10.0**p)[4:]}</text>'
        for p in range(first, last + 1, step)
    ]
    if ends:
        left = x(math.log10(ends[0])) if len(ends) == 2 else x(first)
        parts.append(
            f'<line class="span" x1="{left}" y1="20" x2="{x(math.log10(ends[-1]))}" y2="20"/>'
        )
    if answer.probability > 0:
        parts.append(
            f'<circle class="dot" cx="{x(math.log10(answer.probability))}" cy="20" r="7"/>'
        )
    return f'<svg class="bar" viewBox="0 0 600 58" role="img">{"".join(parts)}</svg>'


def _facts(answer: Estimate) -> str:
    spent = answer.cost + answer.shared_cost
    settings = ", ".join(
        f"{name} {value}" for name, value in answer.settings.items() if value is not None
    )
    facts = {
        "method": f"{answer.method} ({settings})" if settings else answer.method,
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
    return f"<ol>{''.join(items)}</ol>"


def _token(model: Model, token: int, score: float | None, largest: float) -> str:
    texts = model.tokenizer.texts
    text = texts[token] if token < len(texts) else None
    shown = html.escape(_visible(model.tokenizer.show(token) if text is None else text))
    if score is None:
        return f'<span class="fixed" title="fixed">{shown}</span>'
    side = "for" if score > 0 else "against"
    weight = abs(score) / largest
    return f'<span class="{side}" style="--w:{weight:.3f}" title="{score:+.2f}">{shown}</span>'


def _visible(text: str) -> str:
    """Line ends and control characters by a sign of their own."""
    signs = {"\n": "⏎", "\t": "⇥"}
    return _UNSEEN.sub(lambda found: signs.get(found[0], f"\\x{ord(found[0]):02x}"), text)
