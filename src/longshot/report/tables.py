"""Every table of a report, as grids."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from longshot.report.claims import beyond, claims
from longshot.report.embed import power_of_ten
from longshot.report.evidence import LOSS_TITLES, Evidence, Mean
from longshot.report.grids import Field, Grid
from longshot.study.paired import CLOSE, Difference, pairs
from longshot.study.scores import LossName, average, pooled
from longshot.study.summary import CLIPPING, Scored, clipping_note, zeros_note

NONE = "–"


def tables(evidence: Evidence) -> list[Grid]:
    """All that the run has something to say about."""
    if not evidence.outcomes:
        return []
    grids = [summary(evidence, loss) for loss in LOSS_TITLES]
    grids += [grid for grid in (claims(evidence), beyond(evidence)) if grid]
    grids += [losses(evidence, m, loss) for loss in LOSS_TITLES for m in evidence.models]
    if evidence.methods:
        grids += [paired(evidence, m, loss) for loss in LOSS_TITLES for m in evidence.models]
    if evidence.halves():
        grids += [halves(evidence, loss) for loss in LOSS_TITLES]
    if evidence.methods:
        grids += [unfitted(evidence, loss) for loss in LOSS_TITLES]
        grids += [cost(evidence), intervals(evidence)]
    if evidence.run.tuned:
        grids.append(temperatures(evidence))
    return grids


def number(value: float | None, digits: int = 3) -> str:
    """Fixed digits, or a dash."""
    return NONE if value is None else f"{value:.{digits}f}"


def _loss_entries(means: Mapping[str, Mean]) -> list[Field]:
    """One row of losses with the best in bold: among those that are whole."""
    whole = [mean.value for mean in means.values() if mean.is_whole and mean.value is not None]
    lowest = min(whole, default=None)
    entries = []
    for mean in means.values():
        beside = "" if mean.error is None else f"±{mean.error:.2f}"
        if mean.value is not None and not mean.is_whole:
            beside = f"{beside} ({mean.cells} of {mean.wanted})".strip()
        best = mean.is_whole and mean.value == lowest
        entries.append(Field(number(mean.value), mean.value, beside, best))
    return entries


def _cell_mean(outcome: Scored | None, loss: LossName) -> Mean:
    value = outcome.loss(loss) if outcome else None
    error = outcome.loss_error(loss) if outcome and value is not None else None
    return Mean(value, error, int(value is not None), 1)


def losses(evidence: Evidence, model: str, loss: LossName) -> Grid:
    """A model's losses: a row for each distribution, a column for each method."""
    inputs = evidence.cell_inputs(model)
    rows = []
    floors: list[float | None] = []
    for name in inputs:
        found = {label: evidence.outcome(model, name, label) for label in evidence.labels}
        base = next((o for o in found.values() if o), None)
        floors.append(base.floor(loss) if base else None)
        rows.append(
            (
                Field(name),
                *_loss_entries({label: _cell_mean(o, loss) for label, o in found.items()}),
                Field(number(floors[-1]), floors[-1]),
                Field(str(base.score.targets) if base else "0", base.score.targets if base else 0),
            )
        )
    groups = {name: [i for i in half if i in inputs] for name, half in evidence.halves().items()}
    floor_of = dict(zip(inputs, floors, strict=True))
    footer = [
        _average_row(evidence, model, loss, f"average, {name}", half, floor_of)
        for name, half in groups.items()
        if half
    ]
    footer.append(_average_row(evidence, model, loss, "average", inputs, floor_of))
    return Grid(
        name=f"loss-{loss}-{model}",
        loss=loss,
        title=f"{_capital(LOSS_TITLES[loss])} on {model}",
        note="Leave-one-out after the fit; lower is better, the best in bold. ± is the standard "
        "error over targets, of an average over distributions. The noise floor is what the "
        "truth's own error costs a perfect estimate. "
        + clipping_note(evidence.scored(model), loss),
        headings=("distribution", *evidence.labels, "noise floor", "targets"),
        rows=tuple(rows),
        footer=tuple(footer),
        group=model,
    )


def _average_row(
    evidence: Evidence,
    model: str,
    loss: LossName,
    name: str,
    inputs: Sequence[str],
    floors: Mapping[str, float | None],
) -> tuple[Field, ...]:
    means = {label: evidence.over_inputs(model, label, loss, inputs) for label in evidence.labels}
    floor = average([floors[i] for i in inputs])[0]
    return (Field(name), *_loss_entries(means), Field(number(floor), floor), Field(""))


def summary(evidence: Evidence, loss: LossName) -> Grid:
    """The averages of every model."""
    rows = []
    for model in evidence.models:
        means = {label: evidence.over_inputs(model, label, loss) for label in evidence.labels}
        floors = [o.floor(loss) for o in evidence.outcomes.values() if o.model == model]
        floor = average(floors)[0]
        rows.append((Field(model), *_loss_entries(means), Field(number(floor), floor)))
    return Grid(
        name=f"summary-{loss}",
        loss=loss,
        title=f"{_capital(LOSS_TITLES[loss])}, average over distributions",
        note="± is the standard error over distributions; the best in bold. "
        + clipping_note(evidence.scored(), loss),
        headings=("model", *evidence.labels, "noise floor"),
        rows=tuple(rows),
    )


def paired(evidence: Evidence, model: str, loss: LossName) -> Grid:
    """How much more one method loses than another on the same targets of a model."""
    rows = [
        (
            Field(first),
            Field(second),
            _difference(fitted),
            _difference(raw),
            Field(f"{fitted.closer}", fitted.closer),
            Field(f"{fitted.targets}", fitted.targets),
        )
        for first, second, fitted, raw in pairs(evidence.scored(model), loss)
        if fitted.cells or raw.cells
    ]
    return Grid(
        name=f"paired-{loss}-{model}",
        loss=loss,
        title=f"{_capital(LOSS_TITLES[loss])} on {model}: paired differences",
        note="How much more the second method loses than the first, on the same targets: the mean "
        "over distributions of the mean over targets, ± its standard error over targets. In bold: "
        f"more than {CLOSE:g} errors, over targets and over distributions. Without the fit a zero "
        "costs what the best constant loses on its target. Closer on: how many targets the first "
        "loses less on, after the fit.",
        headings=("first", "second", "after the fit", "without", "closer on", "of targets"),
        rows=tuple(rows),
        group=model,
    )


def _difference(found: Difference) -> Field:
    if found.mean is None:
        return Field(NONE)
    beside = "" if found.error is None else f"±{found.error:.2g}"
    clear = found.is_clear or found._replace(mean=-found.mean).is_clear
    return Field(f"{found.mean:.3g}".replace("-", "−"), found.mean, beside, clear)


def halves(evidence: Evidence, loss: LossName) -> Grid:
    """Each model's averages over the two halves of the distributions, apart."""
    rows = []
    for model in evidence.models:
        for name, half in evidence.halves().items():
            means = {
                label: evidence.over_inputs(model, label, loss, half) for label in evidence.labels
            }
            rows.append((Field(model), Field(name), *_loss_entries(means)))
    return Grid(
        name=f"halves-{loss}",
        loss=loss,
        title=f"{_capital(LOSS_TITLES[loss])}, development and test distributions apart",
        note="The paper's methods were settled on hex, camel, colon and if (development); caps, "
        f"english, spanish and icl came after (test). {clipping_note(evidence.scored(), loss)}",
        headings=("model", "half", *evidence.labels),
        rows=tuple(rows),
    )


def cost(evidence: Evidence) -> Grid:
    """What a target costs, asked alone or with all others of its cell."""
    rows = []
    for model in evidence.models:
        for label in evidence.methods:
            alone = evidence.spent(model, label, "alone")
            each = evidence.spent(model, label, "each")
            if alone is None or each is None:
                continue
            mean = evidence.over_inputs(model, label, "is")
            rows.append(
                (
                    Field(model),
                    Field(label),
                    Field(number(mean.value), mean.value),
                    Field(f"{alone.forwards:,.0f}", alone.forwards),
                    Field(f"{alone.backwards:,.0f}", alone.backwards),
                    Field(power_of_ten(alone.macs), alone.macs),
                    Field(f"{alone.seconds:.2g}", alone.seconds),
                    Field(power_of_ten(each.macs), each.macs),
                    Field(f"{each.seconds:.2g}", each.seconds),
                )
            )
    return Grid(
        name="cost",
        title="Cost of a target",
        note="Means over distributions. Alone, a target pays for all its samples; with the others "
        "of its cell it pays its share of the samples that they have in common. Multiply-"
        "accumulates (MACs) are of model and unembedding; seconds are wall time on one machine. "
        "Tuning is not counted.",
        headings=(
            "model", "method", "IS loss", "forwards", "backwards", "MACs alone", "s alone",
            "MACs shared", "s shared",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def unfitted(evidence: Evidence, loss: LossName) -> Grid:
    """What the fit and the bounds of its predictions do for a method, and what it never saw."""
    rows = []
    for model, label in itertools.product(evidence.models, evidence.methods):
        found = [cell.score for cell in evidence.scored(model, label)]
        scores = [score.losses[loss] for score in found]
        clipped, zeros = sum(s.clipped for s in scores), sum(score.zeros for score in found)
        means = (
            average(getattr(s, name) for s in scores)[0]
            for name in ("mean", "unclipped", "raw", "raw_zeros")
        )
        losses = [Field(NONE if mean is None else f"{mean:.3g}", mean) for mean in means]
        counts = (Field(str(n), n) for n in (sum(s.targets for s in found), clipped, zeros))
        rows.append((Field(model), Field(label), *counts, *losses))
    return Grid(
        name=f"unfitted-{loss}",
        loss=loss,
        title=f"{_capital(LOSS_TITLES[loss])} without the bounds, and without the fit",
        note=f"Means over distributions. {CLIPPING}; unclipped, it stays where the fit puts it. "
        + zeros_note(evidence.scored()),
        headings=(
            "model", "method", "targets", "clipped", "no hit", "loss", "unclipped", "no fit",
            "no fit, with zeros",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def intervals(evidence: Evidence) -> Grid:
    """How often the 95% intervals cover the truth, how often there is one, and what had no hit."""
    rows = []
    silent = [
        label
        for label in evidence.methods
        if not any(cell.score.coverage.given for cell in evidence.scored(label=label))
    ]
    for model, label in itertools.product(evidence.models, evidence.methods):
        found = [cell.score for cell in evidence.scored(model, label)]
        targets, zeros = (sum(getattr(s, name) for s in found) for name in ("targets", "zeros"))
        held = pooled(score.coverage for score in found)
        if targets:
            counts = (Field(str(n), n) for n in (targets, zeros, *held))
            share = Field(NONE if held.share is None else f"{held.share:.0%}", held.share)
            rows.append((Field(model), Field(label), *counts, share))
    without = f" No interval at all: {', '.join(silent)}." if silent else ""
    return Grid(
        name="intervals",
        title="Do the 95% intervals cover the truth?",
        note="Counts over all distributions. The arms of each interval are widened in quadrature "
        f"for the truth's own error. No hit: estimates of zero.{without}",
        headings=("model", "method", "targets", "no hit", "intervals", "cover the truth", "share"),
        rows=tuple(rows),
    )


def temperatures(evidence: Evidence) -> Grid:
    """The temperatures that were found, by distribution."""
    tuned = evidence.run.tuned
    labels = [m for m in evidence.run.study["methods"] if any(key[2] == m for key in tuned)]
    columns = [
        (model, label)
        for model in evidence.models
        for label in labels
        if any((model, i, label) in tuned for i in evidence.inputs)
    ]
    rows = []
    for name in evidence.inputs:
        found = [tuned.get((model, name, label)) for model, label in columns]
        entries = (Field(NONE) if t is None else Field(f"{t[0]:.2f}", t[0]) for t in found)
        rows.append((Field(name), *entries))
    return Grid(
        name="temperatures",
        title="Tuned temperatures",
        note="The temperature of the lowest Itakura–Saito loss after an in-sample fit, on tokens "
        "that are never evaluated.",
        headings=("distribution", *(f"{model} {label}" for model, label in columns)),
        rows=tuple(rows),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
