"""Logits against TransformerLens's `HookedTransformer`, on random weights in its own file format.

Run by `make test-compat` in an environment of its own. Nothing is downloaded: the reference is
built from a config, its state dict is saved as the hub's files are, and our loader reads it.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from longshot.models import Model, load_model
from longshot.models.gelu import GeluTransformer
from tests.toys import toy_tokenizer

pytestmark = pytest.mark.compat

VOCAB, CONTEXT = 40, 24
SHAPES = [(1, False), (2, False), (4, False), (1, True), (2, True), (4, True)]


def reference(layers: int, attention_only: bool) -> Any:
    """Their network with every parameter drawn, since theirs starts with biases at zero."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what that package and its own dependencies deprecate
        import transformer_lens as lens

        config = lens.HookedTransformerConfig(
            n_layers=layers,
            d_model=48,
            n_heads=4,
            d_head=10,  # 4 · 10 is not 48: heads need not fill the width
            d_mlp=None if attention_only else 100,
            n_ctx=CONTEXT,
            d_vocab=VOCAB,
            act_fn="gelu",
            attn_only=attention_only,
            normalization_type="LN",
            init_weights=False,
            device="cpu",
        )
        network = lens.HookedTransformer(config)
    generator = torch.Generator().manual_seed(layers)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.normal_(0, 0.3, generator=generator)
            if (".ln" in name and name.endswith("w")) or name == "ln_final.w":
                parameter.add_(1)
    return network.eval()


def save(network: Any, folder: Path) -> None:
    """The three files of a hub repository: raw state dict, config, tokenizer."""
    plain = (int, float, str, bool, type(None))
    config = {k: v for k, v in network.cfg.to_dict().items() if isinstance(v, plain)}
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(network.state_dict(), folder / "model_final.pth")
    toy_tokenizer(VOCAB).backend.save(str(folder / "tokenizer.json"))


def tokens() -> torch.Tensor:
    return torch.randint(VOCAB, (16, CONTEXT), generator=torch.Generator().manual_seed(7))


def logits(model: Model) -> torch.Tensor:
    assert isinstance(model.network, GeluTransformer)
    return model.network.logits(tokens())


@pytest.mark.parametrize(("layers", "attention_only"), SHAPES)
@torch.no_grad()
def test_logits_are_theirs(tmp_path: Path, layers: int, attention_only: bool) -> None:
    network = reference(layers, attention_only)
    save(network, tmp_path)
    theirs, ours = network(tokens()), logits(load_model(tmp_path))
    assert ours.shape == theirs.shape == (16, CONTEXT, VOCAB)
    assert theirs.std() > 1  # large enough that 1e-4 means something
    difference = float((ours - theirs).abs().max())
    print(f"layers={layers} attention_only={attention_only} max |difference| = {difference:.1e}")
    assert difference < 1e-4


@torch.no_grad()
def test_their_processing_would_shift_every_logit(tmp_path: Path) -> None:
    """Why the raw weights are read: centring moves the target's logit, which two methods use."""
    network = reference(2, False)
    save(network, tmp_path)
    ours = logits(load_model(tmp_path))
    network.process_weights_(fold_ln=True, center_writing_weights=True, center_unembed=True)
    processed = network(tokens())
    shift = ours - processed
    assert shift.abs().max() > 0.1
    assert (shift - shift.mean(-1, keepdim=True)).abs().max() < 1e-3  # the same for every token


@torch.no_grad()
def test_the_check_can_fail(tmp_path: Path) -> None:
    """One bias moved by a hundredth, one head swapped with another: seen."""
    network = reference(2, False)
    theirs = network(tokens())
    network.blocks[1].attn.b_O[3] += 0.01
    save(network, tmp_path)
    assert (logits(load_model(tmp_path)) - theirs).abs().max() > 1e-4
    network.blocks[1].attn.b_O[3] -= 0.01
    network.blocks[0].attn.W_K.copy_(network.blocks[0].attn.W_K.flip(0))
    save(network, tmp_path)
    assert (logits(load_model(tmp_path)) - theirs).abs().max() > 1e-4
