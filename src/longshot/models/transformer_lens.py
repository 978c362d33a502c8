"""TransformerLens's config and state dict in our own names.

Its attention matrices have a head axis (`W_Q` is [head, width, head_width]); ours are the usual
linear layers. Only the raw weights of a trained model are read: no folding, no centring.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longshot.errors import LongshotError
from longshot.models.gelu import GeluConfig

SIZES = {
    "layers": "n_layers",
    "width": "d_model",
    "heads": "n_heads",
    "head_width": "d_head",
    "mlp_width": "d_mlp",
    "context": "n_ctx",
    "vocab_size": "d_vocab",
    "epsilon": "eps",
}
IMPLEMENTED: dict[str, tuple[Any, ...]] = {
    "act_fn": ("gelu",),
    "normalization": ("LN",),
    "normalization_type": ("LN",),
    "positional_embedding_type": ("standard",),
    "attention_dir": ("causal",),
    "shortformer_pos": (False,),
    "parallel_attn_mlp": (False,),
    "final_rms": (False,),
    "gated_mlp": (False,),
    "use_local_attn": (False,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "tie_word_embeddings": (False,),
}


def convert_config(raw: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """TransformerLens's keys to ours; a feature that is not implemented is refused by name."""
    attention_only = bool(raw.get("attn_only", False))
    for key, allowed in IMPLEMENTED.items():
        if key == "act_fn" and attention_only:
            continue
        if key in raw and raw[key] is not None and raw[key] not in allowed:
            wanted = " or ".join(repr(a) for a in allowed)
            raise LongshotError(
                f"{where} asks for {key} = {raw[key]!r}; only {wanted} is implemented."
            )
    ours = {name: raw[theirs] for name, theirs in SIZES.items() if theirs in raw}
    ours.setdefault("epsilon", raw.get("ln_eps", 1e-5))
    if attention_only:
        ours["mlp_width"] = 0
    return ours


def convert_state(
    theirs: Mapping[str, Tensor], config: GeluConfig, where: Path
) -> dict[str, Tensor]:
    """Their tensors under our names; shapes and values are checked later."""

    def take(name: str, axes: int) -> Tensor:
        if name not in theirs:
            raise LongshotError(f"{where} lacks the tensor {name}.")
        tensor = theirs[name]
        if tensor.ndim != axes:
            raise LongshotError(
                f"{where}: {name} has shape {tuple(tensor.shape)}, expected {axes} axes."
            )
        return tensor

    def heads_in(name: str) -> Tensor:  # [head, width, head_width] → [head·head_width, width]
        return take(name, 3).transpose(1, 2).flatten(0, 1)

    ours = {
        "embedding": take("embed.W_E", 2),
        "positions": take("pos_embed.W_pos", 2),
        "norm_final.weight": take("ln_final.w", 1),
        "norm_final.bias": take("ln_final.b", 1),
        "unembedding": take("unembed.W_U", 2),
        "unembedding_bias": theirs.get("unembed.b_U", torch.zeros(config.vocab_size)),
    }
    for layer in range(config.layers):
        a, b = f"blocks.{layer}.", f"blocks.{layer}."
        ours |= {
            f"{b}norm_attention.weight": take(f"{a}ln1.w", 1),
            f"{b}norm_attention.bias": take(f"{a}ln1.b", 1),
            f"{b}attention.query.weight": heads_in(f"{a}attn.W_Q"),
            f"{b}attention.query.bias": take(f"{a}attn.b_Q", 2).flatten(),
            f"{b}attention.key_value.weight": torch.cat(
                [heads_in(f"{a}attn.W_K"), heads_in(f"{a}attn.W_V")]
            ),
            f"{b}attention.key_value.bias": torch.cat(
                [take(f"{a}attn.b_K", 2).flatten(), take(f"{a}attn.b_V", 2).flatten()]
            ),
            f"{b}attention.output.weight": take(f"{a}attn.W_O", 3).flatten(0, 1).mT,
            f"{b}attention.output.bias": take(f"{a}attn.b_O", 1),
        }
        if config.mlp_width:
            ours |= {
                f"{b}norm_mlp.weight": take(f"{a}ln2.w", 1),
                f"{b}norm_mlp.bias": take(f"{a}ln2.b", 1),
                f"{b}mlp_in.weight": take(f"{a}mlp.W_in", 2).mT,
                f"{b}mlp_in.bias": take(f"{a}mlp.b_in", 1),
                f"{b}mlp_out.weight": take(f"{a}mlp.W_out", 2).mT,
                f"{b}mlp_out.bias": take(f"{a}mlp.b_out", 1),
            }
    return ours
