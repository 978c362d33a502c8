"""Models by name, folder and GGUF file; every refusal is one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import longshot as ls
from longshot.models import Model
from tests.models.hf_models import SIZES, VOCAB, hf_model, hf_tokenizer
from tests.toys import toy_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(hf_model("Llama"), tmp_path / "my-model-1.5B")


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    hf_tokenizer().save_pretrained(folder)
    return folder


def tokens() -> torch.Tensor:
    return torch.randint(VOCAB, (9, 6), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def logits(model: Model) -> torch.Tensor:
    return model.network.activation(model.embed(tokens())) @ model.unembedding.float()


@torch.no_grad()
def reference(model: Any) -> torch.Tensor:
    out: torch.Tensor = model(input_ids=tokens()).logits[:, -1]
    return out


def refusal(name: Any, **options: Any) -> str:
    """The one sentence."""
    with pytest.raises(ls.LongshotError) as caught:
        ls.load_model(name, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence[-1] in ".?!"
    return sentence


def test_a_folder(folder: Path) -> None:
    model = ls.load_model(f"hf:{folder}")
    assert (model.name, model.source) == ("my-model-1.5B", str(folder))
    assert torch.allclose(logits(model), reference(hf_model("Llama")), atol=1e-5)
    assert model.tokenizer.bos == 0
    assert model.tokenizer.single("c") == 3
    again = ls.load_model(f"hf:{folder}")
    assert again.fingerprint == model.fingerprint
    inputs = ls.load_inputs(template(folder), model)
    assert inputs.length == 3
    assert ls.estimate(model, inputs, "c", method="naive", budget=64).samples == 64


def template(folder: Path) -> Path:
    path = folder / "t.toml"
    path.write_text('[inputs]\nname = "t"\ntext = "a{x}"\n[slots.x]\nchoices = ["b", "c"]\n')
    return path


def test_the_file_s_precision_is_kept_unless_another_is_asked_for(tmp_path: Path) -> None:
    folder = saved(hf_model("Llama", torch.bfloat16), tmp_path)
    assert ls.load_model(f"hf:{folder}").embedding.dtype == torch.bfloat16
    assert ls.load_model(f"hf:{folder}", dtype=torch.float32).embedding.dtype == torch.float32


def test_a_model_that_was_downloaded_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's cache as its client lays it out."""
    cache = folder.parent / "cache"
    commit = "c" * 40
    repository = cache / "models--some--llama"
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for module in ("huggingface_hub.constants.HF_HUB_CACHE", "transformers.utils.hub.HF_HUB_CACHE"):
        monkeypatch.setattr(module, str(cache), raising=False)
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(cache))
    model = ls.load_model("hf:some/llama")
    assert (model.name, model.source) == ("llama", f"hub: some/llama@{commit}")
    assert torch.allclose(logits(model), reference(hf_model("Llama")), atol=1e-5)


def test_a_gguf_file(tmp_path: Path) -> None:
    theirs = hf_model("Llama", head_dim=8, attention_bias=False)
    write_gguf(theirs, tmp_path / "toy.gguf")
    model = ls.load_model(f"hf:{tmp_path}#toy.gguf")
    assert model.name == "toy"
    assert torch.allclose(logits(model), reference(theirs), atol=1e-4)
    assert model.tokenizer.encode("abc") == [VOCAB - 1, 3]


def test_a_gguf_file_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_gguf(hf_model("Llama", head_dim=8, attention_bias=False), tmp_path / "toy.gguf")
    name = f"hf:{tmp_path}#toy.gguf"
    first = ls.load_model(name)
    (copy,) = (tmp_path / "cache" / "longshot" / "gguf").iterdir()
    weights = copy / "model.safetensors"
    assert weights.is_file()
    written = weights.stat().st_mtime_ns
    second = ls.load_model(name)
    assert (second.fingerprint, second.name, second.source) == (
        first.fingerprint,
        first.name,
        first.source,
    )
    assert weights.stat().st_mtime_ns == written
    weights.write_bytes(weights.read_bytes()[:100])  # damaged: made again
    assert ls.load_model(name).fingerprint == first.fingerprint
    assert weights.stat().st_size > 100
    write_gguf(hf_model("Llama", head_dim=8, attention_bias=False), tmp_path / "toy.gguf")
    with (tmp_path / "toy.gguf").open("ab") as file:
        file.write(b"\0" * 64)  # another file of the same name
    ls.load_model(name)
    assert len(list((tmp_path / "cache" / "longshot" / "gguf").iterdir())) == 2


def write_gguf(model: Any, path: Path) -> None:
    """Our Llama with the toy tokenizer in llama.cpp's format."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_context_length(SIZES["max_position_embeddings"])
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_vocab_size(VOCAB)
    backend = toy_tokenizer(VOCAB).backend
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*(backend.id_to_token(i) for i in range(VOCAB - 1)), "ab"])
    writer.add_token_types([3] + [1] * (VOCAB - 1))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers": "blk",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "post_attention_layernorm": "ffn_norm",
        "input_layernorm": "attn_norm",
    }
    for name, tensor in model.state_dict().items():
        heads = 2 if "q_proj" in name else 1 if "k_proj" in name else 0
        values = tensor
        if heads:  # llama.cpp turns pairs of neighbours, transformers halves of a head
            values = tensor.reshape(heads, 2, 4, 16).transpose(1, 2).reshape(tensor.shape)
        for theirs, short in names.items():
            name = name.replace(theirs, short)
        writer.add_tensor(name, np.ascontiguousarray(values.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_missing_files(folder: Path) -> None:
    assert "no model folder at nowhere" not in refusal("hf:nowhere")
    assert refusal("hf:./nowhere") == "There is no model folder at nowhere."
    assert refusal(f"hf:{folder}/deeper/still").startswith("There is no model folder at ")
    assert refusal(f"hf:{folder}#other.gguf") == f"There is no other.gguf in {folder}."
    assert "hub cannot be reached" in refusal("hf:gpt2")
    assert "neither a folder here nor" in refusal("hf:no such name")
    (folder / "model.safetensors").unlink()
    assert f"hf:{folder} cannot be loaded by transformers" in refusal(f"hf:{folder}")
    (folder / "config.json").unlink()
    assert refusal(f"hf:{folder}") == f"There is no config.json in {folder}."


def test_damaged_files(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"nothing")
    assert "cannot be loaded by transformers" in refusal(f"hf:{folder}")
    (folder / "config.json").write_text("{")
    assert "cannot be loaded by transformers" in refusal(f"hf:{folder}")


def test_a_checkpoint_that_lacks_tensors_is_not_filled_with_random_ones(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert "lacks the tensor model.layers.1.mlp.up_proj.weight (1 missing)" in refusal(
        f"hf:{folder}"
    )


def test_a_model_with_code_of_its_own_is_not_run(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"auto_map": {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}}
    config["model_type"] = "unheard-of"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('code was run')")
    assert "brings code of its own; trust_remote_code=True would run it" in refusal(f"hf:{folder}")


@pytest.mark.parametrize("family", ["Bert", "DistilBert"])
def test_an_encoder(family: str, tmp_path: Path) -> None:
    import transformers

    sizes: dict[str, Any] = {"dim": 16, "n_heads": 2, "n_layers": 2, "hidden_dim": 24}
    if family == "Bert":
        sizes = {name: size for name, size in SIZES.items() if name.startswith(("num", "hidden"))}
    config = getattr(transformers, f"{family}Config")(**sizes, vocab_size=VOCAB, pad_token_id=0)
    model = getattr(transformers, f"{family}ForMaskedLM")(config)
    folder = saved(model, tmp_path)
    sentence = refusal(f"hf:{folder}")
    assert "is not causal" in sentence or "is no causal language model" in sentence
    assert "encoder" in refusal(model, tokenizer=hf_tokenizer())


def test_an_encoder_with_a_decoder() -> None:
    import transformers

    config = transformers.T5Config(
        vocab_size=VOCAB, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2
    )
    model = transformers.T5ForConditionalGeneration(config)
    assert "is an encoder with a decoder" in refusal(model, tokenizer=hf_tokenizer())


def test_a_model_without_its_head() -> None:
    base = hf_model("Llama").model
    assert "has no unembedding" in refusal(base, tokenizer=hf_tokenizer())


def test_a_model_that_does_something_before_its_unembedding(folder: Path) -> None:
    """A factor that no config names: seen, and refused with the reason."""
    import transformers

    class Odd(transformers.LlamaForCausalLM):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            output.logits = output.logits + 0.1 * output.logits.roll(1, -1)
            return output

    odd = Odd.from_pretrained(folder)
    sentence = refusal(odd, tokenizer=hf_tokenizer())
    assert "(Odd) was refused: on random tokens its logits are not" in sentence


def test_tokenizers_that_do_not_fit(folder: Path) -> None:
    assert "needs its tokenizer" in refusal(hf_model("Llama"))
    assert "belongs to another model" in refusal(hf_model("Llama"), tokenizer=hf_tokenizer(20))

    class Slow:
        bos_token_id = 0

    assert "Slow is not a fast tokenizer" in refusal(hf_model("Llama"), tokenizer=Slow())
    assert "no hf: model" in refusal("mini-1l", tokenizer=hf_tokenizer())
    assert "A Linear is no model that longshot knows" in refusal(torch.nn.Linear(2, 2))


def test_a_target_that_is_no_token(folder: Path) -> None:
    model = ls.load_model(f"hf:{folder}")
    inputs = ls.load_inputs(template(folder), model)
    with pytest.raises(ls.LongshotError, match="'ab' is 2 tokens: 'a' \\+ 'b'"):
        ls.estimate(model, inputs, "ab", budget=8)
    with pytest.raises(ls.LongshotError, match=r"Token 99 is outside my-model-1\.5B's vocabulary"):
        ls.estimate(model, inputs, 99, budget=8)


def test_without_transformers_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    assert (
        "pip install '.[hf]' in a clone of longshot, or pip install 'longshot-lm[hf]'."
        in refusal("hf:gpt2")
    )
