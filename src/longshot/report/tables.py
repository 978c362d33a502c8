"""Every table of a report, as grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from longshot.report.embed import power_of_ten
from longshot.report.evidence import LOSS_TITLES, Evidence, LossName, Mean, Outcome
from longshot.report.grids import Entry, Grid
from longshot.study.scores import average

NONE = "–"


def tables(evidence: Evidence) -> list[Grid]:
    """All that the run has something to say about."""
    if not evidence.outcomes:
        return []
    grids = [summary(evidence, loss) for loss in LOSS_TITLES]
    grids += [losses(evidence, m, loss) for loss in LOSS_TITLES for m in evidence.models]
    if evidence.halves():
        grids += [halves(evidence, loss) for loss in LOSS_TITLES]
    if evidence.methods:
        grids += [cost(evidence), intervals(evidence)]
    if evidence.run.tuned:
        grids.append(temperatures(evidence))
    return grids


def number(value: float | None, digits: int = 3) -> str:
    """Fixed digits, or a dash."""
    return NONE if value is None else f"{value:.{digits}f}"


def _loss_entries(means: Mapping[str, Mean]) -> list[Entry]:
    """One row of losses with the best in bold: among those that are whole."""
    whole = [mean.value for mean in means.values() if mean.is_whole and mean.value is not None]
    lowest = min(whole, default=None)
    entries = []
    for mean in means.values():
        beside = "" if mean.error is None else f"±{mean.error:.2f}"
        if mean.value is not None and not mean.is_whole:
            beside = f"{beside} ({mean.cells} of {mean.wanted})".strip()
        best = mean.is_whole and mean.value == lowest
        entries.append(Entry(number(mean.value), mean.value, beside, best))
    return entries


def _cell_mean(outcome: Outcome | None, loss: LossName) -> Mean:
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
                Entry(name),
                *_loss_entries({label: _cell_mean(o, loss) for label, o in found.items()}),
                Entry(number(floors[-1]), floors[-1]),
                Entry(str(base.score.targets) if base else "0", base.score.targets if base else 0),
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
        title=f"{_capital(LOSS_TITLES[loss])} on {model}",
        note="Leave-one-out after the fit; lower is better, the best in bold. ± is the standard "
        "error over targets, of an average over distributions. The noise floor is what the "
        "truth's own error costs a perfect estimate.",
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
) -> tuple[Entry, ...]:
    means = {label: evidence.over_inputs(model, label, loss, inputs) for label in evidence.labels}
    floor = average([floors[i] for i in inputs])[0]
    return (Entry(name), *_loss_entries(means), Entry(number(floor), floor), Entry(""))


def summary(evidence: Evidence, loss: LossName) -> Grid:
    """The averages of every model."""
    rows = []
    for model in evidence.models:
        means = {label: evidence.over_inputs(model, label, loss) for label in evidence.labels}
        floors = [o.floor(loss) for o in evidence.outcomes.values() if o.model == model]
        floor = average(floors)[0]
        rows.append((Entry(model), *_loss_entries(means), Entry(number(floor), floor)))
    return Grid(
        name=f"summary-{loss}",
        title=f"{_capital(LOSS_TITLES[loss])}, average over distributions",
        note="± is the standard error over distributions; the best in bold.",
        headings=("model", *evidence.labels, "noise floor"),
        rows=tuple(rows),
    )


def halves(evidence: Evidence, loss: LossName) -> Grid:
    """Each model's averages over the two halves of the distributions, apart."""
    rows = []
    for model in evidence.models:
        for name, half in evidence.halves().items():
            means = {
                label: evidence.over_inputs(model, label, loss, half) for label in evidence.labels
            }
            rows.append((Entry(model), Entry(name), *_loss_entries(means)))
    return Grid(
        name=f"halves-{loss}",
        title=f"{_capital(LOSS_TITLES[loss])}, development and test distributions apart",
        note="The paper's methods were settled on hex, camel, colon and if (development); caps, "
        "english, spanish and icl came after (test).",
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
                    Entry(model),
                    Entry(label),
                    Entry(number(mean.value), mean.value),
                    Entry(f"{alone.forwards:,.0f}", alone.forwards),
                    Entry(f"{alone.backwards:,.0f}", alone.backwards),
                    Entry(power_of_ten(alone.macs), alone.macs),
                    Entry(f"{alone.seconds:.2g}", alone.seconds),
                    Entry(power_of_ten(each.macs), each.macs),
                    Entry(f"{each.seconds:.2g}", each.seconds),
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


def intervals(evidence: Evidence) -> Grid:
    """How often the 95% intervals cover the truth, how often there is one, and what had no hit."""
    rows = []
    for model in evidence.models:
        for label in evidence.methods:
            found = [evidence.outcome(model, i, label) for i in evidence.cell_inputs(model)]
            tally = interval_tally([o for o in found if o])
            if not tally.targets:
                continue
            share = tally.covered / tally.given if tally.given else None
            rows.append(
                (
                    Entry(model),
                    Entry(label),
                    Entry(f"{tally.targets}", tally.targets),
                    Entry(f"{tally.zeros}", tally.zeros),
                    Entry(f"{tally.given}", tally.given),
                    Entry(NONE if share is None else f"{share:.0%}", share),
                )
            )
    return Grid(
        name="intervals",
        title="Do the 95% intervals cover the truth?",
        note="Each interval is widened for the truth's own error. No hit: estimates of zero. "
        "GLD and QLD extrapolate and give no interval.",
        headings=("model", "method", "targets", "no hit", "intervals", "cover the truth"),
        rows=tuple(rows),
    )


class IntervalTally(NamedTuple):
    """Targets, estimates of zero, intervals, and those that cover the truth."""

    targets: int
    zeros: int
    given: int
    covered: int


def interval_tally(outcomes: Sequence[Outcome]) -> IntervalTally:
    """The counts behind the shares of some outcomes."""
    counts = [(0, 0, 0, 0)]
    for score in (outcome.score for outcome in outcomes):
        given = round((score.intervals or 0.0) * score.targets)
        covered = round((score.coverage or 0.0) * given)
        counts.append((score.targets, round((score.zeros or 0.0) * score.targets), given, covered))
    return IntervalTally(*(sum(column) for column in zip(*counts, strict=True)))


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
        entries = (Entry(NONE) if t is None else Entry(f"{t[0]:.2f}", t[0]) for t in found)
        rows.append((Entry(name), *entries))
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
