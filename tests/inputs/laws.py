"""Inputs that can be listed against what they draw and redraw: one check for all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from longshot.inputs import Finite
from tests.inputs.chi_square import p_value, two_sample_p_value

DRAWS = 20_000


class Table:
    """Every distinct input with its probability."""

    def __init__(self, inputs: Finite) -> None:
        tokens, log_prob = inputs.listed(0, inputs.count)
        self.tokens, place = tokens.unique(dim=0, return_inverse=True)
        empty = torch.zeros(len(self.tokens), dtype=torch.float64)
        self.probability = empty.index_add(0, place, log_prob.exp())
        self._place = {tuple(row): i for i, row in enumerate(self.tokens.tolist())}

    def place(self, drawn: Tensor) -> Tensor:
        return torch.tensor([self._place[tuple(row)] for row in drawn.tolist()])

    def fit(self, drawn: Tensor) -> float:
        """How likely draws are to come from the table, by Pearson's test."""
        counts = torch.bincount(self.place(drawn), minlength=len(self.tokens))
        return p_value(counts, self.probability)

    def symmetry(self, before: Tensor, after: Tensor) -> float:
        """How likely moves are to be as frequent as their reverses."""
        n, (old, new) = len(self.tokens), (self.place(before), self.place(after))
        there, back = (torch.bincount(i, minlength=n * n) for i in (old * n + new, new * n + old))
        return two_sample_p_value(there, back)


def worst_redraw(inputs: Finite, start: int, share: float, draws: int = DRAWS) -> float:
    """The smaller p-value of a redraw's law and of its reversibility, from draws of the law."""
    generator, table = torch.Generator().manual_seed(0), Table(inputs)
    before = inputs.sample(draws, generator)
    after = inputs.redraw(before, generator, start, share)
    assert bool((after[:, :start] == before[:, :start]).all())
    return min(table.fit(after), table.symmetry(before, after))
