"""Models written to disk, in our format and in TransformerLens's, for tests that read them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from longshot.models.gelu import GeluTransformer
from tests.toys import toy_network, toy_tokenizer


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def our_config(network: GeluTransformer) -> dict[str, Any]:
    return {"format": "longshot-gelu", **asdict(network.config), "licence": "MIT"}


def write_config_and_weights(folder: Path, network: GeluTransformer) -> Path:
    """A folder in our format but for its tokenizer; returns its weights file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", our_config(network))
    save_file(network.state_dict(), folder / "model.safetensors")
    return folder / "model.safetensors"


def write_ours(folder: Path, network: GeluTransformer | None = None) -> Path:
    """A folder in our format; returns its weights file."""
    network = network or toy_network()
    weights = write_config_and_weights(folder, network)
    toy_tokenizer(network.config.vocab_size).backend.save(str(folder / "tokenizer.json"))
    return weights


def their_config(network: GeluTransformer) -> dict[str, Any]:
    """The keys that the hub's `config.json` files have."""
    c = network.config
    return {
        "n_layers": c.layers,
        "d_model": c.width,
        "n_heads": c.heads,
        "d_head": c.head_width,
        "d_mlp": c.mlp_width or 4 * c.width,  # theirs names a size that attention-only ignores
        "n_ctx": c.context,
        "d_vocab": c.vocab_size,
        "act_fn": "gelu",
        "normalization": "LN",
        "attn_only": c.mlp_width == 0,
        "shortformer_pos": False,
    }


def their_state(network: GeluTransformer) -> dict[str, Tensor]:
    """The state dict that TransformerLens would have saved, buffers included."""
    c, ours = network.config, network.state_dict()
    theirs = {
        "embed.W_E": ours["embedding"],
        "pos_embed.W_pos": ours["positions"],
        "ln_final.w": ours["norm_final.weight"],
        "ln_final.b": ours["norm_final.bias"],
        "unembed.W_U": ours["unembedding"],
        "unembed.b_U": ours["unembedding_bias"],
    }
    for layer in range(c.layers):
        block = f"blocks.{layer}."
        attention = f"{block}attention."
        query = ours[f"{attention}query.weight"], ours[f"{attention}query.bias"]
        key_value = zip(
            ours[f"{attention}key_value.weight"].chunk(2),
            ours[f"{attention}key_value.bias"].chunk(2),
            strict=True,
        )
        for letter, (weight, bias) in zip("QKV", (query, *key_value), strict=True):
            by_head = weight.reshape(c.heads, c.head_width, c.width)
            theirs[f"{block}attn.W_{letter}"] = by_head.transpose(1, 2)
            theirs[f"{block}attn.b_{letter}"] = bias.reshape(c.heads, c.head_width)
        output = ours[f"{attention}output.weight"].T
        theirs[f"{block}attn.W_O"] = output.reshape(c.heads, c.head_width, c.width)
        theirs[f"{block}attn.b_O"] = ours[f"{attention}output.bias"]
        theirs[f"{block}attn.mask"] = torch.ones(c.context, c.context, dtype=torch.bool).tril()
        theirs[f"{block}attn.IGNORE"] = torch.tensor(-torch.inf)
        theirs[f"{block}ln1.w"] = ours[f"{block}norm_attention.weight"]
        theirs[f"{block}ln1.b"] = ours[f"{block}norm_attention.bias"]
        if c.mlp_width:
            theirs[f"{block}ln2.w"] = ours[f"{block}norm_mlp.weight"]
            theirs[f"{block}ln2.b"] = ours[f"{block}norm_mlp.bias"]
            theirs[f"{block}mlp.W_in"] = ours[f"{block}mlp_in.weight"].T
            theirs[f"{block}mlp.b_in"] = ours[f"{block}mlp_in.bias"]
            theirs[f"{block}mlp.W_out"] = ours[f"{block}mlp_out.weight"].T
            theirs[f"{block}mlp.b_out"] = ours[f"{block}mlp_out.bias"]
    return theirs


def write_theirs(folder: Path, network: GeluTransformer | None = None) -> Path:
    """A folder in TransformerLens's format; returns its weights file."""
    network = network or toy_network()
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", their_config(network))
    torch.save(their_state(network), folder / "model_final.pth")
    toy_tokenizer(network.config.vocab_size).backend.save(str(folder / "tokenizer.json"))
    return folder / "model_final.pth"
