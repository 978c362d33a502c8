"""Inputs that a language model writes: after a prompt, token by token, at a temperature.

    q(y | s) ∝ exp(logit(y | s)/T),  cut down to the likeliest tokens that hold `top_p` of it
    p(x)     = Π_i q(x_i | prompt·x_<i)  ·  q(stop | prompt·x)  where the text stops early

A text stops before its first special token, or after `tokens` of them. The model that is asked
reads what is written between the tokens `before` and `after`; the writer reads its prompt.

**Redraws.** A suffix is drawn anew from q given what stands before it. Its share of the text is
U^((1−s)/s) for a uniform U: s on average, and of all sizes. Every second time, if s < 1, one token
x_i is proposed from q(· | x_<i) instead and what follows it is kept, with probability

    min(1, Π_{k>i} q(x_k | x'_<k) / q(x_k | x_<k)),      the stop included.

Places are chosen without looking at the tokens, so both are reversible and leave p as it is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor
from torch.nn import functional

from longshot.errors import LongshotError
from longshot.inputs.base import NOTHING, by_length, continued
from longshot.models import Growing, Model, SizedNetwork, dense

ROWS = 512  # texts that are written at once, where the network does not say how many fit
UNEMBED_ROWS = 128  # texts that meet all tokens at once: few enough to stay in a cache
FEW = 64  # neighbouring tokens whose probabilities are summed first


class Written(NamedTuple):
    """Texts, and the log probability of each of their tokens and of the stop behind them."""

    tokens: Int64[Tensor, "n token"]
    log_probs: Float64[Tensor, "n token"]


class GeneratedInputs:
    """Texts of at most `tokens` tokens that `writer` writes after a prompt."""

    def __init__(
        self,
        name: str,
        writer: Model,
        prompt: Sequence[int],
        tokens: int,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        before: Sequence[int] | None = None,
        after: Sequence[int] = (),
    ) -> None:
        if not 0 < top_p <= 1:
            raise LongshotError(f"top_p lies above 0 and is at most 1, which {top_p} is not.")
        if not 0 < temperature < math.inf:
            raise LongshotError(f"The writer's temperature must be positive, not {temperature}.")
        if tokens < 1 or not prompt:
            raise LongshotError("A text has one token or more, and something before it.")
        if (longest := len(prompt) + tokens) > writer.context:
            raise LongshotError(
                f"The writer {writer.name} reads {writer.context} tokens, not the {longest} of its "
                "prompt with the text."
            )
        self.name, self.writer, self.tokens = name, writer, tokens
        self.temperature, self.top_p = temperature, top_p
        self.prompt, self.after = tuple(prompt), tuple(after)
        self.before = self.prompt if before is None else tuple(before)
        self.macs_beside = 0
        """Multiply-accumulates of the writer so far."""
        self.stops = torch.zeros(writer.vocab_size, dtype=torch.bool)
        self.stops[[t for t in writer.tokenizer.special_ids if t < writer.vocab_size]] = True

    def __repr__(self) -> str:
        return f"GeneratedInputs({self.name!r}, {self.tokens} tokens by {self.writer.name})"

    @property
    def length(self) -> int:
        return len(self.before) + self.tokens + len(self.after)

    @property
    def beginning(self) -> tuple[int, ...]:
        """The tokens with which every input begins, short of its last."""
        return self.before if self.after else self.before[:-1]

    @property
    def free_positions(self) -> tuple[int, ...]:
        """Those of the text."""
        return tuple(range(len(self.before), len(self.before) + self.tokens))

    @cached_property
    def fingerprint(self) -> str:
        """A short digest of the writer and of all that it is told."""
        told = (self.prompt, self.before, self.after, self.tokens, self.temperature, self.top_p)
        return hashlib.sha256(f"{self.writer.fingerprint} {told}".encode()).hexdigest()[:16]

    def sample(self, n: int, generator: torch.Generator) -> Int64[Tensor, "n length"]:
        """`n` independent inputs."""
        uniform = torch.rand(n, self.tokens, generator=generator, dtype=torch.float64)
        text = torch.full((n, self.tokens), NOTHING)
        return self._around(self._suffix(text, torch.zeros(n, dtype=torch.int64), uniform))

    def redraw(
        self,
        tokens: Int64[Tensor, "n length"],
        generator: torch.Generator,
        start: int = 0,
        share: float = 1.0,
    ) -> Int64[Tensor, "n length"]:
        """A suffix or one token of what stands from `start` on; all of it where `share` is 1."""
        text, n, first = self._text(tokens), len(tokens), max(start - len(self.before), 0)
        uniform = torch.rand(n, self.tokens, generator=generator, dtype=torch.float64)
        where, coin, luck = torch.rand(3, n, generator=generator, dtype=torch.float64)
        free = max(self.tokens - first, 0)
        if not free:
            return tokens
        if share >= 1:
            return self._around(self._suffix(text, torch.full((n,), first), uniform))
        cut = self.tokens - (free * where ** ((1 - share) / share)).ceil().long()
        one, rest = (coin < 0.5).nonzero()[:, 0], (coin >= 0.5).nonzero()[:, 0]
        new = text.clone()
        new[rest] = self._suffix(text[rest], cut[rest], uniform[rest])
        new[one] = self._one_token(text[one], first, where[one], uniform[one], luck[one])
        return self._around(new)

    def _suffix(
        self,
        text: Int64[Tensor, "n token"],
        cut: Int64[Tensor, " n"],
        uniform: Float64[Tensor, "n token"],
    ) -> Int64[Tensor, "n token"]:
        """Texts as they are up to `cut`, drawn from there on."""
        drawn = torch.arange(self.tokens)[None] >= cut[:, None]
        kept = text.masked_fill(drawn, NOTHING)
        return self._write(kept, drawn=drawn, uniform=uniform, follow=True).tokens

    def _one_token(
        self,
        text: Int64[Tensor, "n token"],
        first: int,
        where: Float64[Tensor, " n"],
        uniform: Float64[Tensor, "n token"],
        luck: Float64[Tensor, " n"],
    ) -> Int64[Tensor, "n token"]:
        """A token proposed by what stands before it, accepted by what stands behind it."""
        long = (text >= 0).sum(1)
        at = first + ((long - first).clamp(min=1) * where).long()
        place = torch.arange(self.tokens)[None]
        here, later = place == at[:, None], place > at[:, None]
        old = self._write(text, drawn=here, uniform=uniform, scored=later)
        kept = torch.where(here, old.tokens, text)
        new = self._write(kept, scored=later)
        ratio = (new.log_probs - old.log_probs).sum(1)
        real = (kept.gather(1, at[:, None])[:, 0] >= 0) & (long > first)  # else it had stopped
        return torch.where((real & (luck.log() < ratio))[:, None], kept, text)

    def log_prob(self, tokens: Int[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        """The exact log probability of each input; −inf for what cannot be written."""
        try:
            text = self._text(tokens)
        except LongshotError:
            return torch.stack([self._log_prob_of_one(row) for row in tokens])
        return self._write(text, scored=text >= NOTHING).log_probs.sum(1)

    def _log_prob_of_one(self, row: Int[Tensor, " length"]) -> Float64[Tensor, ""]:
        try:
            text = self._text(row[None])
            return self._write(text, scored=text >= NOTHING).log_probs.sum()
        except LongshotError:
            return torch.tensor(-math.inf, dtype=torch.float64)

    def _around(self, text: Int64[Tensor, "n token"]) -> Int64[Tensor, "n length"]:
        """Texts between what the model reads before and after them."""
        n = len(text)
        whole = torch.cat([torch.tensor(self.before, dtype=torch.int64).expand(n, -1), text], 1)
        return continued(whole, torch.tensor(self.after, dtype=torch.int64).expand(n, -1))

    def _text(self, tokens: Int[Tensor, "n length"]) -> Int64[Tensor, "n token"]:
        """What was written of each input."""
        text = torch.full((len(tokens), self.tokens), NOTHING)
        start, end = len(self.before), len(self.after)
        for rows, some in by_length(tokens):
            stop = some.shape[1] - end
            around = torch.cat([some[:, :start], some[:, stop:]], 1)
            if stop < start or (around != torch.tensor(self.before + self.after)).any():
                raise LongshotError(f"{some[0].tolist()} is none of the inputs {self.name!r}.")
            text[rows, : stop - start] = some[:, start:stop].long()
        return text

    def _write(
        self,
        text: Int64[Tensor, "n token"],
        *,
        drawn: Bool[Tensor, "n token"] | None = None,
        uniform: Float64[Tensor, "n token"] | None = None,
        scored: Bool[Tensor, "n token"] | None = None,
        follow: bool = False,
    ) -> Written:
        """Texts with new tokens at the places `drawn`, and the log probabilities at the `scored`.

        What comes later is written after the new tokens where they are to be followed, else after
        the given ones. A place that is neither drawn nor scored has the log probability 0.
        """
        n, nowhere = len(text), torch.zeros(text.shape, dtype=torch.bool)
        drawn, scored = (nowhere if mask is None else mask for mask in (drawn, scored))
        uniform = torch.zeros(text.shape, dtype=torch.float64) if uniform is None else uniform
        out = Written(text.clone(), torch.zeros(n, self.tokens, dtype=torch.float64))
        network, longest = self.writer.network, len(self.prompt) + self.tokens
        most = network.rows(longest) if isinstance(network, SizedNetwork) else ROWS
        with torch.no_grad():
            for start in range(0, n, most):
                here = slice(start, start + most)
                block = Written(out.tokens[here], out.log_probs[here])
                read = block.tokens if follow else text[here]
                self._write_block(block, read, drawn[here], uniform[here], scored[here])
        return out

    def _write_block(
        self,
        out: Written,
        read: Int64[Tensor, "n token"],
        drawn: Bool[Tensor, "n token"],
        uniform: Float64[Tensor, "n token"],
        scored: Bool[Tensor, "n token"],
    ) -> None:
        """Fill in a block of texts; only texts of which something must be known meet all tokens."""
        asked = drawn | scored
        places = asked.any(0).nonzero()[:, 0].tolist()
        if not places:
            return
        prompt = torch.tensor(self.prompt, dtype=torch.int64).expand(len(read), -1)
        grown = Growing(self.writer, prompt, self.tokens, shared=len(self.prompt) - 1)
        for j in range(places[0], places[-1] + 1):
            going = (read[:, :j] >= 0).all(1)
            if not going.any():
                break
            v = grown.after(read[:, :j].clamp(min=0))
            for rows in (asked[:, j] & going).nonzero()[:, 0].split(UNEMBED_ROWS):
                if not len(rows):
                    continue
                same = v[:1] if j == 0 else v[rows.to(v.device)]  # all begin after the prompt
                following = NextTokens.of(self._logits(same)).of_rows(len(rows))
                self.macs_beside += len(same) * self.writer.unembedding.numel()
                new, known = drawn[rows, j], scored[rows, j]
                if new.any():
                    token = following.at(uniform[rows, j])
                    token = token.masked_fill(self.stops[token], NOTHING)
                    out.tokens[rows, j] = torch.where(new, token, out.tokens[rows, j])
                if known.any():
                    own = following.log_prob(read[rows, j], self.stops)
                    out.log_probs[rows, j] = torch.where(known, own, 0)
        self.macs_beside += grown.macs

    def _logits(self, v: Float[Tensor, "n width"]) -> Float[Tensor, "n vocab"]:
        """What the writer writes next, of which probabilities are the softmax."""
        rows, bias = self.writer.unembedding.mT, self.writer.unembedding_bias
        logits = dense(v, rows.to(v.dtype), bias.to(v.dtype)).cpu()
        logits = logits if self.temperature == 1 else logits.div_(self.temperature)
        if self.top_p == 1:
            return logits
        ranked, order = logits.double().log_softmax(1).sort(dim=1, descending=True, stable=True)
        above = ranked.exp().cumsum(1) - ranked.exp()  # what likelier tokens hold
        cut = torch.empty_like(order, dtype=torch.bool).scatter_(1, order, above >= self.top_p)
        return logits.masked_fill(cut, -math.inf)


class NextTokens(NamedTuple):
    """The distributions of the tokens that come next, summed in two stages to be quick."""

    logits: Float[Tensor, "n vocab"]
    parts: Float[Tensor, "n some few"]
    """exp(logit − largest), a few neighbours together."""
    sums: Float64[Tensor, "n some"]
    """Their cumulative sums over all neighbours before and with each."""
    log_total: Float64[Tensor, " n"]

    @classmethod
    def of(cls, logits: Float[Tensor, "n vocab"]) -> NextTokens:
        largest = logits.amax(1, keepdim=True)
        parts = (logits - largest).exp_()
        if missing := -logits.shape[1] % FEW:
            parts = functional.pad(parts, (0, missing))
        parts = parts.view(len(logits), -1, FEW)
        sums = parts.sum(2).double().cumsum(1)
        return cls(logits, parts, sums, largest[:, 0].double() + sums[:, -1].log())

    def of_rows(self, n: int) -> NextTokens:
        """The same for so many rows, where there is one that serves all."""
        return NextTokens(*(part.expand(n, *part.shape[1:]) for part in self))

    def at(self, uniform: Float64[Tensor, " n"]) -> Int64[Tensor, " n"]:
        """The token at which each cumulative distribution passes its number of [0, 1)."""
        wanted, rows = uniform * self.sums[:, -1], torch.arange(len(uniform))
        some = _place(self.sums, wanted)
        before = torch.where(some > 0, self.sums[rows, (some - 1).clamp(min=0)], 0)
        return some * FEW + _place(self.parts[rows, some].double().cumsum(1), wanted - before)

    def log_prob(
        self, token: Int64[Tensor, " n"], stops: Bool[Tensor, " vocab"]
    ) -> Float64[Tensor, " n"]:
        """Of each token, or of any that stops where there is none; a text holds no stop."""
        there, own = token >= 0, token.clamp(min=0)
        found = (
            self.logits.gather(1, own[:, None])[:, 0].double().masked_fill(stops[own], -math.inf)
        )
        stop = self.logits[:, stops].double().logsumexp(1)
        return torch.where(there, found, stop) - self.log_total


def _place(sums: Float64[Tensor, "n some"], wanted: Float64[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """Where cumulative sums pass a number; rounding leaves none beyond the last that adds to it."""
    sums = sums.masked_fill(sums >= sums[:, -1:], math.inf)
    return torch.searchsorted(sums, wanted[:, None].contiguous(), right=True)[:, 0]
