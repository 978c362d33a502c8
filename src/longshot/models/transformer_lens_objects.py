"""TransformerLens models in memory: a `HookedTransformer`, or a `TransformerBridge`.

A bridge is a `transformers` model with hooks in it and is run as one. Hooks stay where they are, so
a model with an ablation in place is estimated with it.

TransformerLens may have folded or centred the weights. Folding changes no logit. A centred
unembedding takes the mean over all tokens off every logit: the argmax stays, and with it every
probability, but the target's logit, which guides two methods, is another than the raw model's.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from longshot.models.base import Model
from longshot.models.decoder import Decoder, KeysValues, dense_macs
from longshot.models.huggingface import HuggingFaceDecoder, assembled, frozen, is_a


def is_transformer_lens_model(value: object) -> bool:
    """Whether this is a TransformerLens model; told by its class, so that nothing is imported."""
    return is_a(value, "HookedTransformer") or is_a(value, "TransformerBridge")


def from_transformer_lens(model: Any, tokenizer: Any) -> Model:
    """A TransformerLens model with its own tokenizer, or with another; neither is changed."""
    name = str(getattr(model.cfg, "model_name", None) or type(model).__name__)
    decoder = BridgeDecoder(model, name) if is_a(model, "TransformerBridge") else LensDecoder(model)
    if _is_centred(decoder.unembedding):
        warnings.warn(
            f"{name} has a centred unembedding: the mean over all tokens is taken off each logit, "
            "so that itgis and mhis climb another logit than the raw model's; load it without "
            "processing for that one.",
            stacklevel=3,
        )
    own = getattr(model, "tokenizer", None)
    return assembled(decoder, own if tokenizer is None else tokenizer, name, "in memory")


def _is_centred(unembedding: Tensor) -> bool:
    mean = unembedding.double().mean(1)
    return bool(mean.abs().max() < 1e-3 * unembedding.double().std(1).max() / len(mean) ** 0.5)


class BridgeDecoder(HuggingFaceDecoder):
    """The model inside a bridge, whose logits must be the bridge's."""

    def __init__(self, bridge: Any, name: str) -> None:
        super().__init__(frozen(bridge.original_model), name)
        self._bridge = (bridge,)  # in a tuple, so that its weights are not counted twice

    def logits(self, tokens: Tensor) -> Tensor:
        last: Tensor = self._bridge[0](tokens, return_type="logits")[:, -1]
        return last


@dataclass
class CacheEntry:
    """One layer's keys and values as its attention asks for them: [rows, position, head, width]."""

    past_keys: Tensor
    past_values: Tensor

    def append(self, keys: Tensor, values: Tensor) -> KeysValues:
        self.past_keys = torch.cat([self.past_keys, keys], 1)
        self.past_values = torch.cat([self.past_values, values], 1)
        return self.past_keys, self.past_values


class LensDecoder(Decoder):
    """A `HookedTransformer` between its embedding and its unembedding."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = frozen(model)
        self.config: Any = self.model.cfg
        self.kind = type(model).__name__
        self.embedding = self.model.embed.W_E
        self.unembedding, self.bias = self.model.unembed.W_U, self.model.unembed.b_U
        self.context = self.config.n_ctx
        self.dense = dense_macs(self.model.blocks)
        self.mixing = 2 * self.config.n_layers * self.config.n_heads * self.config.d_head
        cap = getattr(self.config, "output_logits_soft_cap", None)
        self.cap = cap if cap and cap > 0 else None  # they write −1 for none

    def hidden(self, embedded: Tensor, cache: Any = None) -> Tensor:
        if self.config.positional_embedding_type == "standard":
            start = cache[0].past_keys.shape[1] if cache else 0
            embedded = embedded + self.model.pos_embed.W_pos[start : start + embedded.shape[1]]
        residual: Tensor = self.model(
            embedded, start_at_layer=0, stop_at_layer=self.config.n_layers, past_kv_cache=cache
        )
        return residual if self.config.normalization_type is None else self.model.ln_final(residual)

    def logits(self, tokens: Tensor) -> Tensor:
        last: Tensor = self.model(tokens, return_type="logits")[:, -1]
        return last

    def cache(self, layers: Sequence[KeysValues] = (), rows: int = 0) -> list[CacheEntry]:
        c = self.config
        empty = self.embedding.new_empty(rows, 0, c.n_key_value_heads or c.n_heads, c.d_head)
        if not layers:
            return [CacheEntry(empty, empty) for _ in range(c.n_layers)]
        return [CacheEntry(keys.transpose(1, 2), values.transpose(1, 2)) for keys, values in layers]

    def layers(self, cache: list[CacheEntry]) -> list[KeysValues]:
        return [(x.past_keys.transpose(1, 2), x.past_values.transpose(1, 2)) for x in cache]
