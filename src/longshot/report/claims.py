"""What a run says of the paper's claims, and of the methods that came after it.

A claim that one method is ahead of another *held* if the paired difference of their losses is more
than two of its errors, over targets and over distributions; it did *not* if that of the reverse is;
otherwise it *cannot be told*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from longshot.report.evidence import Evidence
from longshot.report.grids import Field, Grid
from longshot.study.paired import Difference
from longshot.study.scores import LossName, average
from longshot.study.summary import CONSTANT

PAPER = ("gld", "qld", "itgis", "mhis")
HARDLY = 0.1
"""The share of the constant's loss below which a lead over it is hardly one."""
HELD, NOT_HELD, UNKNOWN = "held", "not held", "cannot be told"


class PaperClaim(NamedTuple):
    """What the paper found, whether it was found again, and by which figure."""

    text: str
    verdict: str
    figure: str


def claims(evidence: Evidence) -> Grid | None:
    """The paper's claims; None for a run without its methods."""
    found = list(_claims(evidence))
    if not found:
        return None
    return Grid(
        name="claims",
        title="The paper's claims",
        note="Differences of Itakura–Saito losses after the fit, target by target, ± the larger of "
        "their errors over targets and over distributions. Held: ahead by more than two errors. "
        "Not held: behind by as much.",
        headings=("claim", "here", "figure"),
        rows=tuple(tuple(Field(part) for part in claim) for claim in found),
    )


def beyond(evidence: Evidence) -> Grid | None:
    """The best method that is not the paper's beside its best, on each model."""
    rows = []
    for model in evidence.models:
        best = [_best(evidence, model, names) for names in _families(evidence)]
        if None in best:
            continue
        paper, other = (str(name) for name in best)
        values = [evidence.over_inputs(model, name, "is").value or 0.0 for name in (paper, other)]
        found = evidence.difference(other, paper, [model])
        ratio = values[1] / values[0] if values[0] else None
        rows.append(
            (
                Field(model),
                Field(paper),
                Field(f"{values[0]:.3f}", values[0]),
                Field(other),
                Field(f"{values[1]:.3f}", values[1]),
                Field(_signed(found), found.mean),
                Field("–" if ratio is None else f"{ratio:.2f}", ratio),
            )
        )
    if not rows:
        return None
    return Grid(
        name="beyond",
        title="Beyond the paper",
        note="The lowest mean Itakura–Saito loss among the paper's methods and among all others, "
        "and how much more the first loses than the second, target by target, ± the larger of its "
        "errors over targets and over distributions.",
        headings=("model", "paper's best", "loss", "best other", "loss", "difference", "ratio"),
        rows=tuple(rows),
    )


def _claims(evidence: Evidence) -> Iterator[PaperClaim]:
    labels = _labels(evidence)
    leads = [("itgis", "qld"), ("mhis", "qld"), ("qld", "gld")]
    for first, second in leads:
        if first in labels and second in labels:
            found = evidence.difference(labels[first], labels[second], evidence.models)
            text = f"{first.upper()} is ahead of {second.upper()}"
            yield PaperClaim(text, _verdict(found), _signed(found))
    if "gld" in labels:
        yield _hardly_ahead(evidence, labels["gld"])
    if {"itgis", "mhis"} <= {*labels}:
        if len(evidence.models) > 1:
            yield _by_size(evidence, labels["itgis"], labels["mhis"])
        if len(evidence.inputs) > 1:
            yield _by_inputs(evidence, labels["itgis"], labels["mhis"])
    if {*PAPER} <= {*labels}:
        yield _in_log_space(evidence, [labels[name] for name in PAPER])


def _hardly_ahead(evidence: Evidence, gld: str) -> PaperClaim:
    text = "GLD is hardly ahead of the best constant"
    found = evidence.difference(gld, CONSTANT, evidence.models)
    base = average(evidence.over_inputs(m, CONSTANT, "is").value for m in evidence.models)[0]
    verdict = _verdict(found)
    if verdict == HELD and base and (found.mean or 0.0) > HARDLY * base:
        verdict = NOT_HELD
    return PaperClaim(text, verdict, _signed(found))


def _by_size(evidence: Evidence, itgis: str, mhis: str) -> PaperClaim:
    """Held where both ends are clear, and not where one of them is clearly the other way."""
    text = "ITGIS is ahead on small models, MHIS on large ones"
    smallest, *_, largest = evidence.models
    ends = [
        evidence.difference(itgis, mhis, [smallest]),
        evidence.difference(mhis, itgis, [largest]),
    ]
    verdicts = [_verdict(found) for found in ends]
    verdict = next((v for v in (NOT_HELD, UNKNOWN) if v in verdicts), HELD)
    by_model = (
        f"{model} {_signed(evidence.difference(itgis, mhis, [model]))}" for model in evidence.models
    )
    return PaperClaim(text, verdict, "; ".join(by_model))


def _by_inputs(evidence: Evidence, itgis: str, mhis: str) -> PaperClaim:
    text = "Some distributions favour ITGIS, others MHIS"
    names = [name for name in evidence.inputs if any(i == name for _, i in evidence.run.cells)]
    found = {name: evidence.difference(itgis, mhis, evidence.models, inputs=name) for name in names}
    first = [name for name, lead in found.items() if _verdict(lead) == HELD]
    second = [name for name, lead in found.items() if _verdict(lead) == NOT_HELD]
    figure = f"ITGIS on {_list(first)}; MHIS on {_list(second)}"
    return PaperClaim(text, HELD if first and second else UNKNOWN, figure)


def _in_log_space(evidence: Evidence, labels: Sequence[str]) -> PaperClaim:
    text = "The squared error in log space orders the methods alike"
    orders = [_order(evidence, labels, loss) for loss in ("is", "log")]
    figure = "; in log space ".join(", ".join(order) for order in orders)
    if orders[0] == orders[1]:
        return PaperClaim(text, HELD, figure)
    swapped = [
        (a, b)
        for i, a in enumerate(orders[0])
        for b in orders[0][i + 1 :]
        if orders[1].index(a) > orders[1].index(b)
    ]
    clear = any(
        _verdict(evidence.difference(a, b, evidence.models)) == HELD
        and _verdict(evidence.difference(b, a, evidence.models, loss="log")) == HELD
        for a, b in swapped
    )
    return PaperClaim(text, NOT_HELD if clear else UNKNOWN, figure)


def _order(evidence: Evidence, labels: Sequence[str], loss: LossName) -> list[str]:
    def mean(label: str) -> float:
        found = [evidence.over_inputs(m, label, loss).value for m in evidence.models]
        return average(found)[0] or 0.0

    return sorted(labels, key=mean)


def _families(evidence: Evidence) -> tuple[list[str], list[str]]:
    """The labels of the paper's methods, and all others."""
    names = {label: evidence.run.method_name(label) for label in evidence.methods}
    paper = [label for label, name in names.items() if name in PAPER]
    return paper, [label for label in names if label not in paper]


def _labels(evidence: Evidence) -> dict[str, str]:
    """The first label of each of the paper's methods that ran."""
    found = {evidence.run.method_name(label): label for label in reversed(evidence.methods)}
    return {name: label for name, label in found.items() if name in PAPER}


def _best(evidence: Evidence, model: str, labels: Sequence[str]) -> str | None:
    means = {label: evidence.over_inputs(model, label, "is") for label in labels}
    whole = {label: mean.value or 0.0 for label, mean in means.items() if mean.is_whole}
    return min(whole, key=lambda label: whole[label], default=None)


def _verdict(found: Difference) -> str:
    if found.is_clear:
        return HELD
    reverse = found._replace(mean=None if found.mean is None else -found.mean)
    return NOT_HELD if reverse.is_clear else UNKNOWN


def _signed(found: Difference) -> str:
    if found.mean is None or found.error is None:
        return "–"
    return f"{found.mean:+.2f} ± {max(found.error, found.cell_error or 0.0):.2f}".replace("-", "−")


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none clearly"
