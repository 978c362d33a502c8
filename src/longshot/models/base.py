"""What the rest of the package knows of a language model.

A `Network` is the arithmetic: it sees embedded tokens and gives the activation before the
unembedding at the last position. A `Model` is a network with the names around it: a tokenizer, a
fingerprint, where it came from. Adapters implement `Network`; methods take a `Model`.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from longshot.errors import LongshotError, visible
from longshot.models.tokenizer import Tokenizer
from longshot.shown import Shown

Memory = list[Float[Tensor, "_ rows _ position _"]]
"""What later positions need to know of earlier ones, of each layer; its owner knows what it is."""


@runtime_checkable
class Network(Protocol):
    """A causal language model seen from its last position."""

    @property
    def embedding(self) -> Float[Tensor, "vocab width"]: ...
    @property
    def unembedding(self) -> Float[Tensor, "width vocab"]: ...
    @property
    def unembedding_bias(self) -> Float[Tensor, " vocab"] | None: ...

    def activation(
        self, embedded: Float[Tensor, "batch position width"]
    ) -> Float[Tensor, "batch width"]:
        """The activation before the unembedding at the last position; differentiable.

        In float32 at least: a network in half precision runs in it, and nothing after it does.
        """

    def macs(self, positions: int) -> int:
        """Multiply-accumulates of one `activation`."""

    def backward_macs(self, positions: int) -> int:
        """Multiply-accumulates of the gradient of one `activation`, the forward pass apart."""


@runtime_checkable
class CachedNetwork(Protocol):
    """The optional capability: what later positions need to know of earlier ones is kept.

    Inputs that change from some position on are run again from there, and many continuations of
    one beginning cost their own tokens only. A beginning is run by `resume` from 0.
    """

    def memory(self, rows: int, positions: int) -> Memory:
        """Room for what is known of so many inputs of this length, nothing yet."""

    def resume(
        self, embedded: Float[Tensor, "rows tail width"], memory: Memory, start: int
    ) -> Float[Tensor, "rows activation"]:
        """The activation of inputs known up to `start`; `memory` takes up the rest.

        Differentiable in `embedded`, while the memory stays as it is.
        """

    def extend(
        self, embedded: Float[Tensor, "rows continuation tail width"], memory: Memory, start: int
    ) -> Float[Tensor, "rows continuation activation"]:
        """The activation after many continuations of each row known up to `start`.

        The memory stays as it was.
        """

    def macs(self, positions: int, prefix: int = 0) -> int:
        """Multiply-accumulates of one `resume` over `positions` behind a known prefix."""

    def backward_macs(self, positions: int, prefix: int = 0) -> int:
        """Multiply-accumulates of its gradient, the forward pass apart."""

    def extend_macs(self, continuations: int, positions: int, prefix: int) -> int:
        """Multiply-accumulates of all continuations of one row in one `extend`."""


@runtime_checkable
class SizedNetwork(Protocol):
    """The optional capability: a network for which the memory decides how many rows it takes."""

    def rows(self, positions: int) -> int:
        """How many inputs of this length one call should take."""

    def limit_rows(self, rows: int) -> None:
        """Take no more at once from now on."""


def at_least_float32(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The same numbers, in float32 where they were in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def in_blocks(
    network: object, count: int, positions: int, run: Callable[[slice], None], most: int
) -> None:
    """Call `run` on one slice of `count` rows after the other, of `most` rows or as many as fit.

    Where the memory does not suffice, the same rows are tried again in smaller slices.
    """
    sized, start = network if isinstance(network, SizedNetwork) else None, 0
    while start < count:
        size = min(most if sized is None else sized.rows(positions), count - start)
        try:
            run(slice(start, start + size))
        except (RuntimeError, MemoryError) as error:
            if sized is None or not _is_out_of_memory(error):
                raise
            if size == 1:
                raise LongshotError(
                    f"The memory does not suffice for one input of {positions} tokens."
                ) from error
            sized.limit_rows(size // 2)
            warnings.warn(
                f"The memory did not suffice for {size} inputs at once; going on with {size // 2}.",
                stacklevel=2,
            )
        else:
            start += size


def _is_out_of_memory(error: Exception) -> bool:
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error)


@dataclass(frozen=True, eq=False)
class Model(Shown):
    """A network with its tokenizer and its name; equal to itself only, as weights may change."""

    name: str
    network: Network
    tokenizer: Tokenizer
    context: int
    source: str = "in memory"
    licence: str = "unknown"

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", visible(self.name))  # a folder may be called anything

    def __repr__(self) -> str:
        return f"Model({self.name!r}, width {self.width}, {self.vocab_size} tokens, {self.source})"

    @property
    def vocab_size(self) -> int:
        return self.unembedding.shape[1]

    @property
    def width(self) -> int:
        return self.unembedding.shape[0]

    @cached_property
    def embedding(self) -> Float[Tensor, "vocab width"]:
        return self.network.embedding.detach()

    @cached_property
    def unembedding(self) -> Float[Tensor, "width vocab"]:
        return self.network.unembedding.detach()

    @cached_property
    def unembedding_bias(self) -> Float[Tensor, " vocab"]:
        """The bias of the logits, zero where the network has none."""
        bias = self.network.unembedding_bias
        return self.unembedding.new_zeros(self.vocab_size) if bias is None else bias.detach()

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    def embed(self, tokens: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position width"]:
        return functional.embedding(tokens.to(self.device), self.embedding)

    @cached_property
    def fingerprint(self) -> str:
        """A short digest of the weights and the tokenizer: two models that agree in it are one."""
        digest = hashlib.sha256(self.tokenizer.fingerprint.encode())
        for name, tensor in _weights(self.network):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            plain = tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8)
            digest.update(plain.numpy().tobytes())
        return digest.hexdigest()[:16]


def _weights(network: Network) -> Iterable[tuple[str, Tensor]]:
    """A network's tensors by name, in a fixed order."""
    if isinstance(network, torch.nn.Module):
        return sorted(network.state_dict().items())
    return [("embedding", network.embedding), ("unembedding", network.unembedding)]
