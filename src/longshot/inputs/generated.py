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

from longshot.errors import LongshotError
from longshot.inputs.base import NOTHING, by_length, continued
from longshot.models import Growing, Model, SizedNetwork, dense

ROWS = 512  # texts that are written at once, where the network does not say how many fit


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
        return self._around(self._write(uniform=uniform).tokens)

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
            cut = torch.full((n,), first)
            return self._around(self._write(text, cut, uniform).tokens)
        cut = self.tokens - (free * where ** ((1 - share) / share)).ceil().long()
        new = self._write(text, cut, uniform).tokens
        single = (coin < 0.5).nonzero()[:, 0]
        if len(single):
            rows = (text[single], first, where[single], uniform[single], luck[single])
            new[single] = self._one_token(*rows)
        return self._around(new)

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
        here = torch.arange(self.tokens)[None] == at[:, None]
        old = self._write(text, log_probs=True)
        proposed = self._write(torch.where(here, NOTHING, text), at, uniform, only=here).tokens
        kept = torch.where(here, proposed, text)
        new = self._write(kept, log_probs=True)
        later = torch.arange(self.tokens)[None] > at[:, None]
        ratio = torch.where(later, new.log_probs - old.log_probs, 0).sum(1)
        real = (kept.gather(1, at[:, None])[:, 0] >= 0) & (long > first)  # else it had stopped
        return torch.where((real & (luck.log() < ratio))[:, None], kept, text)

    def log_prob(self, tokens: Int[Tensor, "n length"]) -> Float64[Tensor, " n"]:
        """The exact log probability of each input; −inf for what cannot be written."""
        try:
            text = self._text(tokens)
        except LongshotError:
            return torch.stack([self._log_prob_of_one(row) for row in tokens])
        return self._write(text, log_probs=True).log_probs.sum(1)

    def _log_prob_of_one(self, row: Int[Tensor, " length"]) -> Float64[Tensor, ""]:
        try:
            return self._write(self._text(row[None]), log_probs=True).log_probs.sum()
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
        text: Int64[Tensor, "n token"] | None = None,
        cut: Int64[Tensor, " n"] | None = None,
        uniform: Float64[Tensor, "n token"] | None = None,
        *,
        only: Bool[Tensor, "n token"] | None = None,
        log_probs: bool = False,
    ) -> Written:
        """Texts that are as given up to `cut` and drawn from there on; or all given, and scored.

        With `only`, no more is drawn than the tokens at those places.
        """
        given = uniform if text is None else text
        assert given is not None
        n = len(given)
        text = torch.full((n, self.tokens), NOTHING) if text is None else text
        cut = torch.full((n,), 0 if uniform is not None else self.tokens) if cut is None else cut
        out = Written(text.clone(), torch.zeros(n, self.tokens, dtype=torch.float64))
        network = self.writer.network
        most = (
            network.rows(len(self.prompt) + self.tokens)
            if isinstance(network, SizedNetwork)
            else ROWS
        )
        with torch.no_grad():
            for start in range(0, n, most):
                here = slice(start, start + most)
                drawn = None if uniform is None else uniform[here]
                places = None if only is None else only[here]
                block = Written(out.tokens[here], out.log_probs[here])
                self._write_block(block, cut[here], drawn, places, log_probs)
        return out

    def _write_block(
        self,
        out: Written,
        cut: Int64[Tensor, " n"],
        uniform: Float64[Tensor, "n token"] | None,
        only: Bool[Tensor, "n token"] | None,
        log_probs: bool,
    ) -> None:
        """Fill in a block of texts, from the first token at which something must be known."""
        text, n = out.tokens, len(out.tokens)
        begin = 0 if log_probs else int(cut.min())
        if uniform is not None and only is None:
            text[torch.arange(self.tokens)[None] >= cut[:, None]] = NOTHING
        prompt = torch.tensor(self.prompt, dtype=torch.int64).expand(n, -1)
        grown = Growing(self.writer, prompt, self.tokens, shared=len(self.prompt) - 1)
        going = (text[:, :begin] >= 0).all(1)
        end = self.tokens if only is None else int(cut.max()) + 1
        for j in range(begin, end):
            log_q = self._log_q(grown.after(text[:, :j].clamp(min=0)))
            stop = log_q.masked_fill(~self.stops, -math.inf).logsumexp(1)
            if uniform is not None:
                token = _invert(log_q, uniform[:, j])
                token = token.masked_fill(self.stops[token], NOTHING)
                drawn = (j >= cut) if only is None else only[:, j]
                text[:, j] = torch.where(drawn & going, token, text[:, j])
            there = text[:, j] >= 0
            own = log_q.gather(1, text[:, j : j + 1].clamp(min=0))[:, 0]
            out.log_probs[:, j] = torch.where(there, own, stop).masked_fill(~going, 0)
            own_stops = there & self.stops[text[:, j].clamp(min=0)]  # a text holds no stop
            out.log_probs[own_stops, j] = -math.inf
            going &= there
            if not going.any():
                break

    def _log_q(self, v: Float[Tensor, "n width"]) -> Float64[Tensor, "n vocab"]:
        """What the writer writes next: the log probability of every token."""
        rows, bias = self.writer.unembedding.mT, self.writer.unembedding_bias
        logits = dense(v, rows.to(v.dtype), bias.to(v.dtype))
        log_q = (logits.double().cpu() / self.temperature).log_softmax(1)
        if self.top_p == 1:
            return log_q
        ranked, order = log_q.sort(dim=1, descending=True, stable=True)
        above = ranked.exp().cumsum(1) - ranked.exp()  # what likelier tokens hold
        ranked = ranked.masked_fill(above >= self.top_p, -math.inf)
        return torch.empty_like(log_q).scatter_(1, order, ranked).log_softmax(1)


def _invert(
    log_q: Float64[Tensor, "n vocab"], uniform: Float64[Tensor, " n"]
) -> Int64[Tensor, " n"]:
    """The token at which each cumulative distribution passes its number of [0, 1)."""
    sums = log_q.exp().cumsum(1)
    sums = sums.masked_fill_(sums >= sums[:, -1:], 1.0)  # rounding leaves no number beyond
    return torch.searchsorted(sums, uniform[:, None].contiguous(), right=True)[:, 0]
