"""What the rest of the package knows of inputs, and what some of them can do beyond it.

Everything takes `Inputs`. A method that needs more asks for a capability here and is refused in one
sentence where it is missing: nothing outside this package asks what kind of inputs there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.inputs.tokens import TokenDistribution
from longshot.models import Model

NOTHING = -1
"""Fills a row up at its end where an input is shorter than the longest.

Only tokens are ≥ 0, so that rows need no lengths beside them and what takes NOTHING for a token
fails at once. Whatever runs inputs does so in groups of one length: `by_length`.
"""


@runtime_checkable
class Inputs(Protocol):
    """A distribution over token sequences that can be sampled and partly redrawn."""

    @property
    def name(self) -> str: ...
    @property
    def length(self) -> int:
        """Of the longest of them."""

    @property
    def fingerprint(self) -> str:
        """A short digest: inputs that agree in it are the same."""

    def sample(self, n: int, generator: torch.Generator) -> Int64[Tensor, "n length"]:
        """`n` independent inputs."""

    def redraw(
        self,
        tokens: Int64[Tensor, "n length"],
        generator: torch.Generator,
        start: int = 0,
        share: float = 1.0,
    ) -> Int64[Tensor, "n length"]:
        """Each input with a part of what stands from `start` on drawn anew, given the rest.

        Positions are chosen without looking at the tokens: each with probability `share` where the
        inputs can do so, all of them otherwise. Such a step is reversible and leaves the law of
        the inputs as it is.
        """


@runtime_checkable
class WithLogProb(Protocol):
    """The capability to tell the probability of an input."""

    def log_prob(self, tokens: Int[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        """The exact log probability of each input; −inf outside the support."""


class Listed(NamedTuple):
    """Some of the inputs there are, each with its log probability."""

    tokens: Int64[Tensor, "n length"]
    log_prob: Float64[Tensor, " n"]


@runtime_checkable
class Finite(Inputs, Protocol):
    """The capability of inputs that can all be listed."""

    @property
    def count(self) -> int:
        """How many there are; one that comes about in several ways is listed several times."""

    def listed(self, start: int, stop: int) -> Listed:
        """Those from `start` to `stop`, neighbours with as much in common as can be."""


@dataclass(frozen=True)
class PositionSummary:
    """One position as a table shows it."""

    position: int
    size: int
    entropy_bits: float
    fixed: int | None
    likeliest: tuple[tuple[int, float], ...]
    """The most probable tokens, each with its probability."""


class Group(NamedTuple):
    """The free positions that share one distribution, in order."""

    distribution: TokenDistribution
    positions: tuple[int, ...]


@runtime_checkable
class Product(Inputs, WithLogProb, Protocol):
    """The capability of inputs whose tokens are independent: one distribution a position."""

    @property
    def positions(self) -> Sequence[TokenDistribution]: ...
    @property
    def free_positions(self) -> tuple[int, ...]: ...
    @property
    def groups(self) -> tuple[Group, ...]:
        """The free positions by the distribution object they share, in order of first use."""

    def describe(self, likeliest: int = 5) -> tuple[PositionSummary, ...]:
        """For each position its support, entropy and most probable tokens."""


def by_length(
    tokens: Int[Tensor, "n width"],
) -> Iterator[tuple[slice | Int64[Tensor, " some"], Int[Tensor, "some length"]]]:
    """The rows of each length, without what fills them up; all at once where there is only one."""
    if not len(tokens) or bool((tokens[:, -1] >= 0).all()):
        yield slice(None), tokens
        return
    lengths = (tokens >= 0).sum(1)
    for length in lengths.unique().tolist():
        rows = (lengths == length).nonzero()[:, 0]
        yield rows, tokens[rows, :length]


def continued(
    tokens: Int[Tensor, "n width"], path: Int[Tensor, "n step"]
) -> Int[Tensor, "n longer"]:
    """Each input with a path of its own behind its last token."""
    longer = torch.cat([tokens, path], 1)
    if not path.shape[1] or bool((tokens[:, -1] >= 0).all()):
        return longer
    return longer.gather(1, (longer < 0).long().argsort(dim=1, stable=True))


def is_product(inputs: Inputs) -> bool:
    """Whether the tokens of the inputs are independent."""
    return hasattr(inputs, "positions") and hasattr(inputs, "groups")


def as_product(inputs: Inputs, who: str) -> Product:
    """The same inputs, which `who` needs to be a product."""
    if not is_product(inputs):
        raise LongshotError(
            f"{who} needs inputs whose tokens are independent, which {inputs.name!r} are not."
        )
    return inputs  # type: ignore[return-value]


def is_finite(inputs: Inputs) -> bool:
    """Whether the inputs can be listed."""
    return hasattr(inputs, "count") and hasattr(inputs, "listed")


def as_finite(inputs: Inputs, who: str) -> Finite:
    """The same inputs, which `who` needs to be able to list."""
    if not is_finite(inputs):
        raise LongshotError(f"{who} needs inputs that can be listed, which {inputs.name!r} cannot.")
    return inputs  # type: ignore[return-value]


def mixed_radix(index: Int64[Tensor, " n"], sizes: Sequence[int]) -> Int64[Tensor, "n size"]:
    """The digits of each number, the first of them the slowest to change."""
    digits = torch.empty(len(index), len(sizes), dtype=torch.int64)
    for i in range(len(sizes) - 1, -1, -1):
        digits[:, i], index = index % sizes[i], index // sizes[i]
    return digits


def log_prob(inputs: Inputs, tokens: Int[Tensor, "n length"]) -> Float64[Tensor, " n"] | None:
    """The log probability of each input, None where the inputs cannot tell."""
    known: Tensor | None = inputs.log_prob(tokens) if hasattr(inputs, "log_prob") else None
    return known


def fixed_beginning(inputs: Inputs | None) -> Int64[Tensor, "1 prefix"]:
    """The tokens with which every input begins, short of the last position."""
    fixed: list[int] = list(getattr(inputs, "beginning", ()))
    if inputs is not None and is_product(inputs):
        for distribution in as_product(inputs, "a fixed beginning").positions[:-1]:
            if not distribution.is_fixed:
                break
            fixed.append(int(distribution.support[0]))
    return torch.tensor([fixed], dtype=torch.int64)


def refuse_unreadable(inputs: Inputs, model: Model) -> None:
    """Refuse inputs that are too long for a model, or whose tokens it does not embed."""
    if inputs.length > model.context:
        raise LongshotError(
            f"The inputs {inputs.name!r} are {inputs.length} tokens long, but the model "
            f"{model.name!r} reads at most {model.context}."
        )
    writer = getattr(inputs, "writer", None)
    if isinstance(writer, Model) and writer.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise LongshotError(
            f"{writer.name}, which writes the inputs {inputs.name!r}, has another tokenizer than "
            f"{model.name}: it would read other words than were written."
        )
    if is_product(inputs):
        supports = [d.support for d in as_product(inputs, "a check of tokens").positions]
        for token in (int(support[end]) for support in supports for end in (0, -1)):
            if not 0 <= token < len(model.embedding):
                raise LongshotError(
                    f"The inputs {inputs.name!r} use token {token}, but the model {model.name!r} "
                    f"embeds only {len(model.embedding)} tokens; they belong to another tokenizer."
                )
