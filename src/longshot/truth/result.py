"""The truth of one cell: every token's probability with its standard error, in two halves.

Samples of one kind give their mean and the spread between them. Kinds combine by their precision,
token by token. With m the probability that a token wins given a sample (0 or 1 for a whole input),

    ρ_k = Σm²/Σm,   w_k = n_k/ρ_k,   p̂ = Σ_k w_k·p̂_k / Σ_k w_k.

For a rare token the variance of kind k is p·ρ_k/n_k, so w_k is its precision but for the p that all
share: one sample is worth 1/ρ_k whole inputs, and at least one, since m ≤ 1. ρ_k is trusted as far
as it was seen: with the sightings of N = (Σm)²/Σm² equal samples it enters as ρ_k^(N/(N+1)). So a
kind that never saw the token takes part with its n_k samples as so many inputs without a hit, not
with a variance of zero. The standard error is that of the same weights,

    Var p̂ = Σ_k w_k²·p̂·(ρ_k − p̂)/n_k / (Σ_k w_k)²,

with the common p̂, so that a kind that happened to see little does not look certain. Weights that
did not depend on the samples would leave p̂ unbiased; these lean to a kind that saw the token. Where
both kinds are equally precise that is +3% of p at 4 sightings, when the error is 38%, and +0.2% at
20 (tests/truth/test_kinds.py). Of one kind alone p̂ is the plain mean.

**What the spread does not know.** Where few prefixes hold most of a token's probability and were
missed, what is left is small and even: p̂ is too low and its spread smaller still. Such a token has
a ρ far below that of the cell's other rare tokens. So with ρ̄ = Σ_t Σm² / Σ_t Σm over all tokens of
at most 1e-4, no kind is weighted by a ρ below its ρ̄, and a token is *known to* r only where both
its own error and the one that ρ̄ would give it, (ρ̄/(n·p̂))^½ of one kind, are at most r.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import CellKey
from longshot.numerics import derived_generator
from longshot.shown import Shown
from longshot.truth.certificate import SAMPLES, Certificate, CertificatePiece, Opinion, opinions_of
from longshot.truth.tally import Kind, Shard, Tally

RELATIVE_ERROR = 0.25  # the largest at which a token may be chosen as a target, unless told
RARE = 1e-4  # the largest probability of the tokens that ρ̄ is taken over


@dataclass(frozen=True)
class Truth(Shown):
    """Probabilities of all tokens from one set of samples, which may be of several kinds."""

    cell: CellKey
    tallies: Mapping[Kind, Tally]
    halves: tuple[Truth, ...] = ()
    """The two independent halves that it is the sum of; a half has none."""
    pieces: tuple[CertificatePiece, ...] = ()
    """What certificates are made of."""

    @classmethod
    def from_shards(
        cls, cell: CellKey, shards: Iterable[Shard], pieces: Iterable[CertificatePiece] = ()
    ) -> Truth:
        """All shards and pieces together."""
        sums: list[dict[Kind, Tally]] = [{}, {}, {}]  # of the halves, and of both
        for span, tally in ((shard.span, shard.tally) for shard in shards):
            for half in (span.stream.half, 2):
                before = sums[half].get(span.stream.kind, Tally.empty(cell.vocab_size))
                sums[half][span.stream.kind] = before + tally
        return cls(cell, sums[2], (cls(cell, sums[0]), cls(cell, sums[1])), tuple(pieces))

    def __repr__(self) -> str:
        return f"Truth({self.cell}: {self})"

    def __str__(self) -> str:
        return "; ".join(
            f"{kind}, {tally.leaves} leaves of {tally.samples} samples"
            for kind, tally in sorted(self.tallies.items())
        )

    @property
    def samples(self) -> dict[Kind, int]:
        """Independent samples of each kind: inputs of `brute`, prefixes of `conditional`."""
        return {kind: tally.samples for kind, tally in self.tallies.items()}

    @property
    def leaves(self) -> int:
        """Inputs whose argmax was taken, of all kinds."""
        return sum(tally.leaves for tally in self.tallies.values())

    @cached_property
    def _kinds(self) -> tuple[Float64[Tensor, "kind one"], Float64[Tensor, "sum kind vocab"]]:
        """Samples of each kind that has any, and their Σm and Σm²."""
        kinds = [t for t in self.tallies.values() if t.samples] or [
            Tally.empty(self.cell.vocab_size)
        ]
        samples = torch.tensor([[float(tally.samples)] for tally in kinds], dtype=torch.float64)
        return samples, torch.stack([torch.stack((t.total, t.squares)) for t in kinds], 1)

    @cached_property
    def _pooled(self) -> Float64[Tensor, "kind one"]:
        """ρ̄ of each kind; 0 where no rare token was seen."""
        samples, (total, squares) = self._kinds
        rare = total <= RARE * samples
        sums: Tensor = (squares * rare).sum(1) / (total * rare).sum(1).clamp(min=1e-300)
        return sums[:, None]

    @cached_property
    def _mass(self) -> Float64[Tensor, "kind vocab"]:
        """ρ of each kind as far as it is trusted; one kind alone needs no weights."""
        samples, (total, squares) = self._kinds
        if len(samples) == 1:
            return torch.ones_like(total)
        mass = (squares / total).masked_fill(total == 0, 1.0)
        sightings = total / mass
        trusted: Tensor = mass ** (sightings / (sightings + 1))
        return trusted.maximum(self._pooled)

    @cached_property
    def probability(self) -> Float64[Tensor, " vocab"]:
        """The share of the samples; 0 for a token that was never seen."""
        samples, (total, _) = self._kinds
        weights = samples.clamp(min=1) / self._mass
        mean: Tensor = (total / self._mass).sum(0) / weights.sum(0)
        return mean

    @cached_property
    def standard_error(self) -> Float64[Tensor, " vocab"]:
        """From the spread between samples; infinite for a token that was never seen."""
        (samples, (_, squares)), mass, p = self._kinds, self._mass, self.probability
        if len(samples) == 1:
            n = int(samples)
            variance = (squares[0] / max(n, 1) - p.square()).clamp(min=0) / max(n - 1, 0)
        else:
            spread = samples * p * (mass - p).clamp(min=0) / mass.square()
            variance = spread.sum(0) / (samples / mass).sum(0).square()
        error: Tensor = variance.sqrt().masked_fill(p == 0, torch.inf)
        return error

    @cached_property
    def relative_error(self) -> Float64[Tensor, " vocab"]:
        """Standard error over probability; infinite for a token that was never seen."""
        error = self.standard_error / self.probability
        return error.masked_fill(self.probability == 0, torch.inf)

    @cached_property
    def pooled_error(self) -> Float64[Tensor, " vocab"]:
        """The relative error of tokens that are as concentrated as the cell's rare ones are."""
        samples, mass, p = self._kinds[0], self._mass, self.probability
        spread = (samples * self._pooled / mass.square()).sum(0)
        error: Tensor = (spread / p).sqrt() / (samples / mass).sum(0)
        return error.masked_fill(p == 0, torch.inf)

    def known_to(self, relative_error: float) -> Bool[Tensor, " vocab"]:
        """Which tokens are known that well, by their own spread and by that of the rare ones."""
        return (self.relative_error <= relative_error) & (self.pooled_error <= relative_error)

    @cached_property
    def certificates(self) -> tuple[Certificate, ...]:
        """The candidates below what samples can see, certified or refused, by their tokens."""
        found = opinions_of(self.pieces)
        return tuple(
            Certificate(token, self._scouted(token, found), {**opinions, **self._samples_of(token)})
            for (half, token), opinions in found.items()
            if half == 1
        )

    def _scouted(self, token: int, found: Mapping[tuple[int, int], Mapping[str, Opinion]]) -> float:
        """log p of a token on half A: by its scout, or by samples where it needed none."""
        if (0, token) in found:
            return found[0, token]["splitting"].log_probability
        return float(self.halves[0].probability[token].log())

    def _samples_of(self, token: int) -> dict[str, Opinion]:
        """What the samples of half B say of a token, if they have seen it."""
        judge = self.halves[1]
        error = float(judge.relative_error.maximum(judge.pooled_error)[token])
        if not math.isfinite(error):
            return {}
        return {SAMPLES: Opinion(float(judge.probability[token].log()), error)}

    def between(self, low: float, high: float) -> Bool[Tensor, " vocab"]:
        """Which tokens were seen with a probability in the range."""
        p = self.probability
        return (p > 0) & (p >= low) & (p <= high)


class NoiseFloor(NamedTuple):
    """What the truth's own error costs a perfect estimate, on average."""

    itakura_saito: float
    squared_log: float


@dataclass(frozen=True)
class CertifiedTruth:
    """What certificates say, as if it were a half of a truth; all other tokens are unknown."""

    probability: Float64[Tensor, " vocab"]
    relative_error: Float64[Tensor, " vocab"]

    @classmethod
    def of(cls, truth: Truth) -> CertifiedTruth:
        p = torch.zeros(truth.cell.vocab_size, dtype=torch.float64)
        error = torch.full_like(p, torch.inf)
        for found in truth.certificates:
            if found.is_certified:
                p[found.token], error[found.token] = found.probability, found.relative_error
        return cls(p, error)

    @property
    def standard_error(self) -> Float64[Tensor, " vocab"]:
        return (self.relative_error * self.probability).masked_fill(
            self.probability == 0, torch.inf
        )


def noise_floor(truth: Truth | CertifiedTruth, tokens: Sequence[int] | Tensor) -> NoiseFloor:
    """mean((se/p)²)/2 of Itakura-Saito loss and mean((se/p)²) of squared log error."""
    square = float(truth.relative_error[torch.as_tensor(tokens)].square().mean())
    return NoiseFloor(square / 2, square)


@dataclass(frozen=True)
class PickedTargets:
    """Tokens chosen on one half of a truth, and the half that judges them."""

    tokens: tuple[int, ...]
    qualified: int
    """How many tokens there were to choose from."""
    judge: Truth | CertifiedTruth

    @property
    def noise_floor(self) -> NoiseFloor:
        return noise_floor(self.judge, self.tokens)


def pick_targets(
    truth: Truth,
    low: float,
    high: float,
    count: int,
    seed: int = 0,
    relative_error: float = RELATIVE_ERROR,
) -> PickedTargets:
    """At most `count` tokens with a probability in the range, known to within `relative_error`.

    They are chosen on half A and judged on half B: choosing and judging on the same noise would
    flatter the lucky. All that qualify are taken if there are no more than `count`.
    """
    if len(truth.halves) != 2 or not all(half.leaves for half in truth.halves):
        raise LongshotError(
            f"The truth of {truth.cell} has no two halves to choose and to judge targets on."
        )
    if count < 1:
        raise LongshotError(f"At least one target must be asked for, not {count}.")
    if not 0 <= low <= high:
        raise LongshotError(f"No probability lies between {low} and {high}.")
    chooser, judge = truth.halves
    fits = chooser.between(low, high) & chooser.known_to(relative_error)
    return _some(truth, fits.nonzero()[:, 0], count, seed, judge)


def pick_certified(
    truth: Truth, low: float, high: float, count: int, seed: int = 0
) -> PickedTargets:
    """At most `count` certified tokens whose probability on half A lies in the range."""
    within = [
        found.token
        for found in truth.certificates
        if found.is_certified and low <= math.exp(found.scouted) <= high
    ]
    if not within:
        raise LongshotError(
            f"No token of {truth.cell} is certified between {low:g} and {high:g}; certify some "
            f"with: longshot truth deepen {truth.cell.model} {truth.cell.inputs}"
        )
    return _some(truth, torch.tensor(within), count, seed, CertifiedTruth.of(truth))


def _some(
    truth: Truth,
    tokens: Int64[Tensor, " n"],
    count: int,
    seed: int,
    judge: Truth | CertifiedTruth,
) -> PickedTargets:
    """A random choice of at most `count` tokens, the same for the same seed."""
    generator = derived_generator(seed, *truth.cell, "targets")
    chosen = tokens[torch.randperm(len(tokens), generator=generator)[:count]]
    return PickedTargets(tuple(sorted(chosen.tolist())), len(tokens), judge)
