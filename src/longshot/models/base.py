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
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from longshot.errors import LongshotError
from longshot.models.tokenizer import Tokenizer


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
        """The activation before the unembedding at the last position; differentiable."""

    def macs(self, positions: int) -> int:
        """Multiply-accumulates of one `activation`."""

    def backward_macs(self, positions: int) -> int:
        """Multiply-accumulates of the gradient of one `activation`, the forward pass apart."""


@runtime_checkable
class PrefixNetwork(Protocol):
    """The optional capability: a prefix is run once, each continuation costs its own tokens."""

    def prefix(self, embedded: Float[Tensor, "batch prefix width"]) -> Any:
        """What continuations will attend to."""

    def extend(
        self, cache: Any, embedded: Float[Tensor, "batch continuation tail width"]
    ) -> Float[Tensor, "batch continuation width"]:
        """The activation after each continuation of each cached prefix."""

    def prefix_macs(self, positions: int) -> int:
        """Multiply-accumulates of one prefix."""

    def leaf_macs(self, positions: int, prefix: int) -> int:
        """Multiply-accumulates of one continuation."""


@runtime_checkable
class SizedNetwork(Protocol):
    """The optional capability: a network for which the memory decides how many rows it takes."""

    def rows(self, positions: int) -> int:
        """How many inputs of this length one call should take."""

    def limit_rows(self, rows: int) -> None:
        """Take no more at once from now on."""


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
class Model:
    """A network with its tokenizer and its name; equal to itself only, as weights may change."""

    name: str
    network: Network
    tokenizer: Tokenizer
    context: int
    source: str = "in memory"
    licence: str = "unknown"

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
    def unembedding_rows(self) -> Float[Tensor, "vocab width"]:
        """The unembedding with a token's weights side by side, for gathering a few tokens."""
        return self.unembedding.mT.contiguous()

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
