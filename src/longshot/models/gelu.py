"""The paper's architecture: a pre-layer-norm transformer with exact GELU, in plain torch.

    x      = W_E[token] + W_pos[position]
    x      = x + Attention(LN1(x))        in every layer
    x      = x + W_out·GELU(W_in·LN2(x))  (left out when attention-only)
    v      = LN_final(x)                  the activation before the unembedding
    logits = v·W_U + b_U

Entry points: `logits` (every position), `activation` (the last position only), and those of a
`CachedNetwork`: `memory`, `resume` and `extend`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear

from longshot.errors import LongshotError
from longshot.models.base import Memory, at_least_float32
from longshot.models.products import product
from longshot.models.pullback import LastActivation


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
    """Causal self-attention, of all positions or of the last alone."""

    def __init__(self, config: GeluConfig) -> None:
        super().__init__()
        inner = config.heads * config.head_width
        self.heads, self.scale = config.heads, 1 / math.sqrt(config.head_width)
        self.query = nn.Linear(config.width, inner)
        self.key_value = nn.Linear(config.width, 2 * inner)
        self.output = nn.Linear(inner, config.width)

    def forward(
        self,
        n: Float[Tensor, "rows position width"],
        past: Float[Tensor, "2 batch head prefix head_width"],
        last_only: bool,
    ) -> Float[Tensor, "rows query width"]:
        """Attend from all positions, or from the last, to what is known and to their own.

        Each of the batch has rows/batch continuations, in order.
        """
        query, key_value, scale = self.query, self.key_value, self.scale
        weight = torch.cat([query.weight * scale, key_value.weight])
        bias = torch.cat([query.bias * scale, key_value.bias])
        queries, own = self._by_head(product(n, weight, bias), 3).split([1, 2])
        queries = queries[0, :, :, -1:] if last_only else queries[0]
        mixed = _mix(queries, own, past).transpose(1, 2).flatten(2)
        return product(mixed, self.output.weight, self.output.bias)

    def keys_values(
        self, n: Float[Tensor, "rows position width"]
    ) -> Float[Tensor, "2 rows head position head_width"]:
        made = product(n, self.key_value.weight, self.key_value.bias)
        return self._by_head(made, 2)

    def _by_head(self, x: Tensor, parts: int) -> Float[Tensor, "part rows head position width"]:
        width = x.shape[2] // (parts * self.heads)
        return x.view(*x.shape[:2], parts, self.heads, width).permute(2, 0, 3, 1, 4)


def _mix(
    queries: Float[Tensor, "rows head query width"],
    own: Float[Tensor, "2 rows head tail width"],
    past: Float[Tensor, "2 batch head prefix width"],
) -> Float[Tensor, "rows head query width"]:
    """What queries read of the positions before them: softmax_j(q·k_j)·v_j."""
    count, prefix = queries.shape[2], past.shape[3]
    scores = queries @ own[0].mT
    if count > 1:  # the last position sees everything
        scores = scores + torch.full_like(scores[0, 0], -math.inf, requires_grad=False).triu(1)
    past_scores = _each(_together(queries, past) @ past[0].mT, count)
    a = torch.cat([past_scores, scores], -1).softmax(-1)
    from_past = _each(_together(a[..., :prefix], past) @ past[1], count)
    return from_past + a[..., prefix:] @ own[1]


def _together(x: Tensor, past: Tensor) -> Tensor:
    """The rows of each prefix side by side: [b·n, head, query, k] to [b, head, n·query, k]."""
    batch = past.shape[1]
    return x.reshape(batch, len(x) // batch, *x.shape[1:]).transpose(1, 2).flatten(2, 3)


def _each(x: Tensor, queries: int) -> Tensor:
    """The inverse of `_together`."""
    n = x.shape[2] // queries
    return x.reshape(*x.shape[:2], n, queries, x.shape[3]).transpose(1, 2).flatten(0, 1)


class Block(nn.Module):
    """One layer: attention, then the MLP, each added to the residual stream."""

    def __init__(self, config: GeluConfig) -> None:
        super().__init__()
        self.norm_attention = LayerNorm(config.width, config.epsilon)
        self.attention = Attention(config)
        self.has_mlp = config.mlp_width > 0
        if self.has_mlp:
            self.norm_mlp = LayerNorm(config.width, config.epsilon)
            self.mlp_in = nn.Linear(config.width, config.mlp_width)
            self.mlp_out = nn.Linear(config.mlp_width, config.width)

    def forward(
        self,
        x: Float[Tensor, "rows position width"],
        past: Float[Tensor, "2 batch head prefix head_width"],
        last_only: bool = False,
    ) -> Float[Tensor, "rows query width"]:
        """The stream after this layer, at all positions or at the last alone."""
        attended = self.attention(self.norm_attention(x), past, last_only)
        x = (x[:, -1:] if last_only else x) + attended
        if self.has_mlp:
            z = product(self.norm_mlp(x), self.mlp_in.weight, self.mlp_in.bias)
            x = x + product(gelu(z), self.mlp_out.weight, self.mlp_out.bias)
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
        nothing = [self._no_past(len(tokens))] * self.config.layers
        return self._run(self.embedding[tokens], 0, nothing, last_only=False)

    def activation(
        self, embedded: Float[Tensor, "batch position width"]
    ) -> Float[Tensor, "batch width"]:
        """The activation before the unembedding at the last position, from token embeddings.

        Differentiable in them, and in the weights while these require a gradient.
        """
        if torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters()):
            return self.extend(embedded[:, None], self.memory(len(embedded), 0), 0)[:, 0]
        return self.resume(embedded, self.memory(*embedded.shape[:2]), 0)

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

        Differentiable in `embedded` alone, by the hand-written passes of `pullback.py`.
        """
        x = self._placed(embedded, start)
        out: Tensor = LastActivation.apply(x, self, memory, start)  # type: ignore[no-untyped-call]
        return at_least_float32(out)

    def extend(
        self,
        embedded: Float[Tensor, "batch continuation tail width"],
        memory: Memory,
        start: int,
    ) -> Float[Tensor, "batch continuation width"]:
        """The activation after each continuation of each input's first `start` positions.

        The last layer makes keys and values after all, once for all continuations of an input.
        """
        last = self.blocks[-1].attention.keys_values(memory[-1][0, :, 0, :start])
        past = [*(layer[..., :start, :] for layer in memory[:-1]), last]
        found = self._run(embedded.flatten(0, 1), start, past)
        return at_least_float32(found.reshape(*embedded.shape[:2], -1))

    def macs(self, positions: int, prefix: int = 0) -> int:
        """Multiply-accumulates of `activation` on one input, or of `resume` after a prefix.

        Those with the zeros that fill a product up are not counted.
        """
        c, seen = self.config, prefix + positions
        return self._below_last(positions, seen) + self._dense + 2 * c.heads * c.width * seen

    def backward_macs(self, positions: int, prefix: int = 0) -> int:
        """Those of its gradient: as many again, and attention's to the positions themselves."""
        c = self.config
        inner, back = c.heads * c.head_width, positions * (c.layers - 1)
        again = 2 * positions * (back * inner + c.heads * c.width)
        return self.macs(positions, prefix) + again

    def extend_macs(self, continuations: int, positions: int, prefix: int) -> int:
        """Those of all continuations of one input by `extend`."""
        c, seen = self.config, prefix + positions
        inner = c.heads * c.head_width
        own = self._dense + 3 * c.width * inner * (positions - 1) + 2 * inner * seen
        each = self._below_last(positions, seen) + own
        return 2 * c.width * inner * prefix + continuations * each

    @property
    def _dense(self) -> int:
        """A layer's products with its weights, at one position."""
        c = self.config
        return 4 * c.width * c.heads * c.head_width + 2 * c.width * c.mlp_width

    def _below_last(self, positions: int, seen: int) -> int:
        """All layers but the last, where all positions attend to all that is seen."""
        c = self.config
        return (c.layers - 1) * positions * (self._dense + 2 * c.heads * c.head_width * seen)

    def _no_past(self, rows: int) -> Tensor:
        c = self.config
        return self.positions.new_empty(2, rows, c.heads, 0, c.head_width)

    def _placed(self, embedded: Tensor, start: int) -> Tensor:
        end = start + embedded.shape[1]
        if end > self.config.context:  # a short slice of positions would broadcast in silence
            raise LongshotError(
                f"The input has {end} tokens, but the model's context is {self.config.context}."
            )
        return embedded + self.positions[start:end]

    def _run(
        self, embedded: Tensor, start: int, past: Sequence[Tensor], last_only: bool = True
    ) -> Float[Tensor, "rows query width"]:
        """The stream after the final norm, of tokens that stand from `start` on."""
        x = self._placed(embedded, start)
        for block, known in zip(self.blocks, past, strict=True):
            x = block(x, known, last_only and block is self.blocks[-1])
        out: Tensor = self.norm_final(x)
        return out
