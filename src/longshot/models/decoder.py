"""Another package's causal model between its embedding and its unembedding.

    v      = s·FinalNorm(Blocks(embedded))    at the last position; s is the logits' scale, if any
    logits = v·W_U + s·b_U                    W_U tied to the embedding or not, b_U there or not
    theirs = c·tanh(logits/c)                 where the architecture soft-caps them (Gemma)

A soft cap is monotone, so it changes no argmax, no event and no probability. Scores, gradients and
gaps are those of the logits before it: for the samplers that is another guide than the capped
logit, one whose slope does not vanish, and the answer is the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longshot.errors import LongshotError
from longshot.models.base import Memory, at_least_float32, in_blocks

ROWS = 64  # of one call, where the memory suffices
GRAIN = 8  # a multiple of this, where so many fit
MEMORY = 2**29  # bytes that one call may keep for its gradient; a constant, so that runs agree

KeysValues = tuple[
    Float[Tensor, "rows head position key_width"], Float[Tensor, "rows head position value_width"]
]
"""One layer's keys and values."""


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
        """A cache that holds a copy of `layers`, or an empty one for so many rows."""

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
        return at_least_float32(self.decoder.hidden(embedded, cache)[:, -1]) * self.scale

    def rows(self, positions: int) -> int:
        """How many inputs of this length one call should take."""
        fit = min(self._most, MEMORY // max(1, positions * self.bytes_per_token))
        return max(1, fit - fit % GRAIN if fit > GRAIN else fit)

    def limit_rows(self, rows: int) -> None:
        """Take no more at once from now on."""
        self._most = rows

    def macs(self, positions: int, prefix: int = 0) -> int:
        """Multiply-accumulates of positions behind a known prefix; every expert is counted."""
        return positions * (self.decoder.dense + self.decoder.mixing * (prefix + positions))

    def backward_macs(self, positions: int, prefix: int = 0) -> int:
        """Those of the gradient: as many again, and attention's two products twice."""
        again = positions * (prefix + positions) * self.decoder.mixing
        return self.macs(positions, prefix) + again


class CachedDecoderNetwork(DecoderNetwork):
    """The same with a memory, where the architecture has a cache of keys and values."""

    def memory(self, rows: int, positions: int) -> Memory:
        """Room for each layer's keys, then its values: [1, rows, head, position, width]."""
        return [
            known.new_empty(1, rows, known.shape[1], positions, known.shape[3])
            for known in self._one_token
        ]

    @cached_property
    def _one_token(self) -> list[Tensor]:
        """The keys and values of some token, for their shapes."""
        cache = self.decoder.cache(rows=1)
        with torch.no_grad():
            self.decoder.hidden(self.embedding[None, :1], cache)
        return list(chain.from_iterable(self.decoder.layers(cache)))

    def resume(
        self, embedded: Float[Tensor, "rows tail width"], memory: Memory, start: int
    ) -> Float[Tensor, "rows activation"]:
        """`activation` of inputs whose first `start` positions are in `memory`; it fills the rest.

        Differentiable in `embedded`, not in what the memory holds.
        """
        end, found = start + embedded.shape[1], list[Tensor]()

        def run(here: slice) -> None:
            cache = self._cache([layer[0, here] for layer in memory], start)
            found.append(self._last(embedded[here], cache, start))
            known = chain.from_iterable(self.decoder.layers(cache))
            for layer, new in zip(memory, known, strict=True):
                layer[0, here, :, start:end] = new[:, :, start:].detach()

        in_blocks(self, len(embedded), end, run, ROWS)
        return torch.cat(found)

    def extend(
        self, embedded: Float[Tensor, "batch continuation tail width"], memory: Memory, start: int
    ) -> Float[Tensor, "batch continuation activation"]:
        """The activation after each continuation of each input's first `start` positions."""
        rows, found = embedded.flatten(0, 1), list[Tensor]()
        owner = torch.arange(len(rows), device=rows.device) // embedded.shape[1]

        def run(here: slice) -> None:
            cache = self._cache([layer[0, owner[here]] for layer in memory], start)
            found.append(self._last(rows[here], cache, start))

        in_blocks(self, len(rows), start + rows.shape[1], run, ROWS)
        return torch.cat(found).reshape(*embedded.shape[:2], -1)

    def extend_macs(self, continuations: int, positions: int, prefix: int) -> int:
        """Multiply-accumulates of all continuations of one input."""
        return continuations * self.macs(positions, prefix)

    def _cache(self, known: list[Float[Tensor, "rows head position _"]], start: int) -> Any:
        """A cache of the first `start` positions."""
        if not start:
            return self.decoder.cache(rows=len(known[0]))
        past = [layer[:, :, :start] for layer in known]
        return self.decoder.cache(list(zip(past[::2], past[1::2], strict=True)))


def dense_macs(blocks: nn.Module) -> int:
    """A multiply-accumulate for each number in a matrix that is not looked up."""
    return sum(
        weight.numel()
        for module in blocks.modules()
        if not isinstance(module, nn.Embedding)
        for weight in module.parameters(recurse=False)
        if weight.ndim > 1
    )
