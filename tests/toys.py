"""Models small enough to enumerate every input of, for tests of anything above them.

Everything is random and nothing is symmetric: biases and layer-norm gains are drawn too, the heads
together are narrower than the residual stream, and no two sizes agree, so that a flipped sign, a
forgotten bias or a swapped axis cannot hide.
"""

from __future__ import annotations

import string

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from longshot.models import Model, Tokenizer
from longshot.models.gelu import GeluConfig, GeluTransformer

LETTERS = string.ascii_letters + string.digits


def toy_network(
    seed: int = 0,
    *,
    layers: int = 2,
    vocab: int = 8,
    width: int = 8,
    context: int = 8,
    attention_only: bool = False,
    dtype: torch.dtype = torch.float32,
) -> GeluTransformer:
    """A network of two heads of three with every parameter drawn from the seed."""
    config = GeluConfig(
        layers=layers,
        width=width,
        heads=2,
        head_width=3,
        mlp_width=0 if attention_only else 2 * width + 1,
        context=context,
        vocab_size=vocab,
    )
    network = GeluTransformer(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.normal_(0, 0.5, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1)
    return network.to(dtype).requires_grad_(False)


def toy_tokenizer(vocab: int = 8) -> Tokenizer:
    """A byte-level tokenizer: token 0 is BOS, then one token a letter: a is 1, b is 2, …"""
    symbols = LETTERS[: vocab - 1]
    assert len(symbols) == vocab - 1, f"a toy vocabulary has at most {len(LETTERS) + 1} tokens"
    ids = {"<|BOS|>": 0} | {symbol: i for i, symbol in enumerate(symbols, start=1)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|BOS|>"])
    return Tokenizer(backend)


def toy_model(
    seed: int = 0,
    *,
    layers: int = 2,
    vocab: int = 8,
    width: int = 8,
    context: int = 8,
    attention_only: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Model:
    """A whole model of a handful of tokens."""
    network = toy_network(
        seed,
        layers=layers,
        vocab=vocab,
        width=width,
        context=context,
        attention_only=attention_only,
        dtype=dtype,
    )
    return Model(f"toy-{seed}", network, toy_tokenizer(vocab), context)
