"""The paper's architecture: a pre-layer-norm transformer with exact GELU, in plain torch.

    x      = W_E[token] + W_pos[position]
    x      = x + Attention(LN1(x))        in every layer
    x      = x + W_out·GELU(W_in·LN2(x))  (left out when attention-only)
    v      = LN_final(x)                  the activation before the unembedding
    logits = v·W_U + b_U

Entry points: `logits` (every position), `activation` (the last position only, by the hand-written
passes of `pullback.py`, which can `resume` from a known beginning), and `prefix` with `extend` (a
prefix is run once, many continuations of it cost their own tokens).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear

from longshot.errors import LongshotError
from longshot.models.products import Linear
from longshot.models.pullback import LastActivation, Memory


@dataclass(frozen=True)
class GeluConfig:
    """The sizes of a network; `mlp_width` 0 means attention-only."""

    layers: int
    width: int
    heads: int
    head_width: int
    mlp_width: int
    context: int
    vocab_size: int
    epsilon: float = 1e-5


class KeysValues(NamedTuple):
    """One layer's keys and values of a prefix."""

    keys: Float[Tensor, "batch head prefix head_width"]
    values: Float[Tensor, "batch head prefix head_width"]


class PrefixCache(NamedTuple):
    """All that later tokens need to know of a prefix."""

    length: int
    layers: tuple[KeysValues, ...]


class LayerNorm(nn.Module):
    """Layer norm over the width, with a gain and a bias."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        return layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class Attention(nn.Module):
    """Causal self-attention whose queries may be fewer than its keys."""

    def __init__(self, config: GeluConfig) -> None:
        super().__init__()
        inner = config.heads * config.head_width
        self.heads = config.heads
        self.query = Linear(config.width, inner)
        self.key_value = Linear(config.width, 2 * inner)
        self.output = Linear(inner, config.width)

    def _split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """[batch, position, part·head·width] to `parts` of [batch, head, position, width]."""
        by_head = x.reshape(*x.shape[:2], parts, self.heads, -1)
        return by_head.permute(2, 0, 3, 1, 4).unbind(0)

    def keys_values(self, x: Float[Tensor, "batch position width"]) -> KeysValues:
        return KeysValues(*self._split(self.key_value(x), 2))

    def forward(
        self,
        x: Float[Tensor, "rows position width"],
        own: KeysValues,
        past: KeysValues | None = None,
        last_only: bool = False,
    ) -> Float[Tensor, "rows query width"]:
        """Attend from all positions of `x`, or from its last, to `past` and to its `own`.

        With a `past` of b prefixes, `x` has b·n rows: n continuations of each, in order.
        """
        (queries,) = self._split(self.query(x[:, -1:] if last_only else x), 1)
        queries = queries / math.sqrt(queries.shape[-1])
        scores = queries @ own.keys.mT
        if not last_only:  # the last position sees everything
            future = torch.full_like(scores[0, 0], -math.inf, requires_grad=False).triu(1)
            scores = scores + future
        if past is None:
            mixed = scores.softmax(-1) @ own.values
        else:
            prefix, shape = past.keys.shape[2], scores.shape
            past_scores = _each(_together(queries, past) @ past.keys.mT, shape)
            weights = torch.cat([past_scores, scores], -1).softmax(-1)
            from_past = _each(_together(weights[..., :prefix], past) @ past.values, shape)
            mixed = from_past + weights[..., prefix:] @ own.values
        out: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return out


def _together(x: Tensor, past: KeysValues) -> Tensor:
    """The rows of each prefix side by side: [b·n, head, query, k] to [b, head, n·query, k]."""
    return x.reshape(len(past.keys), -1, *x.shape[1:]).transpose(1, 2).flatten(2, 3)


def _each(x: Tensor, shape: torch.Size) -> Tensor:
    """The inverse of `_together`; `shape` is that of the rows' own scores."""
    return x.reshape(*x.shape[:2], -1, shape[2], x.shape[-1]).transpose(1, 2).flatten(0, 1)


class Block(nn.Module):
    """One layer: attention, then the MLP, each added to the residual stream."""

    def __init__(self, config: GeluConfig) -> None:
        super().__init__()
        self.norm_attention = LayerNorm(config.width, config.epsilon)
        self.attention = Attention(config)
        self.has_mlp = config.mlp_width > 0
        if self.has_mlp:
            self.norm_mlp = LayerNorm(config.width, config.epsilon)
            self.mlp_in = Linear(config.width, config.mlp_width)
            self.mlp_out = Linear(config.mlp_width, config.width)

    def forward(
        self,
        x: Float[Tensor, "rows position width"],
        past: KeysValues | None = None,
        last_only: bool = False,
    ) -> Float[Tensor, "rows query width"]:
        normed = self.norm_attention(x)
        attended = self.attention(normed, self.attention.keys_values(normed), past, last_only)
        return self.add(x[:, -1:] if last_only else x, attended)

    def add(
        self, x: Float[Tensor, "rows query width"], attended: Float[Tensor, "rows query width"]
    ) -> Float[Tensor, "rows query width"]:
        """What follows attention."""
        x = x + attended
        if self.has_mlp:
            x = x + self.mlp_out(gelu(self.mlp_in(self.norm_mlp(x))))
        return x


class GeluTransformer(nn.Module):
    """The network. Its parameters are created unset: load a state, or call `initialise`."""

    def __init__(self, config: GeluConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, config.width))
        self.positions = nn.Parameter(torch.empty(config.context, config.width))
        blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.blocks = cast(Sequence[Block], blocks)
        self.norm_final = LayerNorm(config.width, config.epsilon)
        self.unembedding = nn.Parameter(torch.empty(config.width, config.vocab_size))
        self.unembedding_bias = nn.Parameter(torch.zeros(config.vocab_size))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw every matrix from N(0, 1/fan-in), residual writes smaller with depth."""
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:  # torch has filled the biases from its global generator
                parameter.fill_(1 if "norm" in name and name.endswith("weight") else 0)
                continue
            scale = 1 / math.sqrt(self.config.width)
            if name in ("embedding", "positions"):
                scale = 0.02 if name == "positions" else 0.1
            elif name.endswith(("attention.output.weight", "mlp_out.weight")):
                scale = 1 / math.sqrt(2 * self.config.layers * parameter.shape[1])
            parameter.normal_(0, scale, generator=generator)

    def logits(
        self, tokens: Int[Tensor, "batch position"]
    ) -> Float[Tensor, "batch position vocab"]:
        """The logits at every position."""
        return linear(self.hidden(tokens), self.unembedding.mT, self.unembedding_bias)

    def hidden(
        self, tokens: Int[Tensor, "batch position"]
    ) -> Float[Tensor, "batch position width"]:
        """The activation before the unembedding at every position."""
        x = self._embed(self.embedding[tokens], 0)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.norm_final(x)
        return out

    def activation(
        self, embedded: Float[Tensor, "batch position width"]
    ) -> Float[Tensor, "batch width"]:
        """The activation before the unembedding at the last position, from token embeddings.

        Differentiable in them; in the weights only while these require a gradient.
        """
        trained = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())
        if not trained:
            return self.resume(embedded, self.memory(*embedded.shape[:2]), 0)
        x = self._embed(embedded, 0)
        for block in self.blocks[:-1]:
            x = block(x)
        return self._last(x, None)

    def memory(self, rows: int, positions: int) -> Memory:
        """Room for what inputs attend to, for `resume` to fill."""
        c = self.config
        room = self.positions.new_empty
        keys_values = [room(2, rows, c.heads, positions, c.head_width) for _ in range(c.layers - 1)]
        return [*keys_values, room(1, rows, 1, positions, c.width)]

    def resume(
        self, embedded: Float[Tensor, "rows tail width"], memory: Memory, start: int
    ) -> Float[Tensor, "rows width"]:
        """`activation` of inputs whose first `start` positions are in `memory`; it fills the rest.

        Differentiable in `embedded` alone.
        """
        x = self._embed(embedded, start)
        out: Tensor = LastActivation.apply(x, self, memory, start)  # type: ignore[no-untyped-call]
        return out

    def prefix(self, embedded: Float[Tensor, "batch prefix width"]) -> PrefixCache:
        """Run prefixes once and keep what their continuations will attend to."""
        x = self._embed(embedded, 0)
        layers = []
        for block in self.blocks:
            normed = block.norm_attention(x)
            layers.append(block.attention.keys_values(normed))
            if block is not self.blocks[-1]:
                x = block.add(x, block.attention(normed, layers[-1]))
        return PrefixCache(embedded.shape[1], tuple(layers))

    def extend(
        self, cache: PrefixCache, embedded: Float[Tensor, "batch continuation tail width"]
    ) -> Float[Tensor, "batch continuation width"]:
        """The activation after each continuation of each cached prefix."""
        x = self._embed(embedded.flatten(0, 1), cache.length)
        for block, past in zip(self.blocks[:-1], cache.layers, strict=False):
            x = block(x, past)
        return self._last(x, cache.layers[-1]).reshape(*embedded.shape[:2], -1)

    def macs(self, positions: int, prefix: int = 0) -> int:
        """Multiply-accumulates of `activation` on one input, or of `resume` after a prefix."""
        c, seen = self.config, prefix + positions
        return self._below_last(positions, seen) + self._dense + 2 * c.heads * c.width * seen

    def backward_macs(self, positions: int, prefix: int = 0) -> int:
        """Those of its gradient: as many again, and attention's to the positions themselves."""
        c = self.config
        inner, back = c.heads * c.head_width, positions * (c.layers - 1)
        again = 2 * positions * (back * inner + c.heads * c.width)
        return self.macs(positions, prefix) + again

    def prefix_macs(self, positions: int) -> int:
        """Those of `prefix`: the last layer makes its keys and values and nothing else."""
        c = self.config
        keys_values = 2 * c.width * c.heads * c.head_width
        return self._below_last(positions, positions) + positions * keys_values

    def leaf_macs(self, positions: int, prefix: int) -> int:
        """Those of one continuation by `extend`."""
        c, seen = self.config, prefix + positions
        inner = c.heads * c.head_width
        last = self._dense - 2 * c.width * inner + 2 * inner * (positions * c.width + seen)
        return self._below_last(positions, seen) + last

    @property
    def _dense(self) -> int:
        """A layer's products with its weights, at one position."""
        c = self.config
        return 4 * c.width * c.heads * c.head_width + 2 * c.width * c.mlp_width

    def _below_last(self, positions: int, seen: int) -> int:
        """All layers but the last, where all positions attend to all that is seen."""
        c = self.config
        return (c.layers - 1) * positions * (self._dense + 2 * c.heads * c.head_width * seen)

    def _embed(self, embedded: Tensor, start: int) -> Tensor:
        end = start + embedded.shape[-2]
        if end > self.config.context:  # a short slice of positions would broadcast in silence
            raise LongshotError(
                f"The input has {end} tokens, but the model's context is {self.config.context}."
            )
        return embedded + self.positions[start:end]

    def _last(self, x: Tensor, past: KeysValues | None) -> Tensor:
        out: Tensor = self.norm_final(self.blocks[-1](x, past, last_only=True)[:, 0])
        return out
