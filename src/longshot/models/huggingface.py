"""Models of `transformers`: by a name on the hub, from a folder or a GGUF file, or as objects.

    hf:gpt2                     a repository of the hub; hf:gpt2@REVISION for one revision of it
    hf:./my-model               a folder, as `save_pretrained` writes it
    hf:./my-model#file.gguf     one GGUF file of a folder or of a repository

Code that comes with a model runs only where `trust_remote_code` says so.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longshot.errors import LongshotError, first_line, needs
from longshot.models.base import Model
from longshot.models.converted import converted, keep
from longshot.models.decoder import Decoder, KeysValues, dense_macs
from longshot.models.decoder_check import checked_network
from longshot.models.hf_tokenizer import exact_tokenizer
from longshot.models.hub import hub_has_an_address

PREFIX = "hf:"
SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier")  # Cohere, Granite, Falcon


def load_huggingface(
    name: str,
    tokenizer: Any,
    device: str | torch.device,
    dtype: torch.dtype | None,
    trust_remote_code: bool,
) -> Model:
    """The model that `name` tells, in the precision that its file has unless `dtype` is given."""
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise needs(name, "transformers", "hf") from error
    place, kept = _place(name), None
    if (file := place.options.get("gguf_file")) and place.is_local:
        kept = converted(Path(place.where) / file, str(dtype or "auto"))
        if (kept / "config.json").is_file():
            place = place._replace(where=str(kept), options={"local_files_only": True})
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code, **place.options}
    try:
        with _quietly() if place.is_local else nullcontext():
            model, report = AutoModelForCausalLM.from_pretrained(
                place.where, dtype=dtype or "auto", output_loading_info=True, **options
            )
            theirs = None
            if tokenizer is None or kept is not None:
                theirs = AutoTokenizer.from_pretrained(place.where, **options)
            if kept is not None and place.where != str(kept):
                keep(kept, lambda to: _save(model, theirs, to))
            tokenizer = theirs if tokenizer is None else tokenizer
        model.requires_grad_(False).to(device)
    except Exception as error:  # its errors have no common base
        if kept is not None and place.where == str(kept):  # a damaged copy: convert again
            shutil.rmtree(kept)
            return load_huggingface(name, tokenizer, device, dtype, trust_remote_code)
        raise LongshotError(_why_not(name, error)) from error
    if missing := sorted(report["missing_keys"]):
        raise LongshotError(
            f"{name} lacks the tensor {missing[0]} ({len(missing)} missing), without which it is "
            "no trained causal language model."
        )
    return from_transformers(model, tokenizer, name=place.name, source=place.source)


def _save(model: Any, tokenizer: Any, folder: str) -> None:
    """Write the weights as they are now; they are no longer packed, whatever the model says."""
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


class _Place(NamedTuple):
    """Where a model is, what it is called, and how `from_pretrained` gets at it."""

    where: str
    name: str
    source: str
    options: dict[str, Any]

    @property
    def is_local(self) -> bool:
        return "local_files_only" in self.options


def _place(name: str) -> _Place:
    where, _, file = name.removeprefix(PREFIX).partition("#")
    options = {"gguf_file": file} if file else {}
    folder = Path(where).expanduser()
    if folder.is_dir():
        if not (folder / (file or "config.json")).is_file():
            raise LongshotError(f"There is no {file or 'config.json'} in {folder}.")
        source = folder.resolve() / file
        title = source.stem if file else source.name
        return _Place(str(folder), title, str(source), options | {"local_files_only": True})
    repository, _, revision = where.partition("@")
    if not repository or where[0] in "./~" or repository.count("/") > 1:
        raise LongshotError(f"There is no model folder at {folder}.")
    commit = _commit(repository, revision or None, file or "config.json")
    title = repository.rpartition("/")[2]
    return _Place(repository, title, f"hub: {repository}@{commit}", options | {"revision": commit})


def _commit(repository: str, revision: str | None, file: str) -> str:
    """The copy that is on this machine already, so that a model never changes between two runs."""
    from huggingface_hub import try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(repository, file, revision=revision)
    except ValueError:  # no name that a repository can have
        raise LongshotError(
            f"{repository!r} is neither a folder here nor a name of a repository on the hub."
        ) from None
    if isinstance(cached, str):
        return Path(cached).parent.name
    if not hub_has_an_address():
        raise LongshotError(
            f"{repository} is neither a folder here nor a model that was downloaded before, and "
            "the hub cannot be reached."
        )
    return revision or "main"


def _why_not(name: str, error: Exception) -> str:
    if "trust_remote_code" in str(error):
        return f"{name} brings code of its own; trust_remote_code=True would run it."
    is_other = isinstance(error, ValueError) and "AutoModelForCausalLM" in str(error)
    what = "is no causal language model" if is_other else "cannot be loaded by transformers"
    return f"{name} {what}: {first_line(error).rstrip('.:')}."


@contextmanager
def _quietly() -> Iterator[None]:
    """Without progress bars: a folder loads in seconds, and a library does not draw."""
    from transformers.utils import logging

    drawn = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if drawn:
            logging.enable_progress_bar()


def is_a(value: object, kind: str) -> bool:
    """Whether a class of this name is among the value's; so that nothing need be imported."""
    return any(base.__name__ == kind for base in type(value).__mro__)


def from_transformers(
    model: Any, tokenizer: Any, *, name: str | None = None, source: str = "in memory"
) -> Model:
    """A loaded model with its tokenizer; neither is changed, the weights are shared."""
    name = name or str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    return assembled(HuggingFaceDecoder(frozen(model), name), tokenizer, name, source)


def assembled(decoder: Decoder, tokenizer: Any, name: str, source: str) -> Model:
    """A model of a decoder that passes the checks and a tokenizer that fits it."""
    if tokenizer is None:
        raise LongshotError(f"{name} needs its tokenizer: load_model(model, tokenizer=tokenizer).")
    words = exact_tokenizer(tokenizer)
    network = checked_network(decoder, name)
    if words.largest_id >= (vocabulary := decoder.unembedding.shape[1]):
        raise LongshotError(
            f"The tokenizer has a token {words.largest_id}, but {name}'s vocabulary is "
            f"{vocabulary}: it belongs to another model."
        )
    return Model(name, network, words, decoder.context, source)


def frozen(model: nn.Module) -> Any:
    """The model with the same weights, without dropout and with no gradients of weights."""
    if not model.training and not any(p.requires_grad for p in model.parameters()):
        return model
    shared: dict[int, Any] = {id(x): x for x in (*model.parameters(), *model.buffers())}
    for parameter in model.parameters():
        if parameter.requires_grad:
            shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    return copy.deepcopy(model, shared).eval()


class HuggingFaceDecoder(Decoder):
    """A `transformers` model from its embedded inputs to what its unembedding reads."""

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.model, self.kind = model, type(model).__name__
        if getattr(model.config, "is_encoder_decoder", False):
            raise LongshotError(f"{name} is an encoder with a decoder ({self.kind}), not causal.")
        head = model.get_output_embeddings()
        if getattr(head, "weight", None) is None:
            raise LongshotError(f"{name} has no unembedding that gives logits ({self.kind}).")
        config = model.config.get_text_config(decoder=True)
        heads = getattr(config, "num_attention_heads", 0)
        head_width = getattr(config, "head_dim", None) or config.hidden_size // max(heads, 1)
        self.context = int(getattr(config, "max_position_embeddings", 2**20))
        self.embedding = _embedded_vocabulary(model.get_input_embeddings())
        self.unembedding = head.weight.detach().mT
        self.bias = None if getattr(head, "bias", None) is None else head.bias.detach()
        self.dense = dense_macs(model.get_decoder())
        self.mixing = 2 * config.num_hidden_layers * heads * head_width
        self.cap = getattr(config, "final_logit_softcapping", None)
        factors = [getattr(config, key, None) for key in SCALES]
        named = [float(x) for x in factors if isinstance(x, int | float) and x > 0]
        self.scales = (1.0, *named, *(1 / x for x in named))  # some multiply, others divide

    def hidden(self, embedded: Tensor, cache: Any = None) -> Tensor:
        output = self.model.get_decoder()(
            inputs_embeds=embedded, past_key_values=cache, use_cache=cache is not None
        )
        last: Tensor = output.last_hidden_state
        return last

    def logits(self, tokens: Tensor) -> Tensor:
        last: Tensor = self.model(input_ids=tokens, use_cache=False).logits[:, -1]
        return last

    def cache(self, layers: Sequence[KeysValues] = (), rows: int = 0) -> Any:
        from transformers import DynamicCache

        # Without a config every layer keeps all positions: a window is the mask's affair.
        cache = DynamicCache()
        for i, (keys, values) in enumerate(layers):
            cache.update(keys, values, i)
        return cache

    def layers(self, cache: Any) -> list[KeysValues]:
        return [(layer.keys, layer.values) for layer in cache.layers]


def _embedded_vocabulary(module: Any) -> Tensor:
    """What the embedding gives for every token; a copy only where it does more than look up."""
    weight: Tensor = module.weight.detach()
    if type(module) is nn.Embedding and module.max_norm is None:
        return weight
    with torch.no_grad():  # Gemma multiplies by √width
        embedded: Tensor = module(torch.arange(len(weight), device=weight.device))
    return embedded
