"""Fixed text and slots, laid one after the other, on their way to inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from longshot.inputs.product import ProductInputs
from longshot.inputs.slots import Piece, SlotInputs
from longshot.inputs.tokens import TokenDistribution
from longshot.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class Slot:
    """What may stand in a slot: texts with weights, or tokens of a class."""

    name: str
    weights: dict[str, float]
    tokens: TokenDistribution | None
    repeat: int
    brings_space: bool


@dataclass(frozen=True)
class Layout:
    """The slots' laws, and the pieces that spell them."""

    tokenizer: Tokenizer
    laws: list[TokenDistribution] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)
    """The first law of each slot."""

    def fix(self, tokens: Sequence[int]) -> None:
        """Lay fixed tokens."""
        if tokens:
            self.laws.append(TokenDistribution.fixed(0))
            self.pieces.append(Piece(len(self.laws) - 1, (tuple(tokens),)))

    def lay(self, slot: Slot, space: str) -> None:
        """Lay a slot, whose first choice is tokenised with the space before it."""
        if slot.name not in self.named:
            self.named[slot.name] = len(self.laws)
            values, weights = list(range(len(slot.weights))), list(slot.weights.values())
            law = slot.tokens or TokenDistribution.from_weights(values, weights)
            self.laws.extend([law] * slot.repeat)
        first = self._spelt(slot, space)
        others = self._spelt(slot, "") if space and slot.repeat > 1 else first
        others = first if others == first else others  # one object, which stands for one law
        for i in range(slot.repeat):
            self.pieces.append(Piece(self.named[slot.name] + i, others if i else first))

    def _spelt(self, slot: Slot, space: str) -> tuple[tuple[int, ...], ...]:
        """How each value of a slot is spelt after a space, or after none."""
        if slot.tokens is not None:
            return tuple((token,) for token in slot.tokens.support.tolist())
        return tuple(tuple(self.tokenizer.encode(space + choice)) for choice in slot.weights)

    def inputs(self, name: str) -> ProductInputs | SlotInputs:
        """A product where every choice is one token and no slot stands twice."""
        positions: list[TokenDistribution] = []
        made: dict[tuple[TokenDistribution, int], TokenDistribution] = {}
        used = Counter(piece.slot for piece in self.pieces)
        for slot, spellings in self.pieces:
            if len(spellings) == 1:
                positions += map(TokenDistribution.fixed, spellings[0])
                continue
            key = self.laws[slot], id(spellings)
            if key not in made:
                tokens = tuple(s[0] for s in spellings if len(s) == 1)
                if used[slot] > 1 or len(set(tokens)) < len(spellings):
                    return SlotInputs(name, self._values_of_classes(), self.pieces)
                support, order = torch.tensor(tokens).sort()
                made[key] = TokenDistribution(support, key[0].log_probs[order])
            positions.append(made[key])
        return ProductInputs(name, positions)

    def _values_of_classes(self) -> list[TokenDistribution]:
        """The laws over values 0, 1, …, also where they were over tokens."""
        each = set(self.laws)
        made = {law: TokenDistribution(torch.arange(law.size), law.log_probs) for law in each}
        return [made[law] for law in self.laws]
