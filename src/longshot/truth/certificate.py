"""Certificates: probabilities too small for samples, by estimators that check each other.

A *piece* is one independent unbiased estimate p̂_i of a token's probability with its own relative
error, by ITGIS leaf by leaf (`methods/leafwise.py`) or by splitting with frozen levels. Pieces of
one estimator are averaged in proportion to their calls, which were fixed before they ran, so that
their mean stays unbiased,

    p̂ = Σ c_i·p̂_i / Σ c_i,     Var p̂ = max( Σ c_i²·se_i²,  n/(n − 1)·Σ c_i²·(p̂_i − p̂)² ) / (Σ c_i)²,

with the larger of what the pieces say of themselves and what they say of each other: a piece that
lost a kind of input says too little of its own error. Samples that a table holds are an opinion
too. Opinions combine by their precision with a common p, 1/e_k² for relative errors e_k,

    log p = log( Σ p̂_k/e_k² / Σ 1/e_k² ),      e = (Σ 1/e_k²)^(−½).

A token is *certified* if two opinions, each known to a half or better, lie within three of their
errors of each other, and all together know it to a quarter. Every other candidate keeps the reason
why not. Half A of everything chooses the candidates, half B certifies them, so that a certified
probability was not chosen for its own luck.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, NamedTuple

import torch

from longshot.numerics import Replicates

Estimator = Literal["leafwise", "splitting"]
ESTIMATORS: tuple[Estimator, ...] = ("leafwise", "splitting")
SAMPLES = "samples"
KNOWN = 0.5  # the largest relative error of an opinion that counts
CERTAIN = 0.25  # and of all together
APART = 3.0  # errors between two opinions that agree


class PieceKey(NamedTuple):
    """Which piece it is: half 0 scouts and chooses, half 1 certifies."""

    estimator: Estimator
    half: int
    token: int
    seed: int
    part: int


class CertificatePiece(NamedTuple):
    """One estimate of one token, and what it took."""

    key: PieceKey
    log_probability: float
    """−inf if nothing hit."""
    relative_error: float | None
    calls: int
    """What it was given to spend, which weighs it."""
    macs: int
    seconds: float

    @classmethod
    def checked(cls, vocab_size: int, stated: Iterable[Any]) -> CertificatePiece:
        """A piece that a file states, or a ValueError where no estimator could have given it.

        `stated` are the key, the logarithm (None if nothing hit), the error, calls, macs, seconds.
        """
        estimator, half, token, seed, part, log_p, error, calls, macs, seconds = stated
        whole = (half, token, seed, part, calls, macs)
        if estimator not in ESTIMATORS or any(type(n) is not int or n < 0 for n in whole):
            raise ValueError("a piece of a certificate is named by no whole numbers")
        if half > 1 or token >= vocab_size or not calls or max(whole) >= 2**63:
            raise ValueError("the numbers of a piece of a certificate are out of range")
        numbers = [x for x in (log_p, error, seconds) if x is not None]
        if any(type(x) is not float or not math.isfinite(x) for x in numbers) or seconds is None:
            raise ValueError("a piece of a certificate has no numbers")
        if (log_p or 0.0) > 0 or (error is not None and error <= 0) or seconds < 0:
            raise ValueError("the numbers of a piece of a certificate are out of range")
        key = PieceKey(estimator, half, token, seed, part)
        return cls(key, -math.inf if log_p is None else log_p, error, calls, macs, seconds)

    @property
    def stated(self) -> tuple[Any, ...]:
        """Plain values, which `checked` reads back."""
        log_p = None if self.log_probability == -math.inf else self.log_probability
        return (*self.key, log_p, *self[2:])


class Opinion(NamedTuple):
    """What one estimator says of a token."""

    log_probability: float
    relative_error: float
    """Infinite where there is none."""
    macs: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, pieces: Iterable[CertificatePiece]) -> Opinion:
        """All pieces of one estimator."""
        pieces = list(pieces)
        log_p = torch.tensor([piece.log_probability for piece in pieces], dtype=torch.float64)
        calls = torch.tensor([float(piece.calls) for piece in pieces], dtype=torch.float64)
        together, share = Replicates.of(log_p, calls), calls / calls.sum()
        macs, seconds = sum(p.macs for p in pieces), sum(p.seconds for p in pieces)
        if together.log_mean == -math.inf:
            return cls(-math.inf, math.inf, macs, seconds)
        own = torch.tensor([p.relative_error or 0.0 for p in pieces], dtype=torch.float64)
        own = own * (log_p - together.log_mean).exp() * share
        error = max(float(own.square().sum().sqrt()), together.relative_error or 0.0)
        return cls(together.log_mean, error or math.inf, macs, seconds)

    def apart(self, other: Opinion) -> float:
        """By how many of their errors it lies above another."""
        error = math.hypot(self.relative_error, other.relative_error)
        return (self.log_probability - other.log_probability) / error


@dataclass(frozen=True)
class Certificate:
    """A candidate, what half A took it for, and what the opinions of half B make of it."""

    token: int
    scouted: float
    """log p on half A, which chose it."""
    opinions: Mapping[str, Opinion]

    @cached_property
    def known(self) -> list[Opinion]:
        """The opinions that count, the surest first."""
        sure = [o for o in self.opinions.values() if o.relative_error <= KNOWN]
        return sorted(sure, key=lambda opinion: opinion.relative_error)

    @property
    def relative_error(self) -> float:
        """Of all opinions that count together."""
        precision = sum(o.relative_error**-2 for o in self.known)
        return precision**-0.5 if precision else math.inf

    @property
    def log_probability(self) -> float:
        """By all opinions that count; −inf if there is none."""
        if not self.known:
            return -math.inf
        log_p = torch.tensor([o.log_probability for o in self.known], dtype=torch.float64)
        errors = torch.tensor([o.relative_error for o in self.known], dtype=torch.float64)
        return Replicates.of(log_p, errors**-2).log_mean

    @property
    def probability(self) -> float:
        return math.exp(self.log_probability)

    @property
    def apart(self) -> float | None:
        """By how many errors the two surest opinions differ; None if there are no two."""
        return self.known[0].apart(self.known[1]) if len(self.known) > 1 else None

    @property
    def refusal(self) -> str | None:
        """Why the token is not certified; None if it is."""
        if not self.known:
            return "no estimator knows it to a half"
        if self.apart is None:
            (sure,) = (name for name, o in self.opinions.items() if o is self.known[0])
            return f"only {sure} knows it to a half"
        if abs(self.apart) > APART:
            return f"the estimators disagree by {abs(self.apart):.1f} errors"
        if self.relative_error > CERTAIN:
            return f"its relative error is {self.relative_error:.2f}"
        return None

    @property
    def is_certified(self) -> bool:
        return self.refusal is None


def opinions_of(pieces: Iterable[CertificatePiece]) -> dict[tuple[int, int], dict[str, Opinion]]:
    """What each estimator says, by half and token."""
    ordered = sorted(pieces, key=lambda piece: (piece.key[1:3], piece.key))
    found: dict[tuple[int, int], dict[str, Opinion]] = {}
    for (half, token, name), some in groupby(ordered, key=lambda p: (*p.key[1:3], p.key[0])):
        found.setdefault((half, token), {})[name] = Opinion.of(some)
    return found
