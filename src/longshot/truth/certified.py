"""What certificates and checks come to: the tables of the docs, and the targets of a study."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from longshot.truth.certificate import APART, Certificate
from longshot.truth.result import Truth

DECADES = (-9, -8, -7, -6)  # 1e-9 … 1e-5
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


@dataclass(frozen=True)
class Check:
    """How far prefixes are from plain samples, in their errors, on tokens that they call known."""

    model: str
    inputs: str
    samples: int
    tokens: int
    mean: float
    mean_square: float
    within: float
    """The share within 1.96 errors."""


def check(truth: Truth, known: float, low: float, high: float) -> Check:
    """Compare the two kinds of one truth.

    z = (p̂ − c/n)/√(se² + p/n) with p̂ ± se by prefixes, c of n plain samples, and p both together;
    tokens of which plain samples should show at least one.
    """
    alone = Truth(truth.cell, {"conditional": truth.tallies["conditional"]})
    plain = truth.tallies["brute"]
    expected = alone.probability * plain.samples
    chosen = alone.known_to(known) & alone.between(low, high) & (expected >= LEAST_EXPECTED)
    p, error = alone.probability[chosen], alone.standard_error[chosen]
    count = plain.total[chosen]
    weight = p / (p + plain.samples * error.square())  # of the prefixes, by their precision
    both = weight * p + (1 - weight) * count / plain.samples
    z = (p - count / plain.samples) / (error.square() + both / plain.samples).sqrt()
    return Check(
        truth.cell.model,
        truth.cell.inputs,
        plain.samples,
        len(z),
        float(z.mean()) if len(z) else math.nan,
        float(z.square().mean()) if len(z) else math.nan,
        float((z.abs() <= 1.96).double().mean()) if len(z) else math.nan,
    )


def markdown_checks(truths: Sequence[Truth], known: float, low: float, high: float) -> str:
    """A table of the checks, for the docs."""
    lines = [
        "| model | inputs | plain samples | tokens compared | mean z | mean z² | within 1.96 |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for found in (check(truth, known, low, high) for truth in truths):
        lines.append(
            f"| {found.model} | {found.inputs} | {found.samples:,} | {found.tokens} | "
            f"{found.mean:+.2f} | {found.mean_square:.2f} | {found.within:.0%} |"
        )
    return "\n".join(lines)
