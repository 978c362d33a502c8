"""What certificates and checks come to: the tables of the docs, and the targets of a study."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from longshot.truth.certificate import APART, Certificate
from longshot.truth.result import Truth
from longshot.truth.tally import Tally

DECADES = (-9, -8, -7, -6)  # 1e-9 … 1e-5
NORMAL = 1.96
LEAST_EXPECTED = 1.0  # plain hits of a token that is compared


def candidate_records(truth: Truth) -> Iterator[dict[str, Any]]:
    """Each candidate as plain values: what is known of it, by whom, at what cost."""
    for found in truth.certificates:
        opinions = {
            name: {
                "log_probability": _finite(opinion.log_probability),
                "relative_error": _finite(opinion.relative_error),
                "macs": opinion.macs,
                "seconds": opinion.seconds,
            }
            for name, opinion in found.opinions.items()
        }
        yield {
            "model": truth.cell.model,
            "inputs": truth.cell.inputs,
            "token": found.token,
            "probability": found.probability,
            "relative_error": _finite(found.relative_error) or 1.0,
            "scouted": _finite(found.scouted),
            "apart": found.apart,
            "refusal": found.refusal,
            "opinions": opinions,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _decade(found: Certificate) -> int:
    return math.floor(found.log_probability / math.log(10))


def count_by_decade(truths: Sequence[Truth]) -> str:
    """A Markdown table: certified tokens by decade, refused ones by reason, the opinions' z."""
    names = [f"1e{d} …" for d in DECADES]
    lines = [
        ["model", "inputs", *names, "certified", "refused", "median error", "beyond 3", "mean z²"]
    ]
    lines.append(["---", "---", *["---:"] * (len(lines[0]) - 2)])
    for truth in truths:
        good = [c for c in truth.certificates if c.is_certified]
        counts = [sum(_decade(c) == d for c in good) for d in DECADES]
        apart = [c.apart for c in truth.certificates if c.apart is not None]
        errors = sorted(c.relative_error for c in good)
        lines.append(
            [
                truth.cell.model,
                truth.cell.inputs,
                *map(str, counts),
                str(len(good)),
                str(len(truth.certificates) - len(good)),
                f"{errors[len(errors) // 2]:.2f}" if errors else "–",
                f"{sum(abs(z) > APART for z in apart)} of {len(apart)}",
                f"{sum(z * z for z in apart) / len(apart):.2f}" if apart else "–",
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


class Agreement(NamedTuple):
    """How far a truth is from plain samples, in errors, on the tokens that it calls known."""

    tokens: int
    mean: float
    mean_square: float
    within: float
    """The share within 1.96 errors."""


@dataclass(frozen=True)
class Check:
    """A cell's truth against plain samples that are no part of it."""

    model: str
    inputs: str
    samples: int
    prefixes: Agreement | None
    """Prefixes alone, against all plain samples."""
    shipped: Agreement
    """Each half, whatever it is made of, against the plain samples of the other."""


def check(truth: Truth, known: float, low: float, high: float) -> Check:
    """Compare a truth with its plain samples."""
    plain = truth.tallies["brute"]
    prefixes = None
    if "conditional" in truth.tallies:
        alone = Truth(truth.cell, {"conditional": truth.tallies["conditional"]})
        prefixes = _agreement([_distances(alone, plain, known, low, high)])
    crossed = [
        _distances(one, other.tallies["brute"], known, low, high)
        for one, other in zip(truth.halves, truth.halves[::-1], strict=True)
        if "brute" in other.tallies
    ]
    return Check(truth.cell.model, truth.cell.inputs, plain.samples, prefixes, _agreement(crossed))


def _distances(
    truth: Truth, plain: Tally, known: float, low: float, high: float
) -> Float64[Tensor, " token"]:
    """z = (p̂ − c/n)/√(se² + p/n) with c of n plain samples, and p both together.

    Of known tokens of which plain samples should show at least one.
    """
    n = max(plain.samples, 1)
    expected = truth.probability * plain.samples
    chosen = truth.known_to(known) & truth.between(low, high) & (expected >= LEAST_EXPECTED)
    p, error, count = truth.probability[chosen], truth.standard_error[chosen], plain.total[chosen]
    weight = p / (p + n * error.square())  # of the truth, by its precision
    both = weight * p + (1 - weight) * count / n
    z: Tensor = (p - count / n) / (error.square() + both / n).sqrt()
    return z


def _agreement(distances: Sequence[Tensor]) -> Agreement:
    z = torch.cat([*distances, torch.zeros(0, dtype=torch.float64)])
    if not len(z):
        return Agreement(0, math.nan, math.nan, math.nan)
    within = (z.abs() <= NORMAL).double().mean()
    return Agreement(len(z), float(z.mean()), float(z.square().mean()), float(within))


def markdown_checks(truths: Sequence[Truth], known: float, low: float, high: float) -> str:
    """A table of the checks, for the docs."""
    of = ("tokens", "mean z", "mean z²", "within 1.96")
    headings = ["model", "inputs", "plain samples", *(f"prefixes: {name}" for name in of), *of]
    lines = [headings, ["---", "---", *["---:"] * (len(headings) - 2)]]
    for found in (check(truth, known, low, high) for truth in truths):
        cells = [_shown(found.prefixes), _shown(found.shipped)]
        lines.append([found.model, found.inputs, f"{found.samples:,}", *cells[0], *cells[1]])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _shown(found: Agreement | None) -> list[str]:
    if found is None or not found.tokens:
        return ["–"] * 4
    return [
        str(found.tokens),
        f"{found.mean:+.2f}",
        f"{found.mean_square:.2f}",
        f"{found.within:.0%}",
    ]
