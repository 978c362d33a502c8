"""Inputs made of slots: each slot takes a value by a law of its own, and pieces spell the values.

    v_s ~ p_s  independently for each slot s,       x = spelling_1(v) · spelling_2(v) · … · NOTHING

A piece spells its slot's value in tokens, of any number; fixed text is a slot of one value. Several
pieces may spell the same slot, which then has the same value in all of them. Tokens are no longer
independent, positions mean nothing, and different values may make the same tokens:

    log p(x) = log Σ over all v that spell x of Π_s p_s(v_s),

a sum over the paths of one input through the pieces. What is known on the way is where the next
piece begins and the values of the slots that occur again.

`redraw` draws v from p(v | x), which is certain unless x has several spellings, and draws slots
anew that stand wholly from `start` on. What stands before them is kept, and so are the slots that
may be redrawn: the step is reversible and leaves p as it is.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.inputs.base import NOTHING, Listed, mixed_radix
from longshot.inputs.tokens import TokenDistribution

MOST = 2**20  # spellings in all: a few words of a template must not fill the memory


class Piece(NamedTuple):
    """A stretch of the input: how each value of a slot is spelt here."""

    slot: int
    spellings: tuple[tuple[int, ...], ...]


State = tuple[int, tuple[tuple[int, int], ...]]
"""Where the next piece begins, and the values of the slots that occur again."""


class Way(NamedTuple):
    """A way to a state: from which, by which value, and the probability of all ways there."""

    before: State
    value: int
    log_prob: float


class SlotInputs:
    """A distribution over token sequences that are spelt from independent slots.

    `laws` are the slots' distributions over their values 0, 1, …
    """

    def __init__(
        self, name: str, laws: Sequence[TokenDistribution], pieces: Sequence[Piece]
    ) -> None:
        for slot, spellings in pieces:
            if len(spellings) != laws[slot].size:
                raise LongshotError(f"The inputs {name!r} spell a slot in too many or few ways.")
        if (spelt := sum(len(piece.spellings) for piece in pieces)) > MOST:
            raise LongshotError(
                f"The inputs {name!r} spell {spelt:,} choices, more than {MOST:,}: give fewer "
                "choices, repeat them less often, or name the slot only once."
            )
        self.name, self.laws, self.pieces = name, tuple(laws), tuple(pieces)
        if not self.shortest:
            raise LongshotError(f"The inputs {name!r} may be empty, which no model can read.")

    def __repr__(self) -> str:
        return f"SlotInputs({self.name!r}, {self.count} inputs, {self.fingerprint})"

    @cached_property
    def length(self) -> int:
        """Of the longest input; shorter ones are filled up with NOTHING."""
        return sum(max(map(len, piece.spellings)) for piece in self.pieces)

    @cached_property
    def shortest(self) -> int:
        """A length that no input falls below."""
        return sum(min(map(len, piece.spellings)) for piece in self.pieces)

    @cached_property
    def beginning(self) -> tuple[int, ...]:
        """The tokens with which every input begins, short of its last."""
        fixed: list[int] = []
        for piece in self.pieces:
            if len(piece.spellings) > 1:
                break
            fixed += piece.spellings[0]
        return tuple(fixed[: self.shortest - 1])

    @cached_property
    def free_positions(self) -> tuple[int, ...]:
        """From where on a slot can be redrawn: no input has it earlier."""
        at, found = 0, dict[int, int]()
        for slot, spellings in self.pieces:
            if len(spellings) > 1:
                found.setdefault(slot, at)
            at += min(map(len, spellings))
        return tuple(sorted(set(found.values())))

    @property
    def count(self) -> int:
        return math.prod(law.size for law in self.laws)

    def listed(self, start: int, stop: int) -> Listed:
        """Some of all values, those of the slot that ends first the last to change."""
        order = list(dict.fromkeys(piece.slot for piece in self.pieces))
        digits = mixed_radix(torch.arange(start, stop), [self.laws[slot].size for slot in order])
        values = torch.zeros(stop - start, len(self.laws), dtype=torch.int64)
        values[:, order] = digits
        return Listed(self.spell(values), self._log_prob_of(values))

    def sample(self, n: int, generator: torch.Generator) -> Int64[Tensor, "n length"]:
        """`n` independent inputs."""
        return self.spell(self._values(n, generator))

    def redraw(
        self,
        tokens: Int64[Tensor, "n length"],
        generator: torch.Generator,
        start: int = 0,
        share: float = 1.0,
    ) -> Int64[Tensor, "n length"]:
        """Each slot that stands from `start` on drawn anew with probability `share`."""
        drawn = self._values(len(tokens), generator)
        which = torch.rand(len(tokens), generator=generator, dtype=torch.float64).tolist()
        rows = tokens.tolist()
        old = [self._read(row, random.Random(u)) for row, u in zip(rows, which, strict=True)]
        values = torch.tensor(old, dtype=torch.int64).view(-1, len(self.laws))
        kept = torch.rand(values.shape, generator=generator) >= share
        kept |= self._places(values) < start
        return self.spell(torch.where(kept, values, drawn))

    def log_prob(self, tokens: Int[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        """The exact log probability of each input; −inf where nothing spells it."""
        found = []
        for row in tokens.tolist():
            ends = self._ways(row)[-1].values()
            found.append(_log_sum([step.log_prob for steps in ends for step in steps]))
        return torch.tensor(found, dtype=torch.float64)

    def spell(self, values: Int64[Tensor, "n slot"]) -> Int64[Tensor, "n length"]:
        """The tokens of the slots' values."""
        tokens = torch.full((len(values), self.length), NOTHING)
        at, every = torch.zeros(len(values), dtype=torch.int64), torch.arange(len(values))
        for (slot, _), (table, lengths) in zip(self.pieces, self._tables, strict=True):
            own, size = table[values[:, slot]], lengths[values[:, slot]]
            for j in range(table.shape[1]):
                rows = every[size > j]
                tokens[rows, at[rows] + j] = own[rows, j]
            at += size
        return tokens

    @cached_property
    def fingerprint(self) -> str:
        """A short digest of spellings and probabilities: inputs that agree in it are the same."""
        digest = hashlib.sha256(repr(self.pieces).encode())
        for law in self.laws:
            digest.update(law.log_probs.numpy().astype("<f4").tobytes())
        return digest.hexdigest()[:16]

    def _values(self, n: int, generator: torch.Generator) -> Int64[Tensor, "n slot"]:
        values = torch.zeros(n, len(self.laws), dtype=torch.int64)
        for slot, law in enumerate(self.laws):
            if not law.is_fixed:
                values[:, slot] = law.sample(n, generator)
        return values

    def _log_prob_of(self, values: Int64[Tensor, "n slot"]) -> Float64[Tensor, " n"]:
        each = [law.log_probs[values[:, slot]] for slot, law in enumerate(self.laws)]
        return torch.stack(each).sum(0)

    def _places(self, values: Int64[Tensor, "n slot"]) -> Int64[Tensor, "n slot"]:
        """Where each slot is first spelt."""
        places = torch.full_like(values, -1)
        at = torch.zeros(len(values), dtype=torch.int64)
        for (slot, _), (_, lengths) in zip(self.pieces, self._tables, strict=True):
            places[:, slot] = torch.where(places[:, slot] < 0, at, places[:, slot])
            at = at + lengths[values[:, slot]]
        return places

    @cached_property
    def _tables(self) -> list[tuple[Int64[Tensor, "value longest"], Int64[Tensor, " value"]]]:
        """For each piece its spellings, filled up, and their lengths."""
        tables = []
        for _, spellings in self.pieces:
            lengths = torch.tensor([len(spelling) for spelling in spellings])
            table = torch.full((len(spellings), int(lengths.max())), NOTHING)
            for value, spelling in enumerate(spellings):
                table[value, : len(spelling)] = torch.tensor(spelling, dtype=torch.int64)
            tables.append((table, lengths))
        return tables

    @cached_property
    def _spelt(self) -> list[dict[tuple[int, ...], list[int]]]:
        """For each piece the values of each spelling."""
        found: list[dict[tuple[int, ...], list[int]]] = [{} for _ in self.pieces]
        for by_spelling, piece in zip(found, self.pieces, strict=True):
            for value, spelling in enumerate(piece.spellings):
                by_spelling.setdefault(spelling, []).append(value)
        return found

    @cached_property
    def _last(self) -> dict[int, int]:
        """The last piece of each slot."""
        return {piece.slot: i for i, piece in enumerate(self.pieces)}

    def _ways(self, row: Sequence[int]) -> list[dict[State, list[Way]]]:
        """The states after each piece, with the steps to each; of all ways, none left out."""
        tokens = tuple(token for token in row if token >= 0)
        ways: list[dict[State, list[Way]]] = []
        here: dict[State, float] = {(0, ()): 0.0}
        for i, (slot, spellings) in enumerate(self.pieces):
            ways.append({})
            sizes = {len(spelling) for spelling in self._spelt[i]}
            for (at, bound), log_prob in here.items():
                fixed = dict(bound).get(slot)
                for size in sizes if fixed is None else (len(spellings[fixed]),):
                    values = self._spelt[i].get(tokens[at : at + size], ())
                    for value in values if fixed is None else (fixed,) * (fixed in values):
                        term = 0.0 if fixed is not None else float(self._log_probs[slot][value])
                        rest = tuple(pair for pair in bound if pair[0] != slot)
                        again = ((slot, value),) if self._last[slot] > i else ()
                        after = (at + size, tuple(sorted(rest + again)))
                        step = Way((at, bound), value, log_prob + term)
                        ways[i].setdefault(after, []).append(step)
            here = {s: _log_sum([t.log_prob for t in steps]) for s, steps in ways[i].items()}
        end = (len(tokens), ())
        ways[-1] = {end: ways[-1][end]} if end in ways[-1] else {}
        return ways

    @cached_property
    def _log_probs(self) -> list[list[float]]:
        return [law.log_probs.tolist() for law in self.laws]

    def _read(self, row: Sequence[int], choose: random.Random) -> list[int]:
        """The values that spell an input; of several ways one, as likely as it is."""
        ways, values = self._ways(row), [0] * len(self.laws)
        if not ways[-1]:
            raise LongshotError(f"{list(row)} is none of the inputs {self.name!r}.")
        (state,) = ways[-1]
        for i in range(len(self.pieces) - 1, -1, -1):
            steps = ways[i][state]
            step = steps[0]
            if len(steps) > 1:
                total = _log_sum([way.log_prob for way in steps])
                (step,) = choose.choices(steps, [math.exp(w.log_prob - total) for w in steps])
            values[self.pieces[i].slot], state = step.value, step.before
        return values


def _log_sum(terms: list[float]) -> float:
    """log Σ exp; −inf of nothing."""
    if len(terms) < 2:
        return terms[0] if terms else -math.inf
    most = max(terms)
    return most + math.log(math.fsum(math.exp(term - most) for term in terms))
