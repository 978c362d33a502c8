"""Small random models of `transformers`, one for each family, with every parameter drawn."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch

from longshot.models.checkpoints import ZOO
from tests.toys import toy_tokenizer

VOCAB, CONTEXT = 12, 16
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 6,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
}
WINDOW = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
GEMMA = WINDOW | {"final_logit_softcapping": 2.0, "query_pre_attn_scalar": 6}
FAMILIES: dict[str, dict[str, Any]] = {
    "GPT2": {"n_inner": 24},  # learned positions, tied
    "GPTNeoX": {"rotary_pct": 0.5},  # parallel residual, untied; Pythia
    "Llama": {"attention_bias": True},
    "Qwen2": {"use_sliding_window": True, "max_window_layers": 1} | WINDOW,
    "Qwen3": {},  # norms of queries and keys
    "Gemma2": {"attn_logit_softcapping": 5.0} | GEMMA,  # scaled embedding, capped logits
    "Gemma3Text": GEMMA,
    "Mistral": {"sliding_window": 3},
    "OPT": {"ffn_dim": 24, "word_embed_proj_dim": 10},  # embedding narrower than the blocks
    "Cohere": {"logit_scale": 0.25},  # scaled logits
    "Phi": {"head_dim": 8},  # an unembedding with a bias
}


@cache
def hf_model(family: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A model in evaluation mode; shared, and never written to."""
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    config = getattr(transformers, f"{family}Config")(
        **(SIZES | FAMILIES.get(family, {}) | changes)
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.5, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1)
    return model.to(dtype).eval()


def hf_tokenizer(vocab: int = VOCAB) -> Any:
    """The toy tokenizer as `transformers` wraps it."""
    import transformers

    backend = toy_tokenizer(vocab).backend
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<|BOS|>")


CHATML = (
    "{% for m in messages %}{% if m.role not in ('system', 'user', 'assistant') %}"
    "{{ raise_exception('Who is ' ~ m.role ~ '?') }}{% endif %}"
    "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def chat_parts() -> tuple[Any, Any]:
    """A small random Llama of the shipped vocabulary, and a tokenizer with a chat template."""
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(ZOO / "tokenizer.json"), bos_token="<|BOS|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = CHATML
    network = hf_model("Llama", vocab_size=len(tokenizer), max_position_embeddings=128)
    return network, tokenizer
