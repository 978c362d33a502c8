"""TransformerLens's config and state dict in our own names.

Its attention matrices have a head axis (`W_Q` is [head, width, head_width]); ours are the usual
linear layers. Only the raw weights of a trained model are read: no folding, no centring.
"""

from __future__ import annotations

import math
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
# What a key may say where it is there; each of these changes the arithmetic. "normalization" and
# "shortformer_pos" are the spelling of the hub's files.
IMPLEMENTED: dict[str, tuple[Any, ...]] = {
    "act_fn": ("gelu",),
    "normalization": ("LN",),
    "normalization_type": ("LN",),
    "positional_embedding_type": ("standard",),
    "attention_dir": ("causal",),
    "use_attn_scale": (True,),
    "attn_scores_soft_cap": (-1.0,),  # their "off"
    "output_logits_soft_cap": (-1.0,),
    "n_key_value_heads": (None,),
    "num_experts": (None,),
    "clip_qkv": (None,),
    "shortformer_pos": (False,),
    "parallel_attn_mlp": (False,),
    "final_rms": (False,),
    "gated_mlp": (False,),
    "use_local_attn": (False,),
    "use_logn_attn": (False,),
    "use_qk_norm": (False,),
    "use_attention_sinks": (False,),
    "use_normalization_before_and_after": (False,),
    "post_embedding_ln": (False,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "tie_word_embeddings": (False,),
}
NULL_IS_A_CHOICE = ("act_fn", "normalization", "normalization_type")  # elsewhere: the default
BUFFERS = (".attn.mask", ".attn.IGNORE")  # the causal mask and its −inf, saved with the weights


def convert_config(raw: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """TransformerLens's keys to ours; a feature that is not implemented is refused by name."""
    attention_only = raw.get("attn_only", False)
    if not isinstance(attention_only, bool):
        raise LongshotError(f"{where}: attn_only is {attention_only!r}, neither true nor false.")
    if not attention_only and "act_fn" not in raw:
        raise LongshotError(f"{where} does not name its act_fn; only 'gelu' is implemented.")
    for key, allowed in (IMPLEMENTED | _sizes_that_follow(raw)).items():
        if key not in raw or (key == "act_fn" and attention_only):
            continue
        is_default = raw[key] is None and key not in NULL_IS_A_CHOICE
        if raw[key] not in allowed and not is_default:
            wanted = " or ".join(repr(a) for a in allowed)
            raise LongshotError(
                f"{where} asks for {key} = {raw[key]!r}; only {wanted} is implemented."
            )
    ours = {name: raw[theirs] for name, theirs in SIZES.items() if theirs in raw}
    ours.setdefault("epsilon", raw.get("ln_eps", 1e-5))
    if attention_only:
        ours["mlp_width"] = 0
    return ours


def _sizes_that_follow(raw: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What may stand where −1 means "as usual"."""
    follow: dict[str, tuple[Any, ...]] = {"d_vocab_out": (-1, raw.get("d_vocab"))}
    if type(head_width := raw.get("d_head")) is int and head_width > 0:
        follow["attn_scale"] = (-1.0, math.sqrt(head_width))
    return follow


def convert_state(
    theirs: Mapping[str, Tensor], config: GeluConfig, where: Path
) -> dict[str, Tensor]:
    """Their tensors under our names; the shapes are checked, since ours hide the head axis.

    A tensor that no name of ours takes up is refused: without it this would be another model.
    """
    left = {name for name in theirs if not name.endswith(BUFFERS)}
    heads, width, inner = config.heads, config.width, config.head_width

    def take(name: str, *shape: int) -> Tensor:
        if name not in theirs:
            raise LongshotError(f"{where} lacks the tensor {name}.")
        left.discard(name)
        tensor = theirs[name]
        if tensor.shape != shape:
            raise LongshotError(
                f"{where}: {name} has shape {tuple(tensor.shape)}, but the config asks for {shape}."
            )
        return tensor

    def heads_in(name: str) -> Tensor:  # [head, width, head_width] → [head·head_width, width]
        return take(name, heads, width, inner).transpose(1, 2).flatten(0, 1)

    def bias(name: str) -> Tensor:
        return take(name, heads, inner).flatten()

    ours = {
        "embedding": take("embed.W_E", config.vocab_size, width),
        "positions": take("pos_embed.W_pos", config.context, width),
        "norm_final.weight": take("ln_final.w", width),
        "norm_final.bias": take("ln_final.b", width),
        "unembedding": take("unembed.W_U", width, config.vocab_size),
    }
    ours["unembedding_bias"] = (
        take("unembed.b_U", config.vocab_size)
        if "unembed.b_U" in theirs
        else torch.zeros_like(ours["unembedding"][0])
    )
    for layer in range(config.layers):
        b = f"blocks.{layer}."
        ours |= {
            f"{b}norm_attention.weight": take(f"{b}ln1.w", width),
            f"{b}norm_attention.bias": take(f"{b}ln1.b", width),
            f"{b}attention.query.weight": heads_in(f"{b}attn.W_Q"),
            f"{b}attention.query.bias": bias(f"{b}attn.b_Q"),
            f"{b}attention.key_value.weight": torch.cat(
                [heads_in(f"{b}attn.W_K"), heads_in(f"{b}attn.W_V")]
            ),
            f"{b}attention.key_value.bias": torch.cat([bias(f"{b}attn.b_K"), bias(f"{b}attn.b_V")]),
            f"{b}attention.output.weight": (
                take(f"{b}attn.W_O", heads, inner, width).flatten(0, 1).mT
            ),
            f"{b}attention.output.bias": take(f"{b}attn.b_O", width),
        }
        if config.mlp_width:
            ours |= {
                f"{b}norm_mlp.weight": take(f"{b}ln2.w", width),
                f"{b}norm_mlp.bias": take(f"{b}ln2.b", width),
                f"{b}mlp_in.weight": take(f"{b}mlp.W_in", width, config.mlp_width).mT,
                f"{b}mlp_in.bias": take(f"{b}mlp.b_in", config.mlp_width),
                f"{b}mlp_out.weight": take(f"{b}mlp.W_out", config.mlp_width, width).mT,
                f"{b}mlp_out.bias": take(f"{b}mlp.b_out", width),
            }
    if left:
        raise LongshotError(
            f"{where} has a tensor {min(left)} that the config has no place for "
            f"({len(left)} such tensors)."
        )
    return ours
