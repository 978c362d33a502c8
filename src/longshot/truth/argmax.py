"""The winners of many activations, at little more than the price of the matrix product.

The same answer as `longshot.evaluate.winners`, which decides whatever is close. The vocabulary is
folded into lanes: plain maxima down the lanes cost a twelfth of a maximum with its index, and the
winner and the runner-up then come from the few lanes and from the winner's own.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from longshot.evaluate.argmax import Winners, readout, winners
from longshot.models import Model, dense

BLOCK = 256  # rows of one product: the logits stay in the cache


class Argmax:
    """The winners of activations under one model, in blocks of one shape."""

    def __init__(self, model: Model) -> None:
        self.model, self.readout = model, readout(model)
        self.lanes = 2 ** round(math.log2(model.vocab_size) / 2)
        missing = -model.vocab_size % self.lanes  # filled up with tokens that cannot win
        self._rows = pad(self.readout.rows, (0, 0, 0, missing))
        self._bias = pad(self.readout.bias, (0, missing), value=-math.inf)

    @torch.no_grad()
    def __call__(self, v: Float[Tensor, "rows width"]) -> Winners:
        """The token whose logit is strictly the largest, of the exact products."""
        v = v.to(self.readout.dtype)
        token = torch.empty(len(v), dtype=torch.int64)
        lead = torch.empty(len(v), dtype=torch.float64)
        for start in range(0, len(v), BLOCK):
            here = slice(start, min(start + BLOCK, len(v)))
            rows = here.stop - start
            block = v[here] if rows == BLOCK else pad(v[here], (0, 0, 0, BLOCK - rows))
            logits = dense(block, self._rows, self._bias)
            token[here], lead[here] = self._best(logits[:rows])
        close = (lead <= 2 * self.readout.margin(v)).nonzero()[:, 0]
        decided = winners(self.model, v[close])
        token[close] = decided.token
        near = torch.zeros(len(v), dtype=torch.bool)
        near[close] = decided.near
        return Winners(token, near)

    def _best(
        self, logits: Float[Tensor, "rows folded"]
    ) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
        """The largest logit's token and its lead over the second."""
        folded = logits.view(len(logits), -1, self.lanes)
        by_lane = folded.amax(1)
        best, lane = by_lane.max(1)
        column = folded[torch.arange(len(logits)), :, lane]
        place = column.argmax(1)
        by_lane.scatter_(1, lane[:, None], -math.inf)
        column.scatter_(1, place[:, None], -math.inf)
        second = torch.maximum(by_lane.amax(1), column.amax(1))
        return place * self.lanes + lane, best - second
