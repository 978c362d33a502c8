"""Weights from disk or from the hub, read as data only and checked before use.

Two formats: our own (`config.json` with `"format": "longshot-gelu"` and `model.safetensors`), and
TransformerLens's (`config.json` and a `.pth` state dict, raw: neither folded nor centred, since
either would shift the target's logit).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from longshot.errors import LongshotError, unknown_name
from longshot.models.base import Model
from longshot.models.gelu import GeluConfig, GeluTransformer
from longshot.models.tokenizer import Tokenizer
from longshot.models.transformer_lens import convert_config, convert_state

ZOO = Path(__file__).parent / "zoo"
ZOO_NAMES = ("mini-1l", "mini-2l", "mini-4l")
TOKENIZER_REPOSITORY = "NeelNanda/gpt-neox-tokenizer-digits"
HUB = {f"gelu-{n}l": f"NeelNanda/GELU_{n}L512W_C4_Code" for n in (1, 2, 3, 4)} | {
    f"attn-only-{n}l": f"NeelNanda/Attn_Only_{n}L512W_C4_Code" for n in (1, 2, 3, 4)
}
LARGEST = 2**20  # a size beyond this in a config is a mistake, not a model


@dataclass(frozen=True)
class ModelInfo:
    """One line of the list of models."""

    name: str
    layers: int
    width: int
    vocab_size: int
    licence: str
    source: str


def available() -> list[ModelInfo]:
    """Every model that has a name: the shipped ones, then the paper's on the hub."""
    rows = []
    for name in ZOO_NAMES:
        raw = _read_json(ZOO / name / "config.json")
        c = _sizes(raw, ZOO / name / "config.json")
        rows.append(ModelInfo(name, c.layers, c.width, c.vocab_size, raw["licence"], "shipped"))
    for name, repository in HUB.items():
        rows.append(ModelInfo(name, int(name[-2]), 512, 48262, "MIT", f"hub: {repository}"))
    return rows


def load_model(
    name_or_path: str | Path | Model,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Model:
    """A model by the name of a shipped or hub model, from a folder or file, or as it is.

    A hub model's revision may follow its name (`gelu-1l@REVISION`); without one, a copy that is
    already on this machine is used as it is, so that a model never changes between two runs.
    """
    if isinstance(name_or_path, Model):
        return name_or_path
    name = str(name_or_path)
    base, _, revision = name.partition("@")
    if name in ZOO_NAMES:
        return _load(ZOO / name, name, "shipped", ZOO / "tokenizer.json", device, dtype)
    if base in HUB:
        folder, tokenizer = _from_hub(base, revision or None)
        return _load(folder, base, f"hub: {HUB[base]}@{folder.name}", tokenizer, device, dtype)
    path = Path(name_or_path).expanduser()
    if path.exists():
        return _load(path, path.stem, str(path.resolve()), None, device, dtype)
    if "/" in name or path.suffix:
        raise LongshotError(f"There is no model file or folder at {path}.")
    raise unknown_name("model", name, [*ZOO_NAMES, *HUB])


def _load(
    path: Path,
    name: str,
    source: str,
    tokenizer: Path | None,
    device: str | torch.device,
    dtype: torch.dtype,
) -> Model:
    """Read, check and place one model; `path` is its folder or its weights file."""
    folder = path if path.is_dir() else path.parent
    where = folder / "config.json"
    weights = path if path.is_file() else _weights_file(folder)
    raw = _read_json(where)
    if raw.get("format") == "longshot-gelu":
        config = _sizes(raw, where)
        state = _read_tensors(weights)
    elif "d_model" in raw:
        config = _sizes(convert_config(raw, where), where)
        state = convert_state(_read_tensors(weights), config, weights)
    else:
        raise LongshotError(
            f"{where} is of neither known format: it has neither "
            '"format": "longshot-gelu" nor TransformerLens\'s "d_model".'
        )
    network = _build(config, state, weights)
    try:
        network.to(device=device, dtype=dtype)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise LongshotError(f"The device {device!s} cannot be used: {reason}") from error
    return Model(
        name=name,
        network=network,
        tokenizer=Tokenizer.from_file(tokenizer or _tokenizer_file(folder, raw)),
        context=config.context,
        source=source,
        licence=str(raw.get("licence", "unknown")),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LongshotError(f"There is no {path.name} in {path.parent}.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise LongshotError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(raw, dict):
        raise LongshotError(f"{path} must hold a JSON object.")
    return raw


def _sizes(raw: Mapping[str, Any], where: Path) -> GeluConfig:
    """The checked sizes out of a config in our names."""
    values: dict[str, Any] = {}
    for field in fields(GeluConfig):
        name = field.name
        if name == "epsilon":
            value = raw.get(name, 1e-5)
            valid = isinstance(value, float) and 0 < value < 1
        else:
            value = raw.get(name)
            least = 0 if name == "mlp_width" else 1
            valid = type(value) is int and least <= value <= LARGEST
        if not valid:
            raise LongshotError(f"{where}: {name} is {value!r}, which is no valid size.")
        values[name] = value
    return GeluConfig(**values)


def _weights_file(folder: Path) -> Path:
    for name in ("model.safetensors", "model_final.pth"):
        if (folder / name).is_file():
            return folder / name
    raise LongshotError(f"{folder} holds neither model.safetensors nor model_final.pth.")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, as data: nothing in it is ever executed."""
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise LongshotError(
            f"{path} holds more than tensors (or is damaged) and was refused unread; "
            "save the state dict alone, or use safetensors."
        ) from error
    except (SafetensorError, RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LongshotError(f"{path} is damaged or no weights file: {reason}") from error
    if not isinstance(state, dict):
        raise LongshotError(f"{path} holds a {type(state).__name__}, not a state dict.")
    return {str(name): value for name, value in state.items() if isinstance(value, Tensor)}


def _build(config: GeluConfig, state: Mapping[str, Tensor], where: Path) -> GeluTransformer:
    """A network with `state` in it, after every tensor's name, shape and values are checked."""
    with torch.device("meta"):  # nothing is allocated for sizes that the file does not bear out
        network = GeluTransformer(config)
    expected = network.state_dict()
    if missing := sorted(expected.keys() - state.keys()):
        raise LongshotError(f"{where} lacks the tensor {missing[0]} ({len(missing)} missing).")
    if unknown := sorted(state.keys() - expected.keys()):
        raise LongshotError(f"{where} has a tensor {unknown[0]} that the model does not know.")
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise LongshotError(
                f"{where}: {name} has shape {tuple(tensor.shape)}, "
                f"but the config asks for {tuple(expected[name].shape)}."
            )
        if not tensor.is_floating_point():
            raise LongshotError(f"{where}: {name} is of type {tensor.dtype}, not floating point.")
        if not torch.isfinite(tensor).all():
            raise LongshotError(f"{where}: {name} contains NaN or infinity.")
    network.load_state_dict({name: t.contiguous() for name, t in state.items()}, assign=True)
    network.requires_grad_(False)
    return network


def _tokenizer_file(folder: Path, raw: Mapping[str, Any]) -> Path:
    if (folder / "tokenizer.json").is_file():
        return folder / "tokenizer.json"
    if name := raw.get("tokenizer_name"):
        return _hub_file(str(name), "tokenizer.json", None)
    raise LongshotError(f"{folder} has no tokenizer.json and its config names no tokenizer.")


def _from_hub(name: str, revision: str | None) -> tuple[Path, Path]:
    """The folder of a hub model's files and its tokenizer's path, downloaded if need be."""
    config = _hub_file(HUB[name], "config.json", revision)
    commit = config.parent.name
    _hub_file(HUB[name], "model_final.pth", commit)
    return config.parent, _hub_file(TOKENIZER_REPOSITORY, "tokenizer.json", None)


def _hub_file(repository: str, file: str, revision: str | None) -> Path:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(repository, file, revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    try:
        return Path(hf_hub_download(repository, file, revision=revision))
    except Exception as error:  # the hub client's errors have no common base
        reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        raise LongshotError(
            f"{file} of {repository} could not be fetched from the hub ({reason}). Connect to the "
            "network, or give the path of a folder that holds config.json, model_final.pth and "
            "tokenizer.json."
        ) from error
