"""Models from files, from the hub's cache and by name: what loads, and that it is the same."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import save_file

from longshot.errors import LongshotError
from longshot.models import Model, available, load_model
from longshot.models.checkpoints import ZOO
from longshot.models.gelu import GeluTransformer
from longshot.models.hub import TOKENIZER_REPOSITORY
from longshot.names import HUB, ZOO_NAMES
from tests.checkpoint_files import their_state, write_ours, write_theirs
from tests.toys import toy_network, toy_tokenizer

Writer = Callable[[Path, GeluTransformer], Path]
formats = pytest.mark.parametrize("write", [write_ours, write_theirs])


@formats
@pytest.mark.parametrize(("layers", "attention_only"), [(1, False), (3, False), (2, True)])
def test_folder_and_file(tmp_path: Path, write: Writer, layers: int, attention_only: bool) -> None:
    network = toy_network(layers=layers, attention_only=attention_only)
    weights = write(tmp_path / "mine", network)
    for path in (tmp_path / "mine", str(tmp_path / "mine"), weights):
        model = load_model(path)
        assert model.fingerprint == Model("m", network, toy_tokenizer(), 8).fingerprint
        assert model.source.startswith(str(tmp_path))
        assert (model.context, model.tokenizer.bos) == (8, 0)
        assert not any(p.requires_grad for p in model.network.parameters())  # type: ignore[attr-defined]


def test_names_come_from_the_folder(tmp_path: Path) -> None:
    write_ours(tmp_path / "mine")
    assert load_model(tmp_path / "mine").name == "mine"
    assert load_model(tmp_path / "mine").licence == "MIT"


def test_a_model_passes_through(toy: Model) -> None:
    assert load_model(toy) is toy


@formats
def test_dtype_is_the_user_s_choice(tmp_path: Path, write: Writer) -> None:
    write(tmp_path, toy_network())
    wide = load_model(tmp_path, dtype=torch.float64)
    assert wide.network.activation(wide.embed(torch.tensor([[0, 1]]))).dtype == torch.float64


def test_half_precision_weights_are_read(tmp_path: Path) -> None:
    state = {name: tensor.bfloat16() for name, tensor in toy_network().state_dict().items()}
    save_file(state, write_ours(tmp_path))
    assert torch.equal(load_model(tmp_path).embedding, state["embedding"].float())


def test_a_missing_unembedding_bias_is_zero(tmp_path: Path) -> None:
    state = their_state(toy_network())
    del state["unembed.b_U"]
    torch.save(state, write_theirs(tmp_path))
    assert not load_model(tmp_path).unembedding_bias.any()


def test_loading_leaves_the_global_random_state_alone(tmp_path: Path) -> None:
    write_ours(tmp_path)
    before = torch.random.get_rng_state()
    load_model(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("device", ["cuda", "warp9"])
def test_a_device_that_is_not_there(tmp_path: Path, device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    write_ours(tmp_path)
    with pytest.raises(LongshotError, match=f"placed on {device} as torch.float32"):
        load_model(tmp_path, device=device)


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(LongshotError, match="no model named 'mini-2'; did you mean 'mini-2l'"):
        load_model("mini-2")
    with pytest.raises(LongshotError, match="'gelu-1l'"):
        load_model("gelu1l")
    with pytest.raises(LongshotError, match=r"known: attn-only-1l, .*, mini-4l"):
        load_model("zzz")


@pytest.mark.parametrize("path", ["no/such/folder", "~nobody-here/m", "a\0b", "x" * 5000, "m.pth"])
def test_paths_that_lead_nowhere(path: str) -> None:
    with pytest.raises(LongshotError, match=r"no model (file|named)|neither a model's name nor"):
        load_model(path)


def test_the_hub_s_copy_on_this_machine_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache laid out as huggingface-hub does, read by its own code; no network is needed."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    network = toy_network()
    for repository in (HUB["gelu-2l"], TOKENIZER_REPOSITORY):
        folder = tmp_path / f"models--{repository.replace('/', '--')}"
        write_theirs(folder / "snapshots" / ("c" * 40), network)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("c" * 40)
    model = load_model("gelu-2l")
    assert model.fingerprint == Model("m", network, toy_tokenizer(), 8).fingerprint
    assert model.source == f"hub: {HUB['gelu-2l']}@{'c' * 40}"
    assert load_model(f"gelu-2l@{'c' * 40}").fingerprint == model.fingerprint


@pytest.mark.parametrize("setting", ["HF_HUB_OFFLINE", "HF_ENDPOINT"])
def test_without_a_network_the_hub_is_one_quick_sentence(tmp_path: Path, setting: str) -> None:
    """Offline by choice, and offline because no name resolves; each in a fresh process."""
    value = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "https://hub.invalid"}[setting]
    code = (
        "import time, torch; from longshot.models import load_model; start = time.perf_counter()\n"
        "try: load_model('gelu-1l')\n"
        "except Exception as e: print(type(e).__name__, time.perf_counter() - start, e, sep='|')"
    )
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "no_proxy"), "")
    environment = {**os.environ, **proxies, "HF_HOME": str(tmp_path), setting: value}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    kind, seconds, message = run.stdout.split("|")
    assert kind == "LongshotError"
    assert message.count("\n") == 1
    assert "the hub cannot be reached: connect to the network, or give the path" in message
    assert not run.stderr
    assert float(seconds) < 10  # the client alone would retry for 24 s


def test_a_tokenizer_s_name_that_is_no_repository(tmp_path: Path) -> None:
    write_theirs(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(LongshotError, match="its config names no tokenizer"):
        load_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tokenizer_name": "../../etc x"}))
    with pytest.raises(LongshotError, match="could not be fetched from the hub"):
        load_model(tmp_path)


@pytest.mark.parametrize(("name", "layers"), [("mini-1l", 1), ("mini-2l", 2), ("mini-4l", 4)])
def test_the_zoo(name: str, layers: int) -> None:
    start = time.process_time()  # a busy machine is not this model's fault
    model = load_model(name)
    assert time.process_time() - start < 1
    assert (ZOO / name / "model.safetensors").stat().st_size < 4_000_000
    assert (model.vocab_size, model.width, model.context, model.source) == (4096, 64, 64, "shipped")
    assert model.network.config.layers == layers  # type: ignore[attr-defined]
    assert model.tokenizer.vocab_size == 4096
    assert model.licence != "unknown"


@pytest.mark.parametrize("name", ZOO_NAMES)
def test_the_zoo_has_learnt_to_read(name: str) -> None:
    """Real models, not noise: the next word of a common phrase is among the first guesses."""
    model = load_model(name)
    for text, expected in (("for i in", " range"), ("The United", " States")):
        tokens = torch.tensor([[model.tokenizer.bos, *model.tokenizer.encode(text)]])
        logits = model.network.activation(model.embed(tokens)) @ model.unembedding
        best = (logits + model.unembedding_bias)[0].topk(10).indices.tolist()
        assert expected in [model.tokenizer.texts[token] for token in best]


def test_available_lists_all() -> None:
    rows = available()
    assert [row.name for row in rows[:3]] == list(ZOO_NAMES)
    assert {row.name: row.layers for row in rows}["attn-only-3l"] == 3
    assert len(rows) == 11


@pytest.mark.parametrize("name", ZOO_NAMES)
def test_a_model_computes_the_same_where_it_travels_to(name: str) -> None:
    """Bit for bit: matrix products round by the alignment of what they read."""
    model = load_model(name)
    tokens = torch.randint(4096, (64, 33), generator=torch.Generator().manual_seed(0))
    copy: Model = pickle.loads(pickle.dumps(model))
    assert torch.equal(
        copy.network.activation(copy.embed(tokens)), model.network.activation(model.embed(tokens))
    )
    assert all(tensor.data_ptr() % 64 == 0 for tensor in (model.embedding, model.unembedding))
