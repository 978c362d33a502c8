"""Weights from disk or from the hub, read as data only and checked before use.

Two formats: our own (`config.json` with `"format": "longshot-gelu"` and `model.safetensors`), and
TransformerLens's (`config.json` and a `.pth` state dict, raw: neither folded nor centred, since
either would shift the target's logit).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from longshot.allocator import keep_freed_memory
from longshot.errors import LongshotError, first_line, unknown_name
from longshot.files import check_archive, parse_json, read_tensors, read_text
from longshot.models.base import Model
from longshot.models.gelu import GeluConfig, GeluTransformer
from longshot.models.hub import from_hub, hub_file
from longshot.models.huggingface import (
    PREFIX,
    from_transformers,
    is_a,
    load_huggingface,
)
from longshot.models.tokenizer import Tokenizer
from longshot.models.transformer_lens import convert_config, convert_state
from longshot.models.transformer_lens_objects import (
    from_transformer_lens,
    is_transformer_lens_model,
)
from longshot.names import HUB, ZOO_NAMES

ZOO = Path(__file__).parent / "zoo"
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
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
        rows.append(
            ModelInfo(name, c.layers, c.width, c.vocab_size, str(raw["licence"]), "shipped")
        )
    for name, repository in HUB.items():
        rows.append(ModelInfo(name, int(name[-2]), 512, 48262, "MIT", f"hub: {repository}"))
    return rows


def load_model(
    name_or_path: str | Path | Model | nn.Module,
    *,
    tokenizer: Any = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """A model by the name of a shipped or hub model, from a folder or file, or as an object.

    A hub model's revision may follow its name (`gelu-1l@REVISION`); without one, a copy that is
    already on this machine is used as it is, so that a model never changes between two runs.

    `hf:` before a name of the hub or a folder, with `#file.gguf` behind it for a GGUF file, loads
    any causal language model by `transformers`, in its own precision unless `dtype` is given. A
    `transformers` model in memory comes with its `tokenizer`; a TransformerLens model may bring
    its own. Both stay on their device and in their precision.
    """
    keep_freed_memory()
    if isinstance(name_or_path, Model):
        return name_or_path
    if isinstance(name_or_path, nn.Module):
        return _from_object(name_or_path, tokenizer)
    if not isinstance(name_or_path, str | Path):
        raise LongshotError(f"A model is a name, a path or a model, not {name_or_path!r}.")
    name = str(name_or_path)
    if name.startswith(PREFIX):
        return load_huggingface(name, tokenizer, device, dtype, trust_remote_code)
    if tokenizer is not None or trust_remote_code:
        raise LongshotError(f"{name!r} is no hf: model: it brings its own tokenizer, and no code.")
    dtype = dtype or torch.float32
    base, _, revision = name.partition("@")
    if name in ZOO_NAMES:
        return _load(ZOO / name, name, "shipped", ZOO / "tokenizer.json", device, dtype)
    if base in HUB:
        folder, tokenizer = from_hub(base, revision or None)
        return _load(folder, base, f"hub: {HUB[base]}@{folder.name}", tokenizer, device, dtype)
    try:
        path = Path(name_or_path).expanduser()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a null byte, no such ~user
        raise LongshotError(f"{name!r} is neither a model's name nor a path: {error}.") from error
    if exists:
        return _load(path, path.stem, str(path.resolve()), None, device, dtype)
    if "/" in name or path.suffix:
        raise LongshotError(f"There is no model file or folder at {path}.")
    raise unknown_name("model", base, [*ZOO_NAMES, *HUB])


def _from_object(model: nn.Module, tokenizer: Any) -> Model:
    if is_transformer_lens_model(model):
        return from_transformer_lens(model, tokenizer)
    if is_a(model, "PreTrainedModel"):
        return from_transformers(model, tokenizer)
    raise LongshotError(
        f"A {type(model).__name__} is no model that longshot knows: give one of transformers, or "
        "of TransformerLens."
    )


def _load(
    path: Path,
    name: str,
    source: str,
    tokenizer: Path | None,
    device: str | torch.device,
    dtype: torch.dtype,
) -> Model:
    """Read, check and place one model; `path` is its folder or its weights file."""
    folder = path.parent if path.is_file() else path
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
    except (RuntimeError, AssertionError, TypeError) as error:
        raise LongshotError(
            f"The model cannot be placed on {device!s} as {dtype}: {first_line(error)}"
        ) from error
    tokenizer = tokenizer or _tokenizer_file(folder, raw)
    words = Tokenizer.from_file(tokenizer)
    if words.largest_id >= config.vocab_size:
        raise LongshotError(
            f"{tokenizer} has a token {words.largest_id}, but the model's vocabulary is "
            f"{config.vocab_size}: it belongs to another model."
        )
    return Model(
        name=name,
        network=network,
        tokenizer=words,
        context=config.context,
        source=source,
        licence=str(raw.get("licence", "unknown")),
    )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise LongshotError(f"There is no {path.name} in {path.parent}.")
    return parse_json(read_text("configuration", path), path)


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
    config = GeluConfig(**values)
    if config.heads * config.head_width > LARGEST:
        raise LongshotError(
            f"{where}: {config.heads} heads of {config.head_width} are more than any model has."
        )
    return config


def _weights_file(folder: Path) -> Path:
    for name in ("model.safetensors", "model_final.pth"):
        if (folder / name).is_file():
            return folder / name
    raise LongshotError(f"{folder} holds neither model.safetensors nor model_final.pth.")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, as data: nothing in it is ever executed."""
    if path.suffix == ".safetensors":
        return {name: tensor.clone() for name, tensor in read_tensors(path)[0].items()}
    check_archive(path)
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise LongshotError(
            f"{path} holds more than tensors (or is damaged) and was refused unread; "
            "save the state dict alone, or use safetensors."
        ) from error
    except Exception as error:  # a damaged file can raise almost anything out of either reader
        raise LongshotError(f"{path} is damaged or no weights file: {first_line(error)}") from error
    if not isinstance(state, dict):
        raise LongshotError(f"{path} holds a {type(state).__name__}, not a state dict.")
    tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    for name, tensor in tensors.items():
        if not _is_plain(tensor):
            raise LongshotError(f"{path}: {name} is not a plain dense tensor.")
    if sum(tensor.nbytes for tensor in tensors.values()) > 2 * path.stat().st_size:
        raise LongshotError(f"{path}: its tensors share more than two models' weights would.")
    # A tensor inside a file starts at any address, and matrix products round by alignment: a copy
    # starts on a boundary, as it does in a worker that the model travels to.
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _is_plain(tensor: Tensor) -> bool:
    """Dense, in memory, and with a number of its own for each entry.

    A view that repeats one stored number could otherwise claim any size at all.
    """
    return (
        tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
    )


def _build(config: GeluConfig, state: Mapping[str, Tensor], where: Path) -> GeluTransformer:
    """A network with `state` in it, after every tensor's name, shape and values are checked."""
    if config.layers > len(state):
        raise LongshotError(
            f"{where} has {len(state)} tensors, too few for {config.layers} layers."
        )
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
        if tensor.dtype not in DTYPES:
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
        return hub_file(str(name), "tokenizer.json", None)
    raise LongshotError(f"{folder} has no tokenizer.json and its config names no tokenizer.")
