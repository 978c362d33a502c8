"""TransformerLens models in memory against their own logits, and by enumeration."""

from __future__ import annotations

import copy
import itertools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import longshot as ls
from longshot.inputs import ProductInputs, TokenDistribution
from longshot.models import CachedNetwork, Model
from tests.models.hf_models import VOCAB, hf_model, hf_tokenizer

pytestmark = [pytest.mark.compat, pytest.mark.filterwarnings("default")]

FEATURES: dict[str, dict[str, Any]] = {
    "gelu": {"act_fn": "gelu", "normalization_type": "LN"},
    "attention-only": {"attn_only": True, "normalization_type": "LN"},
    "rotary": {
        "act_fn": "silu",
        "gated_mlp": True,
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
        "rotary_dim": 6,
        "n_key_value_heads": 1,
        "output_logits_soft_cap": 2.0,
    },
}


def hooked(features: str, seed: int = 3) -> Any:
    """A `HookedTransformer` with every parameter drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformer_lens as lens

        config = lens.HookedTransformerConfig(
            n_layers=2,
            d_model=16,
            n_heads=2,
            d_head=6,
            d_mlp=24,
            n_ctx=16,
            d_vocab=VOCAB,
            init_weights=False,
            device="cpu",
            **FEATURES[features],
        )
        network = lens.HookedTransformer(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.normal_(0, 0.5, generator=generator)
            if "ln" in name and name.endswith("w"):
                parameter.add_(1)
    return network.eval()


def bridge(family: str, folder: Path) -> Any:
    """A `TransformerBridge` around a small model of `transformers`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
        from transformer_lens.model_bridge import TransformerBridge

        hf_tokenizer().save_pretrained(folder)  # it wants a tokenizer that has a place
        return TransformerBridge.boot_transformers(
            family,
            hf_model=copy.deepcopy(hf_model(family, head_dim=8, num_key_value_heads=2)),
            tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
        )


def tokens(length: int = 7) -> torch.Tensor:
    return torch.randint(VOCAB, (9, length), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def logits(model: Model, rows: torch.Tensor) -> torch.Tensor:
    return model.network.activation(model.embed(rows)) @ model.unembedding + model.unembedding_bias


@torch.no_grad()
def theirs(network: Any, rows: torch.Tensor) -> torch.Tensor:
    """Their last logits, with the cap taken off."""
    last: torch.Tensor = network(rows, return_type="logits")[:, -1]
    cap = getattr(network.cfg, "output_logits_soft_cap", None) or -1.0
    return cap * torch.atanh(last / cap) if cap > 0 else last


@pytest.mark.parametrize("features", FEATURES)
def test_a_hooked_transformer(features: str) -> None:
    network = hooked(features)
    model = ls.load_model(network, tokenizer=hf_tokenizer())
    for length in (1, 7, 16):
        difference = logits(model, tokens(length)) - theirs(network, tokens(length))
        assert difference.abs().max() < 1e-3
    assert isinstance(model.network, CachedNetwork)
    assert all(parameter.requires_grad for parameter in network.parameters())  # left as it was
    check_by_enumeration(model, network)


@pytest.mark.parametrize("family", ["GPT2", "GPTNeoX", "Llama"])
def test_a_bridge_brings_its_tokenizer(family: str, tmp_path: Path) -> None:
    network = bridge(family, tmp_path)
    model = ls.load_model(network)
    assert model.tokenizer.single("c") == 3
    assert (logits(model, tokens()) - theirs(network, tokens())).abs().max() < 1e-4
    assert isinstance(model.network, CachedNetwork)
    check_by_enumeration(model, network)


def check_by_enumeration(model: Model, network: Any) -> None:
    wide = TokenDistribution.from_weights([1, 2, 3, 5, 7, 9, 11], [1, 2, 3, 4, 3, 2, 1])
    narrow = TokenDistribution.from_weights([0, 4, 6], [3, 1, 2])
    inputs = ProductInputs("toy", [TokenDistribution.fixed(0), wide, narrow, wide])
    rows = torch.tensor(list(itertools.product(*(d.support.tolist() for d in inputs.positions))))
    output, probability = theirs(network, rows).argmax(1), inputs.log_prob(rows).exp()
    exact = {t: float(probability[output == t].sum()) for t in range(VOCAB)}
    target = min((t for t in exact if exact[t] > 0.05), key=lambda t: exact[t])
    asked: dict[str, tuple[int, dict[str, Any]]] = {
        "naive": (1024, {}),
        "conditional": (256, {}),
        "itgis": (1024, {"temperature": 4}),
        "mhis": (4096, {"temperature": 4, "chains": 16}),  # fewer tell their error badly
    }
    for method, (budget, settings) in asked.items():
        answer = ls.estimate(model, inputs, target, method=method, budget=budget, **settings)
        error = answer.standard_error
        assert error is not None
        assert abs(answer.probability - exact[target]) < 4 * error


def test_a_folded_model_has_the_same_logits_and_a_centred_one_warns() -> None:
    raw = ls.load_model(hooked("gelu"), tokenizer=hf_tokenizer())
    folded = hooked("gelu")
    folded.process_weights_(fold_ln=True, center_writing_weights=True, center_unembed=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ls.load_model(folded, tokenizer=hf_tokenizer())
    assert (logits(model, tokens()) - logits(raw, tokens())).abs().max() < 1e-3
    centred = hooked("gelu")
    centred.process_weights_(fold_ln=True, center_writing_weights=True, center_unembed=True)
    with pytest.warns(UserWarning, match="has a centred unembedding"):
        model = ls.load_model(centred, tokenizer=hf_tokenizer())
    shift = logits(raw, tokens()) - logits(model, tokens())
    assert shift.abs().max() > 0.01
    assert (shift - shift.mean(1, keepdim=True)).abs().max() < 1e-3  # the same for every token


def test_a_bridge_in_compatibility_mode_warns(tmp_path: Path) -> None:
    network = bridge("Llama", tmp_path)
    raw = logits(ls.load_model(network), tokens())
    network.enable_compatibility_mode(disable_warnings=True)
    with pytest.warns(UserWarning, match="has a centred unembedding"):
        model = ls.load_model(network)
    assert (logits(model, tokens()) - theirs(network, tokens())).abs().max() < 1e-3
    assert torch.equal(logits(model, tokens()).argmax(1), raw.argmax(1))


def test_a_model_without_a_tokenizer() -> None:
    with pytest.raises(ls.LongshotError, match="needs its tokenizer"):
        ls.load_model(hooked("gelu"))
