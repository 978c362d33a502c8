"""What a model says after each input, greedily or sampled, and what an event reads in it.

    y_j = argmax of the logits, or the token at which softmax(logits/τ) passes the row's number u_j

An output ends with its first special token: what would come after it is no part of the text.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from longshot.evaluate.argmax import UNEMBED_BLOCK, readout, winners
from longshot.evaluate.greedy import Continue, Outcomes, PlainContinuations
from longshot.evaluate.readers import Decision
from longshot.events import Event
from longshot.inputs import Inputs, by_length, fixed_beginning
from longshot.inputs.noisy import noise_of
from longshot.models import Growing, Model, SizedNetwork

ROWS = 256  # inputs that go on at once, where the network does not say how many fit
CLOSE = 64  # tokens of a step that are looked at for one that would have been the event


class Said(NamedTuple):
    """The tokens that follow each input, and the likeliest at each step."""

    path: Int64[Tensor, "rows step"]
    close: Int64[Tensor, "rows step close"]
    """Empty unless asked for."""
    behind: Float[Tensor, "rows step close"]
    """How far each of those is behind the likeliest."""


class TextEvent(Event):
    """An event that is read in the text of the output."""

    decided_by = "itself"
    can_be_ranked = True
    temperature: float
    looks_close: bool = False
    """Whether `read` is told the likeliest tokens of each step."""

    @property
    def noise(self) -> int:
        return self.steps if self.temperature > 0 else 0

    def outcomes(self, model: Model, v: Float[Tensor, "rows width"], go_on: Continue) -> Outcomes:
        """Where it is read in the outputs of the inputs that `go_on` continues."""
        tokens: Tensor = go_on.tokens[: len(v)]  # type: ignore[attr-defined]
        if isinstance(go_on, PlainContinuations):
            say = Sayer(model)
            said = say(tokens, self.steps, self.temperature, self.looks_close)
            go_on.forwards += say.forwards - len(tokens)  # the first of them is known already
            go_on.macs += say.macs
        else:
            noise = noise_of(tokens, self.noise) if self.noise else None
            said = follow(model, v, go_on, self.steps, self.temperature, noise, self.looks_close)
        grade, gap = self.read(model, tokens, said)
        rows = (grade > 0).nonzero()[:, 0]
        return Outcomes(rows, grade[rows], gap[rows], 0)

    @abstractmethod
    def read(self, model: Model, tokens: Int[Tensor, "rows position"], said: Said) -> Decision:
        """Whether it occurs, and a gap that is positive exactly where it does."""


class Sayer:
    """What a model says after inputs, on the memory of a few at a time, and what that took."""

    def __init__(self, model: Model, inputs: Inputs | None = None) -> None:
        self.model, self.shared = model, fixed_beginning(inputs).shape[1]
        self.forwards = self.macs = 0

    def __call__(
        self,
        tokens: Int[Tensor, "rows position"],
        steps: int,
        temperature: float = 0.0,
        close: bool = False,
    ) -> Said:
        """The outputs of so many tokens; sampled ones by the numbers that the rows carry."""
        model, network = self.model, self.model.network
        noise = noise_of(tokens, steps) if temperature > 0 else None
        many = CLOSE if close else 0
        out = Said(
            torch.empty(len(tokens), steps, dtype=torch.int64),
            torch.empty(len(tokens), steps, many, dtype=torch.int64),
            torch.empty(len(tokens), steps, many),
        )
        for rows, some in by_length(tokens):
            where = torch.arange(len(tokens))[rows]
            length = some.shape[1]
            most = network.rows(length + steps) if isinstance(network, SizedNetwork) else ROWS
            for here, block in zip(where.split(most), some.split(most), strict=True):
                if not len(here):
                    continue
                grown = Growing(model, block, steps, self.shared)
                drawn = None if noise is None else noise[here]
                first = grown.after(block[:, :0])

                def go_on(rows: Tensor, path: Tensor, grown: Growing = grown) -> Tensor:
                    return grown.after(path)

                found = follow(model, first, go_on, steps, temperature, drawn, close)
                for whole, part in zip(out, found, strict=True):
                    whole[here] = part
                self.macs += grown.macs
            self.forwards += len(some) * steps
            self.macs += len(some) * steps * model.unembedding.numel()
        return out


def follow(
    model: Model,
    v: Float[Tensor, "rows width"],
    go_on: Continue,
    steps: int,
    temperature: float = 0.0,
    noise: Float64[Tensor, "rows step"] | None = None,
    close: bool = False,
) -> Said:
    """The outputs that begin after activations `v`; of an exact tie the lower token is said."""
    path = torch.empty(len(v), 0, dtype=torch.int64)
    every = torch.arange(len(v))
    near: list[tuple[Tensor, Tensor]] = []
    for j in range(steps):
        if temperature > 0:
            assert noise is not None
            token = _sampled(model, v, temperature, noise[:, j])
        else:
            token = winners(model, v).token
            for i in (token < 0).nonzero()[:, 0].tolist():
                token[i] = readout(model).logits(v[i : i + 1]).argmax()
        if close:
            near.append(_closest(model, v))
        path = torch.cat([path, token[:, None]], 1)
        if j + 1 < steps:
            v = go_on(every, path)
    none = torch.empty(len(path), steps, 0)
    if not near:
        return Said(path, none.long(), none)
    tokens, behind = zip(*near, strict=True)
    return Said(path, torch.stack(tokens, 1), torch.stack(behind, 1))


def _sampled(
    model: Model, v: Float[Tensor, "rows width"], temperature: float, u: Float64[Tensor, " rows"]
) -> Int64[Tensor, " rows"]:
    found = []
    for block, own in zip(v.split(UNEMBED_BLOCK), u.split(UNEMBED_BLOCK), strict=True):
        logits = readout(model).logits(block).double().cpu()
        sums = (logits / temperature).softmax(1).cumsum(1)
        sums = sums.masked_fill_(sums >= sums[:, -1:], 1.0)
        found.append(torch.searchsorted(sums, own[:, None].contiguous(), right=True)[:, 0])
    return torch.cat(found)


def _closest(model: Model, v: Float[Tensor, "rows width"]) -> tuple[Tensor, Tensor]:
    """The likeliest tokens, and how far each is behind the first."""
    found = []
    for block in v.split(UNEMBED_BLOCK):
        top = readout(model).logits(block).topk(min(CLOSE, model.vocab_size))
        missing = CLOSE - top.indices.shape[1]
        tokens = torch.nn.functional.pad(top.indices.cpu(), (0, missing), value=-1)
        behind = (top.values - top.values[:, :1]).float().cpu()
        found.append((tokens, torch.nn.functional.pad(behind, (0, missing), value=-math.inf)))
    both = list(zip(*found, strict=True))
    return torch.cat(both[0]), torch.cat(both[1])
