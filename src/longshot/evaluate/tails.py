"""Inputs that change from some position on and are run again from there.

What comes before a changed token does not see it. A network with a cache remembers its inputs
between calls, so that both passes run over the tail alone; changes that are rejected are put back.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from longshot.evaluate.blocks import GRAIN
from longshot.evaluate.evaluator import Evaluator
from longshot.evaluate.passes import Evaluation, Known
from longshot.evaluate.readers import Decision
from longshot.models import Memory


class Tails:
    """The same inputs call after call, changed from some position on; one event owns each."""

    def __init__(self, evaluator: Evaluator, owner: Int[Tensor, " rows"], length: int) -> None:
        self.evaluator, self.owner = evaluator, owner
        rooms = [one.room(len(owner), length) for one in evaluator.passes]
        self._memories: list[Memory] = [room for room in rooms if room is not None]
        self._overwritten: list[Memory] = []
        self.since = 0  # from where on the last call's gradients are known

    @property
    def resumes(self) -> bool:
        """Whether a call needs less than the whole inputs."""
        return bool(self._memories)

    def whole(self, tokens: Int[Tensor, "rows position"], gradient: bool = True) -> Evaluation:
        """Of any inputs, with gradients at every position."""
        self._overwritten = []
        return self._run(tokens, 0, gradient)

    def changed(
        self, tokens: Int[Tensor, "rows position"], start: int, gradient: bool = True
    ) -> Evaluation:
        """Of inputs as they were before `start`, with gradients from there on."""
        self._overwritten = [
            [layer[..., start:, :].clone() for layer in memory] for memory in self._memories
        ]
        return self._run(tokens, start, gradient)

    def put_back(self, rows: Int[Tensor, " some"] | slice) -> None:
        """Take back the last change of these inputs."""
        for memory, overwritten in zip(self._memories, self._overwritten, strict=False):
            for layer, old in zip(memory, overwritten, strict=True):
                layer[:, rows, :, self.since :] = old[:, rows]
        self._overwritten = []

    def remember(self, tokens: Int[Tensor, "rows position"]) -> None:
        """Take up other inputs, of which nothing needs to be read."""
        for one, memory in zip(self.evaluator.passes, self._memories, strict=False):
            one.activations(tokens, Known(memory, 0))

    def try_some(
        self,
        rows: Int[Tensor, " some"],
        tokens: Int[Tensor, "some position"],
        start: int,
        least: Float64[Tensor, " some"],
    ) -> Decision:
        """Of some inputs, changed from `start` on: score and grade where they reach `least`.

        Those that do are remembered from now on, the others stay as they were.
        """
        if not self.resumes:
            return self.evaluator.reach(tokens, least)
        filled = torch.cat([rows, rows[:1].expand(-len(rows) % GRAIN)])
        copies = [Known(memory, start).rows(filled) for memory in self._memories]
        found = self.evaluator.reach(tokens, least, copies)
        reached = (found.gap >= least).nonzero()[:, 0]
        for memory, (copy, _) in zip(self._memories, copies, strict=True):
            for layer, new in zip(memory, copy, strict=True):
                layer[:, rows[reached], :, start:] = new[:, reached, :, start:]
        return found

    def _run(self, tokens: Int[Tensor, "rows position"], start: int, gradient: bool) -> Evaluation:
        self.since = start if self.resumes else 0
        known = [Known(memory, start) for memory in self._memories]
        return self.evaluator(tokens, self.owner, gradient, known or None)
