"""Inputs that change at one position and are run again from there on.

What comes before a changed token does not see it. A network that can resume remembers its inputs
between calls, so that both passes run over the tail alone; changes that are rejected are put back.
"""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from longshot.evaluate.evaluator import Evaluation, Evaluator, Known
from longshot.evaluate.paths import PathEvaluator


class Tails:
    """The same inputs call after call, changed from some position on; one event owns each."""

    def __init__(
        self, evaluator: Evaluator | PathEvaluator, owner: Int[Tensor, " rows"], length: int
    ) -> None:
        self.evaluator, self.owner = evaluator, owner
        self._resumable = evaluator if isinstance(evaluator, Evaluator) else None
        self._memory: list[Tensor] | None = None
        if self._resumable is not None:
            self._memory = self._resumable.room(len(owner), length)
        self._overwritten: list[Tensor] = []
        self.since = 0  # from where on the last call's gradients are known

    @property
    def resumes(self) -> bool:
        """Whether a call needs less than the whole inputs."""
        return self._memory is not None

    def whole(self, tokens: Int[Tensor, "rows position"]) -> Evaluation:
        """Of any inputs, with gradients at every position."""
        self._overwritten = []
        return self._run(tokens, 0)

    def changed(self, tokens: Int[Tensor, "rows position"], start: int) -> Evaluation:
        """Of inputs as they were before `start`, with gradients from there on."""
        self._overwritten = [layer[..., start:, :].clone() for layer in self._memory or ()]
        return self._run(tokens, start)

    def put_back(self, rows: Int[Tensor, " some"] | slice) -> None:
        """Take back the last change of these inputs."""
        for layer, old in zip(self._memory or (), self._overwritten, strict=False):
            layer[:, rows, :, self.since :] = old[:, rows]
        self._overwritten = []

    def _run(self, tokens: Int[Tensor, "rows position"], start: int) -> Evaluation:
        if self._resumable is None or self._memory is None:
            return self.evaluator(tokens, self.owner, gradient=True)
        self.since = start
        known = Known(self._memory, start)
        return self._resumable(tokens, self.owner, gradient=True, known=known)
