"""Another package's causal model between its embedding and its unembedding.

    v      = s·FinalNorm(Blocks(embedded))    at the last position; s is the logits' scale, if any
    logits = v·W_U + s·b_U                    W_U tied to the embedding or not, b_U there or not
    theirs = c·tanh(logits/c)                 where the architecture soft-caps them (Gemma)

A soft cap is monotone, so it changes no argmax, no event and no probability. Scores, gradients and
gaps are those of the logits before it: for the samplers that is another guide than the capped
logit, one whose slope does not vanish, and the answer is the same.

A model in half precision runs in it; its activations, and all that is made of them, are float32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longshot.errors import LongshotError
from longshot.models.base import in_blocks

ROWS = 64  # of one call, where the memory suffices
GRAIN = 8  # a multiple of this, where so many fit
MEMORY = 2**29  # bytes that one call may keep for its gradient; a constant, so that runs agree

KeysValues = tuple[Tensor, Tensor]
"""One layer's keys and values; the first axis is the input."""


class Decoder(nn.Module):
    """What an adapter tells of a model."""

    kind: str
    """The model's class, for error messages."""
    embedding: Float[Tensor, "vocab width"]
    unembedding: Float[Tensor, "activation vocab"]
    bias: Float[Tensor, " vocab"] | None
    context: int
    dense: int
    """Multiply-accumulates of one position, attention's mixing apart."""
    mixing: int
    """Those of attention for every position that one position sees."""
    cap: float | None = None
    scales: tuple[float, ...] = (1.0,)
    """The factors that the logits may have; which of them it is, the check finds."""

    @abstractmethod
    def hidden(
        self, embedded: Float[Tensor, "batch position width"], cache: Any = None
    ) -> Float[Tensor, "batch position activation"]:
        """The activations after the final norm; what a `cache` holds stands before the input."""

    @abstractmethod
    def logits(self, tokens: Int[Tensor, "batch position"]) -> Float[Tensor, "batch vocab"]:
        """The model's own logits at the last position, as it computes them from tokens."""

    @abstractmethod
    def cache(self, layers: Sequence[KeysValues] = (), rows: int = 0) -> Any:
        """A cache of `layers`, or an empty one for so many rows."""

    @abstractmethod
    def layers(self, cache: Any) -> list[KeysValues]:
        """What a cache holds."""


class DecoderNetwork(nn.Module):
    """A decoder as a `Network`; `scale` and `bytes_per_token` are found by the check."""

    def __init__(self, decoder: Decoder, scale: float = 1.0, bytes_per_token: int = 0) -> None:
        super().__init__()
        self.decoder = decoder
        self.scale, self.bytes_per_token = scale, bytes_per_token
        self.embedding, self.unembedding = decoder.embedding, decoder.unembedding
        self.unembedding_bias = None if decoder.bias is None else decoder.bias * scale
        self._most: int = ROWS

    def activation(
        self, embedded: Float[Tensor, "batch position width"]
    ) -> Float[Tensor, "batch activation"]:
        """The activation before the unembedding at the last position."""
        return self._last(embedded)

    def _last(self, embedded: Tensor, cache: Any = None, seen: int = 0) -> Tensor:
        """The same behind a cache of `seen` positions."""
        if (length := seen + embedded.shape[1]) > self.decoder.context:
            raise LongshotError(
                f"The input has {length} tokens, but the model's context is {self.decoder.context}."
            )
        last = self.decoder.hidden(embedded, cache)[:, -1]
        return last.to(torch.promote_types(last.dtype, torch.float32)) * self.scale

    def rows(self, positions: int) -> int:
        """How many inputs of this length one call should take."""
        fit = min(self._most, MEMORY // max(1, positions * self.bytes_per_token))
        return max(1, fit - fit % GRAIN if fit > GRAIN else fit)

    def limit_rows(self, rows: int) -> None:
        """Take no more at once from now on."""
        self._most = rows

    def macs(self, positions: int) -> int:
        """Multiply-accumulates of one `activation`; every expert is counted."""
        return positions * (self.decoder.dense + self.decoder.mixing * positions)

    def backward_macs(self, positions: int) -> int:
        """Those of the gradient: as many again, and attention's two products twice."""
        return self.macs(positions) + positions * positions * self.decoder.mixing


class Prefix(NamedTuple):
    """Each layer's keys and values of some prefixes."""

    length: int
    layers: list[KeysValues]


class CachedDecoderNetwork(DecoderNetwork):
    """The same with a prefix cache, where the architecture has one that continuations can share."""

    def prefix(self, embedded: Float[Tensor, "batch prefix width"]) -> Prefix:
        """Run prefixes once and keep what their continuations will attend to."""
        found: list[list[KeysValues]] = []

        def run(here: slice) -> None:
            cache = self.decoder.cache(rows=here.stop - here.start)
            self._last(embedded[here], cache)
            found.append(self.decoder.layers(cache))

        in_blocks(self, len(embedded), embedded.shape[1], run, ROWS)
        layers = [
            (torch.cat([keys for keys, _ in blocks]), torch.cat([values for _, values in blocks]))
            for blocks in zip(*found, strict=True)
        ]
        return Prefix(embedded.shape[1], layers)

    def extend(
        self, cache: Prefix, embedded: Float[Tensor, "batch continuation tail width"]
    ) -> Float[Tensor, "batch continuation activation"]:
        """The activation after each continuation of each cached prefix."""
        rows = embedded.flatten(0, 1)
        owner = torch.arange(len(rows), device=rows.device) // embedded.shape[1]
        found: list[Tensor] = []

        def run(here: slice) -> None:
            past = [(keys[owner[here]], values[owner[here]]) for keys, values in cache.layers]
            found.append(self._last(rows[here], self.decoder.cache(past), cache.length))

        in_blocks(self, len(rows), cache.length + rows.shape[1], run, ROWS)
        return torch.cat(found).reshape(*embedded.shape[:2], -1)

    def prefix_macs(self, positions: int) -> int:
        """Multiply-accumulates of one prefix."""
        return self.macs(positions)

    def leaf_macs(self, positions: int, prefix: int) -> int:
        """Those of one continuation."""
        return positions * (self.decoder.dense + self.decoder.mixing * (prefix + positions))


def dense_macs(blocks: nn.Module) -> int:
    """A multiply-accumulate for each number in a matrix that is not looked up."""
    return sum(
        weight.numel()
        for module in blocks.modules()
        if not isinstance(module, nn.Embedding)
        for weight in module.parameters(recurse=False)
        if weight.ndim > 1
    )
