"""Files that are wrong, damaged or hostile: one sentence each, and nothing executed."""

from __future__ import annotations

import json
import pickle
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from longshot.errors import LongshotError
from longshot.models import load_model
from tests.checkpoint_files import their_state, write_json, write_ours, write_theirs
from tests.toys import toy_network, toy_tokenizer

formats = pytest.mark.parametrize("write", [write_ours, write_theirs])


def fault(path: Path) -> str:
    """The sentence that loading `path` ends with; any other exception fails the test."""
    with pytest.raises(LongshotError) as caught:
        load_model(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 1000
    return sentence


def change(path: Path, **settings: Any) -> None:
    write_json(path, json.loads(path.read_text()) | settings)


@formats
@pytest.mark.parametrize("name", ["config.json", "weights", "tokenizer.json"])
def test_a_missing_file(tmp_path: Path, write: Callable[[Path], Path], name: str) -> None:
    weights = write(tmp_path)
    (weights if name == "weights" else tmp_path / name).unlink()
    expected = "neither model.safetensors nor model_final.pth" if name == "weights" else name
    assert expected in fault(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("act_fn", "solu_ln"),
        ("act_fn", "gelu_new"),
        ("act_fn", None),
        ("normalization", "RMS"),
        ("normalization", None),
        ("normalization_type", "LNPre"),
        ("positional_embedding_type", "rotary"),
        ("attention_dir", "bidirectional"),
        ("shortformer_pos", True),
        ("attn_only", "no"),
        ("final_rms", True),
        ("n_key_value_heads", 1),
        ("attn_scale", 1.0),
        ("use_attn_scale", False),
        ("output_logits_soft_cap", 30.0),
        ("d_vocab_out", 5),
    ],
)
def test_what_is_not_implemented_is_named(tmp_path: Path, key: str, value: Any) -> None:
    write_theirs(tmp_path)
    change(tmp_path / "config.json", **{key: value})
    assert f"{key}" in fault(tmp_path)
    assert repr(value) in fault(tmp_path)


def test_an_activation_must_be_named_unless_nothing_uses_it(tmp_path: Path) -> None:
    write_theirs(tmp_path / "mlp")
    config = json.loads((tmp_path / "mlp" / "config.json").read_text())
    del config["act_fn"]
    write_json(tmp_path / "mlp" / "config.json", config)
    assert "does not name its act_fn" in fault(tmp_path / "mlp")
    write_theirs(tmp_path / "plain", toy_network(attention_only=True))
    change(tmp_path / "plain" / "config.json", act_fn="solu_ln")
    assert load_model(tmp_path / "plain").vocab_size == 8


@formats
@pytest.mark.parametrize("value", [0, -1, 2**21, 10**30, 2.0, True, "8", None, [8], {}, 1e400])
def test_sizes_that_are_none(tmp_path: Path, write: Callable[[Path], Path], value: Any) -> None:
    write(tmp_path)
    key = "width" if write is write_ours else "d_model"
    change(tmp_path / "config.json", **{key: value})
    assert "no valid size" in fault(tmp_path)


@formats
def test_huge_sizes_allocate_nothing(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """Each alone and all at once; the machine that runs this could not hold one of them."""
    write(tmp_path)
    original = (tmp_path / "config.json").read_text()
    sizes = [k for k, v in json.loads(original).items() if type(v) is int]
    assert len(sizes) == 7
    for keys in (*([key] for key in sizes), sizes, [s for s in sizes if "layers" not in s]):
        (tmp_path / "config.json").write_text(original)
        change(tmp_path / "config.json", **dict.fromkeys(keys, 2**20))
        fault(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"d_model": ' + "9" * 5000 + "}", "[" * 100_000, "{}", "\0"]
)
def test_configs_that_are_no_config(tmp_path: Path, text: str) -> None:
    write_ours(tmp_path)
    (tmp_path / "config.json").write_text(text)
    assert "config.json" in fault(tmp_path)


def test_a_config_that_is_not_text(tmp_path: Path) -> None:
    write_ours(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{}")
    assert "it is not UTF-8 text" in fault(tmp_path)


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    write_ours(tmp_path)
    toy_tokenizer(9).backend.save(str(tmp_path / "tokenizer.json"))
    assert "has a token 8, but the model's vocabulary is 8" in fault(tmp_path)


def break_ours(folder: Path, edit: Callable[[dict[str, Tensor]], Any]) -> str:
    state = dict(toy_network().state_dict())
    edit(state)
    save_file(state, write_ours(folder))
    return fault(folder)


def break_theirs(folder: Path, edit: Callable[[dict[str, Tensor]], Any]) -> str:
    state: dict[str, Any] = their_state(toy_network())
    edit(state)
    torch.save(state, write_theirs(folder))
    return fault(folder)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_number_that_is_none(tmp_path: Path, bad: float) -> None:
    def spoil(name: str) -> Callable[[dict[str, Tensor]], Any]:
        return lambda s: s.update({name: s[name].clone().index_fill_(0, torch.tensor(1), bad)})

    assert "mlp_in.bias contains NaN" in break_ours(tmp_path / "a", spoil("blocks.1.mlp_in.bias"))
    assert "mlp_in.bias contains NaN" in break_theirs(tmp_path / "b", spoil("blocks.1.mlp.b_in"))


def test_missing_and_unexpected_tensors(tmp_path: Path) -> None:
    assert "lacks the tensor positions" in break_ours(tmp_path, lambda s: s.pop("positions"))
    extra = {"blocks.2.extra": torch.zeros(2)}
    assert "tensor blocks.2.extra that" in break_ours(tmp_path, lambda s: s.update(extra))
    theirs = tmp_path / "theirs"
    assert "lacks the tensor blocks.1.ln2.w" in break_theirs(
        theirs, lambda s: s.pop("blocks.1.ln2.w")
    )
    assert "tensor blocks.2.extra that" in break_theirs(theirs, lambda s: s.update(extra))


def test_a_deeper_file_than_the_config_says(tmp_path: Path) -> None:
    write_theirs(tmp_path)
    change(tmp_path / "config.json", n_layers=1)
    assert "blocks.1." in fault(tmp_path)
    write_ours(tmp_path / "ours")
    change(tmp_path / "ours" / "config.json", layers=1)
    assert "blocks.1." in fault(tmp_path / "ours")


def test_wrong_shapes(tmp_path: Path) -> None:
    narrow = {"positions": torch.zeros(8, 7)}
    assert "shape (8, 7), but the config asks for (8, 8)" in break_ours(
        tmp_path, lambda s: s.update(narrow)
    )
    flat = {"blocks.0.attn.W_K": torch.zeros(6, 8)}
    assert "shape (6, 8), but the config asks for (2, 8, 3)" in break_theirs(
        tmp_path / "t", lambda s: s.update(flat)
    )


def test_heads_and_their_width_cannot_be_swapped(tmp_path: Path) -> None:
    """Three heads of two have as many numbers as two of three, and another meaning."""
    write_theirs(tmp_path)
    change(tmp_path / "config.json", n_heads=3, d_head=2)
    assert "W_Q has shape (2, 8, 3), but the config asks for (3, 8, 2)" in fault(tmp_path)


@pytest.mark.parametrize(
    "odd",
    [
        torch.zeros(8, 8, dtype=torch.int64),
        torch.zeros(8, 8, dtype=torch.complex64),
        torch.zeros(8, 8).to(torch.float8_e4m3fn),
        torch.zeros(8, 8, device="meta"),
        torch.zeros(8, 8).to_sparse(),
        torch.zeros(1).expand(8, 8),
    ],
    ids=["integer", "complex", "eight bits", "meta", "sparse", "repeated"],
)
def test_tensors_that_are_not_plain_numbers(tmp_path: Path, odd: Tensor) -> None:
    sentence = break_theirs(tmp_path, lambda s: s.update({"pos_embed.W_pos": odd}))
    assert re.search("W_pos is not a plain|positions is of type|damaged|refused", sentence)


def test_a_repeated_number_cannot_claim_a_terabyte(tmp_path: Path) -> None:
    write_theirs(tmp_path)
    change(tmp_path / "config.json", d_vocab=2**20, d_model=2**18)
    state = {"embed.W_E": torch.zeros(1).expand(2**20, 2**18)}
    torch.save(state, tmp_path / "model_final.pth")
    assert "not a plain dense tensor" in fault(tmp_path)


class Malicious:
    """Unpickled without care, it would leave a file behind."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    trace, weights = tmp_path / "executed", write_theirs(tmp_path)
    state = their_state(toy_network())
    hostile = {**state, "blocks.0.attn.W_Q": Malicious(trace)}
    with weights.open("wb") as file:
        pickle.dump(hostile, file)
    assert "is damaged" in fault(tmp_path) or "refused unread" in fault(tmp_path)
    torch.save(hostile, weights)
    assert "refused unread" in fault(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(weights.read_bytes())
    assert "damaged or no safetensors" in fault(tmp_path)
    assert not trace.exists()
    torch.load(weights, weights_only=False)
    assert trace.exists()  # read the careless way, the file does work


@pytest.mark.parametrize("content", [[1, 2], "text", torch.zeros(3), {"a": 1}, {}])
def test_pickles_that_are_no_state_dict(tmp_path: Path, content: Any) -> None:
    torch.save(content, write_theirs(tmp_path))
    fault(tmp_path)


@formats
def test_truncated_anywhere(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    weights = write(tmp_path)
    whole = weights.read_bytes()
    for cut in {*range(0, 200, 5), *range(0, len(whole), 211), len(whole) - 1}:
        weights.write_bytes(whole[:cut])
        assert "damaged" in fault(tmp_path), cut


@pytest.mark.parametrize("file", ["ours header", "ours", "theirs", "config.json"])
def test_flipped_bytes_anywhere(tmp_path: Path, file: str) -> None:
    """A model whose numbers are all finite, or one sentence; never another exception."""
    weights = (write_theirs if file == "theirs" else write_ours)(tmp_path)
    path = tmp_path / file if file == "config.json" else weights
    whole = path.read_bytes()
    end = len(whole)
    if file == "ours header":
        end = 8 + struct.unpack("<Q", whole[:8])[0]
    chance, refused = random.Random(file), 0
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 1, 1, 4])):
            damaged[chance.randrange(end)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            model = load_model(tmp_path)
        except LongshotError:
            refused += 1
        else:
            assert all(t.isfinite().all() for t in model.network.state_dict().values())  # type: ignore[attr-defined]
    assert refused > 0
