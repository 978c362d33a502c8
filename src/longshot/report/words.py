"""The answer in a few sentences, computed from the evidence: who wins, where, at what cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from longshot.report.embed import power_of_ten
from longshot.report.evidence import Evidence
from longshot.study.paired import Difference
from longshot.study.scores import LossName, average
from longshot.study.summary import CONSTANT, missing_methods


@dataclass(frozen=True)
class Answer:
    """One sentence that answers, and what qualifies it."""

    headline: str
    details: tuple[str, ...]


def answer(evidence: Evidence, loss: LossName = "is") -> Answer:
    """Which method is closest to the truth, where, and what it costs."""
    if not evidence.methods:
        failed = len(evidence.run.failures)
        why = f"all {failed} attempts failed" if failed else "no estimate was stored yet"
        return Answer(f"There is nothing to compare: {why}.", ())
    winners = {m: w for m in evidence.models if (w := winner(evidence, m, loss)) is not None}
    if not winners:
        return Answer(
            "No method can be judged yet: a loss needs two targets of known truth in a cell.", ()
        )
    details = [_tally(evidence, loss), *_leads(evidence, winners, loss)]
    details += [_halves(evidence, loss), _cost(evidence, winners)]
    details.append(missing_methods(evidence.run))
    if evidence.run.failures:
        details.append(f"{_count(len(evidence.run.failures), 'estimate')} failed and are left out.")
    return Answer(_headline(evidence, winners, loss), tuple(d for d in details if d))


def winner(
    evidence: Evidence, model: str, loss: LossName, inputs: Sequence[str] | None = None
) -> str | None:
    """The method of the lowest mean loss on a model, among those that ran on all of it.

    One that never hit is a constant after the fit, and no candidate.
    """
    found = [m for m in evidence.methods if not _found_nothing(evidence, model, m)]
    candidates = found or evidence.methods
    means = {m: evidence.over_inputs(model, m, loss, inputs) for m in candidates}
    whole = {m: mean.value for m, mean in means.items() if mean.is_whole}
    return min(whole, key=lambda m: whole[m] or 0.0) if whole else None


def _found_nothing(evidence: Evidence, model: str, method: str) -> bool:
    return all(o.score.zeros == o.score.targets for o in evidence.scored(model, method))


def cell_winner(evidence: Evidence, model: str, inputs: str, loss: LossName) -> str | None:
    """The lowest loss of a cell, the baseline included."""
    found = {label: evidence.loss(model, inputs, label, loss) for label in evidence.labels}
    known = {label: value for label, value in found.items() if value is not None}
    return min(known, key=lambda label: known[label]) if known else None


def _headline(evidence: Evidence, winners: dict[str, str], loss: LossName) -> str:
    by_name: dict[str, list[str]] = {}
    for model, name in winners.items():
        ahead = [evidence.difference(m, CONSTANT, [model], loss) for m in evidence.methods]
        better = any(found.is_clear for found in ahead)
        by_name.setdefault(name if better else "", []).append(model)
    if list(by_name) == [""]:
        where = _where(list(winners))
        name = Counter(winners.values()).most_common(1)[0][0]
        return f"No method clearly beats the best constant {where}; {name} comes nearest."
    if len(by_name) == 1:
        (name,) = by_name
        rival = _too_close(evidence, name, list(winners), loss)
        mean = average([evidence.over_inputs(m, name, loss).value for m in winners])[0]
        base = average([evidence.over_inputs(m, CONSTANT, loss).value for m in winners])[0]
        against = "" if base is None else f", against {base:.2f} for the best constant"
        where = _where(list(winners))
        if rival:
            return (
                f"{name} and {rival} are too close to call {where}: a mean loss of {mean:.2f} for "
                f"{name}{against}."
            )
        return f"{name} is closest to the truth {where}: a mean loss of {mean:.2f}{against}."
    none = (
        f"; none clearly beats the best constant on {_list(by_name[''])}" if "" in by_name else ""
    )
    names = [name for name in by_name if name]
    leads = [(a, b) for a in names for b in names if a != b]
    if leads and not any(evidence.difference(a, b, by_name[a], loss).is_clear for a, b in leads):
        where = _list([model for name in names for model in by_name[name]])
        return f"{_list(names)} are too close to call on {where}{none}."
    parts = []
    for name, models in by_name.items():
        rival = _too_close(evidence, name, models, loss) if name else ""
        close = f" (with {rival} too close to call)" if rival else ""
        parts += [f"{name} on {_list(models)}{close}"] if name else []
    return f"Which method is closest to the truth depends on the model: {_list(parts)}{none}."


def _where(models: Sequence[str]) -> str:
    if len(models) == 1:
        return f"on {models[0]}"
    every = "both" if len(models) == 2 else f"all {len(models)}"
    return f"on {every} models"


def _tally(evidence: Evidence, loss: LossName) -> str:
    cells = evidence.run.cells
    counts = Counter(w for c in cells if (w := cell_winner(evidence, *c, loss)))
    total = sum(counts.values())
    if total < 2:
        return ""
    (first, most), *rest = counts.most_common()
    shown = {CONSTANT: "the best constant"}
    others = ", ".join(f"{shown.get(label, label)} {count}" for label, count in rest)
    first = shown.get(first, first)
    return f"Cell by cell, {first} has the lowest loss in {most} of {total}" + (
        f" ({others})." if others else "."
    )


def _too_close(evidence: Evidence, first: str, models: Sequence[str], loss: LossName) -> str:
    """The nearest method that is not clearly behind on some models; or nothing."""
    rivals = _behind(evidence, first, models, loss)
    near = {label: found.mean for label, found in rivals.items() if not found.is_clear}
    return min(near, key=lambda label: near[label] or 0.0, default="")


def _behind(
    evidence: Evidence, first: str, models: Sequence[str], loss: LossName
) -> dict[str, Difference]:
    """How far each other method is behind on these models, if it ran on all that the first did."""
    cells = [cell for cell in evidence.run.cells if cell[0] in models]
    rivals = {}
    for label in evidence.methods:
        whole = all(evidence.loss(*cell, label, loss) is not None for cell in cells)
        if label != first and whole:
            rivals[label] = evidence.difference(first, label, models, loss)
    return rivals


def _leads(evidence: Evidence, winners: dict[str, str], loss: LossName) -> list[str]:
    """The lead over the runner-up, paired by target."""
    if len(set(winners.values())) > 1:
        return []
    first = next(iter(winners.values()))
    rivals = _behind(evidence, first, list(winners), loss)
    if not rivals:
        return []
    second = min(rivals, key=lambda label: rivals[label].mean or 0.0)
    found = rivals[second]
    if found.mean is None or found.error is None:
        return []
    verdict = "" if found.is_clear else ", too close to call"
    lead = f"{found.mean:.2f} ± {found.error:.2f} behind (paired by target)"
    return [f"Next is {second}, {lead}{verdict}."]


def _halves(evidence: Evidence, loss: LossName) -> str:
    """Whether the order holds on the distributions that came after the methods were settled."""
    halves = evidence.halves()
    if not halves:
        return ""
    agree, differ = [], []
    for model in evidence.models:
        first, second = (_better(evidence, model, loss, half) for half in halves.values())
        if first is not None and first == second:
            agree.append(model)
        elif first and second:
            differ.append(f"{model} ({first}, then {second})")
    if not differ and agree:
        return "Development and test distributions name the same winner" + (
            "." if len(agree) == 1 else " on every model."
        )
    if not differ:
        return ""
    return f"Development and test distributions name different winners on {_list(differ)}."


def _better(evidence: Evidence, model: str, loss: LossName, inputs: Sequence[str]) -> str | None:
    """The winner on some distributions, if it beats the constant there."""
    name = winner(evidence, model, loss, inputs)
    if name is None:
        return None
    mean = evidence.over_inputs(model, name, loss, inputs).value
    base = evidence.over_inputs(model, CONSTANT, loss, inputs).value
    return name if base is None or (mean is not None and mean < base) else "no method"


def _cost(evidence: Evidence, winners: dict[str, str]) -> str:
    parts = []
    for name in dict.fromkeys(winners.values()):
        model = [m for m, w in winners.items() if w == name][-1]
        spent = evidence.spent(model, name, "alone")
        if spent:
            parts.append(
                f"{name} spends {spent.seconds:.2g} s and {power_of_ten(spent.macs)} "
                f"multiply-accumulates on {model}"
            )
    return f"For one target asked alone, {_list(parts)}." if parts else ""


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
