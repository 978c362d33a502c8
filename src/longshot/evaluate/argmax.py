"""The exact argmax of the logits, of all of them or only as far as an event needs it.

`winners` finds the largest of all logits, for truth and for plain samples, at little more than the
price of the matrix product. The vocabulary is folded into lanes: plain maxima down the lanes cost a
twelfth of a maximum with its index, and the two largest logits then come from the few lanes and
from the winner's own.

`Decider` answers whether given tokens win, which does not need all the logits: a few rivals that
often win dismiss most inputs, and only the survivors meet the whole vocabulary.

**Exact in spite of rounding.** A float32 dot product of length d is off by at most

    γ·‖v‖·‖u‖  with  γ = dε/(1 − dε),  ε = 2⁻²⁴,

in whatever order it is summed. The margin m bounds the error of a difference of two such logits. An
exact gap within m is a near-tie, and a computed gap beyond 2m is certain to be none and has the
right sign: only by so much does a rival dismiss an input. The rest is decided in float64, and by
rational arithmetic where float64 cannot tell. So the answer is the argmax of the exact products,
and the near-ties are those of the exact products, whatever the rivals and the matrices' shapes.
Tokens of equal columns and biases tie everywhere and count as one; an activation of zeros leaves
the biases, which need no arithmetic.

Half-precision weights are unembedded in float32, which holds them exactly. All that meets the
activations is on the model's device; winners, gaps and counts come back to the processor's memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch.nn.functional import pad

from longshot.errors import LongshotError
from longshot.events import Event, member_table
from longshot.models import Model, dense
from longshot.numerics import row_keys

BLOCK = 192  # rows of one product with the whole vocabulary: the logits stay in the cache
UNEMBED_BLOCK = 64  # the same where what was learned from one block spares the next
RIVALS = 64
GATHER = 2**22  # numbers of one gathered product, so that a large set does not exhaust the memory


class Readout:
    """A model's logits v·W_U + b, with a bound on what rounding does to them."""

    def __init__(self, model: Model) -> None:
        self.name, self.width, self.vocab_size = model.name, model.width, model.vocab_size
        self.dtype = torch.promote_types(model.unembedding.dtype, torch.float32)
        self.lanes = 2 ** round(math.log2(model.vocab_size) / 2)
        missing = -model.vocab_size % self.lanes  # filled up with tokens that cannot win
        self._rows = pad(model.unembedding.mT.to(self.dtype), (0, 0, 0, missing)).contiguous()
        self._bias = pad(model.unembedding_bias.to(self.dtype), (0, missing), value=-math.inf)
        self.rows, self.bias = self._rows[: self.vocab_size], self._bias[: self.vocab_size]
        norms = [torch.linalg.vector_norm(u.double(), dim=1).max() for u in self.rows.split(4096)]
        self._norm, self._largest_bias = float(max(norms)), float(self.bias.abs().max())
        self.finer = torch.finfo(torch.float64).eps / torch.finfo(self.dtype).eps
        """By how much the margin shrinks for logits in float64."""

    def folded(self, v: Float[Tensor, "rows width"]) -> Float[Tensor, "rows place lane"]:
        """All logits: token t stands in lane t mod `lanes`, and what fills up is −inf."""
        places = len(self._rows) // self.lanes
        return dense(v, self._rows, self._bias).view(len(v), places, self.lanes)

    def logits(self, v: Float[Tensor, "rows width"]) -> Float[Tensor, "rows vocab"]:
        return self.folded(v).flatten(1)[:, : self.vocab_size]

    def of(
        self, v: Float[Tensor, "rows width"], tokens: Int[Tensor, "rows some"]
    ) -> Float[Tensor, "rows some"]:
        """The logits of each row's own tokens, in the precision of `v`.

        Sums along rows, not products of matrices: those round differently for one row and for two.
        """
        size = max(1, GATHER // (self.width * tokens.shape[1]))
        if len(v) > size:
            pieces = zip(v.split(size), tokens.split(size), strict=True)
            return torch.cat([self.of(x, chosen) for x, chosen in pieces])
        return (self.rows[tokens] * v[:, None]).sum(-1) + self.bias[tokens]

    def margin(
        self, v: Float[Tensor, "rows width"], tokens: Int[Tensor, " some"] | None = None
    ) -> Float64[Tensor, " rows"]:
        """What rounding may do to the difference of two logits, of some tokens or of any."""
        norm, bias = self._norm, self._largest_bias
        if tokens is not None:
            norm = float(torch.linalg.vector_norm(self.rows[tokens].double(), dim=1).max())
            bias = float(self.bias[tokens].abs().max())
        kind = torch.finfo(self.dtype)
        terms = self.width + 4  # the products, the bias, the comparison and this bound itself
        unit = kind.eps / 2
        gamma = terms * unit / (1 - terms * unit)
        if torch.get_float32_matmul_precision() != "highest":
            gamma += 2**-6  # the user lets float32 products round their factors to bfloat16
        size: Tensor = torch.linalg.vector_norm(v.double(), dim=1) * norm + bias
        if not (size < kind.max).all():
            raise LongshotError(f"{self.name} gives logits that are not finite in {self.dtype}.")
        return 2 * (gamma * size + terms * kind.tiny)

    @cached_property
    def alike(self) -> Int[Tensor, " vocab"]:
        """For each token the first of the same column and bias, whose logit is always equal."""
        columns = torch.cat([self.rows, self.bias[:, None]], 1).cpu() + 0.0  # −0 becomes 0
        whole = torch.int64 if self.dtype == torch.float64 else torch.int32
        keys = torch.cat([row_keys(part.view(whole).long()) for part in columns.split(4096)])
        inverse, place = keys.unique(return_inverse=True)[1], torch.arange(self.vocab_size)
        first = torch.full_like(place, self.vocab_size).scatter_reduce_(0, inverse, place, "amin")
        first = first[inverse]
        pieces = zip(columns.split(4096), first.split(4096), strict=True)
        same = [(x == columns[i]).all(1) for x, i in pieces]
        return torch.where(torch.cat(same), first, place).to(self.rows.device)

    def exact(self, v: Float64[Tensor, " width"], tokens: Int[Tensor, " some"]) -> list[Fraction]:
        """The logits of some tokens by rational arithmetic."""
        columns = torch.cat([self.rows[tokens], self.bias[tokens, None]], 1).double().tolist()
        x = [Fraction(a) for a in (*v.tolist(), 1.0)]
        return [
            sum((a * Fraction(b) for a, b in zip(x, u, strict=True) if b), Fraction())
            for u in columns
        ]


_readouts: WeakKeyDictionary[Model, Readout] = WeakKeyDictionary()


def readout(model: Model) -> Readout:
    """The model's readout, made once."""
    if model not in _readouts:
        _readouts[model] = Readout(model)
    return _readouts[model]


class Leaders(NamedTuple):
    """The largest logit of each row as it was computed, its token, and the second largest."""

    token: Int[Tensor, " rows"]
    best: Float[Tensor, " rows"]
    second: Float[Tensor, " rows"]


def leaders(folded: Float[Tensor, "rows place lane"]) -> Leaders:
    """The two largest logits of each row; of equal ones any may be called the first."""
    by_lane = folded.amax(1)
    best, lane = by_lane.max(1)
    column = folded[torch.arange(len(folded), device=folded.device), :, lane]
    place = column.argmax(1)
    by_lane.scatter_(1, lane[:, None], -math.inf)
    column.scatter_(1, place[:, None], -math.inf)
    second = torch.maximum(by_lane.amax(1), column.amax(1))
    return Leaders(place * folded.shape[2] + lane, best, second)


class Winners(NamedTuple):
    """The argmax of each activation (−1 where two logits tie exactly), and which were close."""

    token: Int[Tensor, " rows"]
    near: Bool[Tensor, " rows"]

    @property
    def near_ties(self) -> int:
        return int(self.near.sum())


@torch.no_grad()
def winners(model: Model, v: Float[Tensor, "rows width"]) -> Winners:
    """The token whose logit is strictly the largest, of the exact products."""
    out = readout(model)
    v = v.to(out.rows)
    margins = out.margin(v)
    token = torch.empty(len(v), dtype=torch.int64, device=v.device)
    lead = torch.empty(len(v), dtype=torch.float64, device=v.device)
    for start in range(0, len(v), BLOCK):
        here = slice(start, start + BLOCK)
        x, margin, folded = v[here], margins[here], out.folded(v[here])
        first = leaders(folded)
        token[here], lead[here] = first.token, first.best - first.second
        close = (lead[here] <= 2 * margin).nonzero()[:, 0]
        close = close[x[close].any(1)]  # of zeros the logits are the biases
        if len(close):
            least = _below(first.best[close], 2 * margin[close])
            found = _strict_best(out, x[close], margin[close], *_reaching(folded[close], least))
            token[here][close], lead[here][close] = found
    return Winners(token.masked_fill_(lead <= 0, -1).cpu(), (lead <= margins).cpu())


def _strict_best(
    out: Readout,
    v: Float[Tensor, "rows width"],
    margin: Float64[Tensor, " rows"],
    row: Int[Tensor, " candidate"],
    token: Int[Tensor, " candidate"],
) -> tuple[Int[Tensor, " rows"], Float64[Tensor, " rows"]]:
    """The best of each row's candidates and its exact lead over the others, 0 where two tie."""
    v, finer = v.double(), out.finer * margin
    row, token, count = _distinct(out, row, token)
    logit = out.of(v[row], token[:, None])[:, 0]
    best = _largest(logit, row, len(v))
    place = torch.arange(len(row), device=row.device)
    winner = _largest(torch.where(logit == best[row], place, -1), row, len(v))
    lead = best - _largest(logit.index_fill(0, winner, -math.inf), row, len(v))
    for i in (lead <= finer).nonzero()[:, 0].tolist():  # float64 cannot tell
        rivals = ((row == i) & (logit >= best[i] - finer[i])).nonzero()[:, 0]
        exact = out.exact(v[i], token[rivals])
        second, first = sorted(exact)[-2:]
        winner[i], lead[i] = rivals[exact.index(first)], float(first - second)
    return token[winner], lead.masked_fill_(count[winner] > 1, 0.0)


def _distinct(
    out: Readout, row: Int[Tensor, " candidate"], token: Int[Tensor, " candidate"]
) -> tuple[Tensor, Tensor, Tensor]:
    """Each row's candidates with those of equal columns as one: row, token, and how many."""
    pair, count = (row * out.vocab_size + out.alike[token]).unique(return_counts=True)
    return pair // out.vocab_size, pair % out.vocab_size, count


def _largest(values: Tensor, row: Int[Tensor, " value"], rows: int) -> Tensor:
    """The largest value of each row."""
    least = -math.inf if values.is_floating_point() else -1
    return values.new_full((rows,), least).scatter_reduce_(0, row, values, "amax")


def _below(
    best: Float[Tensor, " rows"], margin: Float64[Tensor, " rows"]
) -> Float[Tensor, " rows"]:
    """By so much less, but finite: what fills the lanes up is never reached."""
    return (best.double() - margin).to(best.dtype).clamp_(min=torch.finfo(best.dtype).min)


def _reaching(
    folded: Float[Tensor, "rows place lane"], least: Float[Tensor, " rows"]
) -> tuple[Int[Tensor, " found"], Int[Tensor, " found"]]:
    """The row and the token of each logit that reaches its row's least.

    Only lanes whose largest reaches it are looked through.
    """
    row, lane = (folded.amax(1) >= least[:, None]).nonzero().unbind(1)
    pair, place = (folded[row, :, lane] >= least[row, None]).nonzero().unbind(1)
    return row[pair], place * folded.shape[2] + lane[pair]


class Rows(NamedTuple):
    """Activations to decide, with their event, its best logit, their margin, the least gap."""

    v: Float[Tensor, "rows width"]
    owner: Int[Tensor, " rows"]
    own: Float64[Tensor, " rows"]
    margin: Float64[Tensor, " rows"]
    least: Float64[Tensor, " rows"]

    def at(self, chosen: Tensor) -> Rows:
        return Rows(*(field[chosen] for field in self))


class Decider:
    """The exact lazy argmax: whether one of an event's tokens is strictly above all others.

    It learns its rivals as it goes, from the tokens that beat the events' own. For each event,
    `unembedded` counts the activations that met the whole vocabulary, `near_ties` those whose exact
    gap lies within the margin.
    """

    def __init__(self, model: Model, events: Sequence[Event], rivals: int = RIVALS) -> None:
        self.model, self.readout = model, readout(model)
        self.members = member_table(events).to(self.readout.rows.device)
        self.near_ties = torch.zeros(len(events), dtype=torch.int64)
        self.unembedded = torch.zeros(len(events), dtype=torch.int64)
        self.wins = self.members.new_zeros(model.vocab_size)
        self._rival_count = min(rivals, model.vocab_size)
        self._rivals = self.members.new_empty(0)

    def __call__(
        self,
        v: Float[Tensor, "rows width"],
        owner: Int[Tensor, " rows"],
        least: Float64[Tensor, " rows"] | None = None,
    ) -> Float64[Tensor, " rows"]:
        """The owner's gap at each activation: positive exactly when its event occurs.

        A gap that lies by more than the margin below `least`, zero unless given, is not worth its
        number: it is given as −inf.
        """
        v, owner = v.to(self.readout.rows), owner.to(self.members)
        own = self.readout.of(v, self.members[owner]).amax(1).double()
        floor = torch.zeros_like(own) if least is None else least.to(own)
        rows = Rows(v, owner, own, self.readout.margin(v), floor)
        gap = torch.full_like(own, -math.inf)
        pending = self._undismissed(rows, self._rivals).nonzero()[:, 0]
        while len(pending):
            chosen, pending = pending[:UNEMBED_BLOCK], pending[UNEMBED_BLOCK:]
            gap[chosen] = self._decide(rows.at(chosen))
            learned = self._learn()
            pending = pending[self._undismissed(rows.at(pending), learned)]
        return gap.cpu()

    def macs(self, i: int, rows: int) -> int:
        """Multiply-accumulates of deciding `rows` activations of event i: rivals, then all."""
        everything = int(self.unembedded[i]) * self.model.vocab_size
        return self.model.width * (rows * self._rival_count + everything)

    def count(self, owner: Int[Tensor, " rows"]) -> None:
        """Note that a row of each owner met the whole vocabulary."""
        self.unembedded += torch.bincount(owner.cpu(), minlength=len(self.members))

    def best_rival(
        self, v: Float[Tensor, "rows width"], owner: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        """The likeliest token outside each owner's event, from all the logits."""
        return leaders(self._rivals_folded(v, owner.to(self.members))).token

    def _rivals_folded(self, v: Tensor, owner: Tensor) -> Float[Tensor, "rows place lane"]:
        """All logits, with those of the owner's own tokens at −inf."""
        folded = self.readout.folded(v)
        folded.flatten(1).scatter_(1, self.members[owner], -math.inf)
        return folded

    def _undismissed(self, rows: Rows, rivals: Int[Tensor, " rival"]) -> Bool[Tensor, " rows"]:
        """Whether none of `rivals` is so far ahead that the gap is below the least − margin."""
        if not len(rivals):
            return torch.ones_like(rows.owner, dtype=torch.bool)
        columns, bias = self.readout.rows[rivals], self.readout.bias[rivals]
        logits = dense(rows.v, columns, bias)
        # A rival that is an event's own token does not exceed the best of them but by rounding.
        return logits.amax(1) - rows.own <= 2 * rows.margin - rows.least

    def _decide(self, rows: Rows) -> Float64[Tensor, " rows"]:
        """The gap against the whole vocabulary, exact about 0; −inf below the least − margin."""
        self.count(rows.owner)
        folded = self._rivals_folded(rows.v, rows.owner)
        best = folded.amax((1, 2))
        row, token = _reaching(folded, _below(best, rows.margin))
        gap = rows.own - best
        doubtful = (gap >= -2 * rows.margin) & rows.v.any(1)  # of zeros the logits are the biases
        if doubtful.any():
            chosen = doubtful[row]
            place = doubtful.cumsum(0)[row[chosen]] - 1
            gap[doubtful] = self._exact_gap(rows.at(doubtful), place, token[chosen])
        self.wins.index_add_(0, token, (gap[row] <= 0).long())
        near = (gap.abs() <= rows.margin).nonzero()[:, 0]
        self.near_ties += torch.bincount(rows.owner[near].cpu(), minlength=len(self.members))
        return gap.masked_fill_(gap < rows.least - rows.margin, -math.inf)

    def _exact_gap(self, rows: Rows, row: Tensor, token: Tensor) -> Float64[Tensor, " rows"]:
        """The gap of rows against the rivals that may be best: row[i] against token[i]."""
        out, v, members = self.readout, rows.v.double(), self.members[rows.owner]
        row, token, _ = _distinct(out, row, token)
        own, rival = out.of(v, members), out.of(v[row], token[:, None])[:, 0]
        best, finer = _largest(rival, row, len(v)), out.finer * rows.margin
        gap = own.amax(1) - best
        for i in (gap.abs() <= finer).nonzero()[:, 0].tolist():
            inside = out.alike[members[i][own[i] >= own[i].amax() - finer[i]]].unique()
            outside = token[(row == i) & (rival >= best[i] - finer[i])]
            gap[i] = 0.0
            if len(inside) > 1 or not torch.equal(inside, outside):
                gap[i] = float(max(out.exact(v[i], inside)) - max(out.exact(v[i], outside)))
        return gap

    def _learn(self) -> Int[Tensor, " learned"]:
        """Take the tokens that won most often as the rivals; returns those that are new."""
        top = self.wins.topk(self._rival_count)
        rivals = top.indices[top.values > 0]
        learned = rivals[~torch.isin(rivals, self._rivals)]
        self._rivals = rivals
        return learned
