"""The exact argmax of the logits, of all of them or only as far as an event needs it.

Deciding whether a token wins does not need all the logits: a few rivals that often win dismiss most
inputs, and only the survivors meet the whole vocabulary.

**Exact in spite of rounding.** A float32 dot product of length d is off by at most

    γ·‖v‖·‖u‖  with  γ = dε/(1 − dε),  ε = 2⁻²⁴,

in whatever order it is summed. The margin m bounds the error of a difference of two such logits. An
exact gap within m is a near-tie, and a computed gap beyond 2m is certain to be none and has the
right sign: only by so much does a rival dismiss an input. The rest is decided in float64, and by
rational arithmetic where float64 cannot tell. So the answer is the argmax of the exact products,
and the near-ties are those of the exact products, whatever the rivals and the matrices' shapes.

Half-precision weights are unembedded in float32, which holds them exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.events import TokenIn, member_table
from longshot.models import Model, dense

UNEMBED_BLOCK = 64  # rows of one full unembedding: the logits stay in the cache
RIVALS = 64
LANES = 64  # columns into which the logits are folded when few of them are looked for
GATHER = 2**22  # numbers of one gathered product, so that a large set does not exhaust the memory


class Readout:
    """A model's logits v·W_U + b, with a bound on what rounding does to them."""

    def __init__(self, model: Model) -> None:
        self.name, self.width = model.name, model.width
        self.dtype = torch.promote_types(model.unembedding.dtype, torch.float32)
        self.rows = model.unembedding_rows.to(self.dtype)
        self.bias = model.unembedding_bias.to(self.dtype)
        norms = [torch.linalg.vector_norm(u.double(), dim=1).max() for u in self.rows.split(4096)]
        self._norm, self._bias = float(max(norms)), float(self.bias.abs().max())
        self.finer = torch.finfo(torch.float64).eps / torch.finfo(self.dtype).eps
        """By how much the margin shrinks for logits in float64."""

    def logits(self, v: Float[Tensor, "rows width"]) -> Float[Tensor, "rows vocab"]:
        return dense(v, self.rows, self.bias)

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
        norm, bias = self._norm, self._bias
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

    def lead(self, v: Float64[Tensor, " width"], inside: Tensor, outside: Tensor) -> float:
        """The best logit of `inside` minus that of `outside`, by rational arithmetic."""

        def best(tokens: Tensor) -> Fraction:
            columns = torch.cat([self.rows[tokens], self.bias[tokens, None]], 1).double()
            distinct = {tuple(column) for column in columns.tolist()}
            return max(
                sum((Fraction(a) * Fraction(b) for a, b in zip(x, u, strict=True)), Fraction())
                for u in distinct
            )

        x = [*v.tolist(), 1.0]
        return float(best(inside) - best(outside))


_readouts: WeakKeyDictionary[Model, Readout] = WeakKeyDictionary()


def readout(model: Model) -> Readout:
    """The model's readout, made once."""
    if model not in _readouts:
        _readouts[model] = Readout(model)
    return _readouts[model]


def rounding_margin(model: Model, v: Float[Tensor, "rows width"]) -> Float64[Tensor, " rows"]:
    """What two logits of one activation may differ by through rounding alone: both bounds."""
    return readout(model).margin(v)


class Winners(NamedTuple):
    """The argmax of each activation (−1 where two logits tie exactly), and which were close."""

    token: Int[Tensor, " rows"]
    near: Bool[Tensor, " rows"]

    @property
    def near_ties(self) -> int:
        return int(self.near.sum())


def winners(model: Model, v: Float[Tensor, "rows width"]) -> Winners:
    """The token whose logit is strictly the largest, of the exact products."""
    out = readout(model)
    v = v.to(out.dtype)
    margins = out.margin(v)
    token, near = torch.empty(len(v), dtype=torch.int64), torch.zeros(len(v), dtype=torch.bool)
    for start in range(0, len(v), UNEMBED_BLOCK):
        here = slice(start, start + UNEMBED_BLOCK)
        logits = out.logits(v[here])
        row, candidate = _reaching(logits, _below(logits.amax(1), 2 * margins[here]))
        token[here][row] = candidate
        for i in (row.bincount() > 1).nonzero()[:, 0].tolist():
            margin, rivals = float(margins[start + i]), candidate[row == i]
            token[start + i], lead = _strict_best(out, v[start + i].double(), rivals, margin)
            near[start + i] = lead <= margin
    return Winners(token, near)


def _strict_best(
    out: Readout, v: Float64[Tensor, " width"], tokens: Int[Tensor, " candidate"], margin: float
) -> tuple[int, float]:
    """The token strictly above the others (−1 if none is), and its lead."""
    logits, order = out.of(v[None], tokens[None])[0].sort(descending=True, stable=True)
    lead = float(logits[0] - logits[1])
    if lead > out.finer * margin:
        return int(tokens[order[0]]), lead
    for i in range(len(order)):  # float64 cannot tell: the first that nothing exceeds
        others = torch.cat([order[:i], order[i + 1 :]])
        lead = out.lead(v, tokens[order[i : i + 1]], tokens[others])
        if lead >= 0:
            return int(tokens[order[i]]) if lead > 0 else -1, lead
    raise AssertionError("of finitely many numbers none is the largest")


def _below(
    best: Float[Tensor, " rows"], margin: Float64[Tensor, " rows"]
) -> Float[Tensor, " rows"]:
    return (best.double() - margin).to(best.dtype)


def _reaching(
    logits: Float[Tensor, "rows vocab"], least: Float[Tensor, " rows"]
) -> tuple[Int[Tensor, " found"], Int[Tensor, " found"]]:
    """The row and the token of each logit that reaches its row's least.

    The logits are folded into lanes, whose plain maxima cost little; only lanes that reach are
    looked through.
    """
    lanes = min(LANES, logits.shape[1])
    whole = logits.shape[1] // lanes * lanes
    folded = logits[:, :whole].unflatten(1, (-1, lanes))
    row, lane = (folded.amax(1) >= least[:, None]).nonzero().unbind(1)
    pair, place = (folded[row, :, lane] >= least[row, None]).nonzero().unbind(1)
    last_row, last = (logits[:, whole:] >= least[:, None]).nonzero().unbind(1)
    tokens = torch.cat([place * lanes + lane[pair], last + whole])
    return torch.cat([row[pair], last_row]), tokens


class Rows(NamedTuple):
    """Activations to decide, with their event, its best logit and their margin."""

    v: Float[Tensor, "rows width"]
    owner: Int[Tensor, " rows"]
    own: Float64[Tensor, " rows"]
    margin: Float64[Tensor, " rows"]

    def at(self, chosen: Tensor) -> Rows:
        return Rows(*(field[chosen] for field in self))


class Decider:
    """The exact lazy argmax: whether one of an event's tokens is strictly above all others.

    It learns its rivals as it goes, from the tokens that beat the events' own. For each event,
    `unembedded` counts the activations that met the whole vocabulary, `near_ties` those whose exact
    gap lies within the margin.
    """

    def __init__(self, model: Model, events: Sequence[TokenIn], rivals: int = RIVALS) -> None:
        self.members = member_table(events)
        self.model, self.readout = model, readout(model)
        self.near_ties = torch.zeros(len(events), dtype=torch.int64)
        self.unembedded = torch.zeros(len(events), dtype=torch.int64)
        self.wins = torch.zeros(model.vocab_size, dtype=torch.int64)
        self._rival_count = min(rivals, model.vocab_size)
        self._rivals = torch.empty(0, dtype=torch.int64)

    def __call__(
        self, v: Float[Tensor, "rows width"], owner: Int[Tensor, " rows"]
    ) -> Float64[Tensor, " rows"]:
        """The owner's gap at each activation: positive exactly when its event occurs.

        A gap below minus the margin is not worth its number: it is given as −inf.
        """
        v = v.to(self.readout.dtype)
        rows = Rows(
            v,
            owner,
            self.readout.of(v, self.members[owner]).amax(1).double(),
            self.readout.margin(v),
        )
        gap = torch.full((len(v),), -math.inf, dtype=torch.float64)
        pending = self._undismissed(rows, self._rivals).nonzero()[:, 0]
        while len(pending):
            chosen, pending = pending[:UNEMBED_BLOCK], pending[UNEMBED_BLOCK:]
            gap[chosen] = self._decide(rows.at(chosen))
            learned = self._learn()
            pending = pending[self._undismissed(rows.at(pending), learned)]
        return gap

    def macs(self, i: int, rows: int) -> int:
        """Multiply-accumulates of deciding `rows` activations of event i: rivals, then all."""
        everything = int(self.unembedded[i]) * self.model.vocab_size
        return self.model.width * (rows * self._rival_count + everything)

    def count(self, owner: Int[Tensor, " rows"]) -> None:
        """Note that a row of each owner met the whole vocabulary."""
        self.unembedded += torch.bincount(owner, minlength=len(self.members))

    def best_rival(
        self, v: Float[Tensor, "rows width"], owner: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        """The likeliest token outside each owner's event, from all the logits."""
        return self._rival_logits(v, owner).argmax(1)

    def _rival_logits(self, v: Tensor, owner: Tensor) -> Tensor:
        """All logits, with those of the owner's own tokens at −inf."""
        return self.readout.logits(v).scatter_(1, self.members[owner], -math.inf)

    def _undismissed(self, rows: Rows, rivals: Int[Tensor, " rival"]) -> Bool[Tensor, " rows"]:
        """Whether none of `rivals` is so far ahead that the exact gap is below −margin."""
        if not len(rivals):
            return torch.ones(len(rows.v), dtype=torch.bool)
        columns, bias = self.readout.rows[rivals], self.readout.bias[rivals]
        logits = torch.nn.functional.linear(rows.v, columns, bias)
        # A rival that is an event's own token does not exceed the best of them but by rounding.
        return logits.amax(1) - rows.own <= 2 * rows.margin

    def _decide(self, rows: Rows) -> Float64[Tensor, " rows"]:
        """The exact gap against the whole vocabulary, −inf where it is below −margin."""
        self.count(rows.owner)
        logits = self._rival_logits(rows.v, rows.owner)
        best = logits.amax(1)
        row, token = _reaching(logits, _below(best, rows.margin))
        contested = rows.own - best >= -2 * rows.margin
        lost = ~contested[row]
        self.wins.index_add_(0, token[lost], torch.ones_like(token[lost]))
        gap = torch.full_like(rows.own, -math.inf)
        if contested.any():
            row, token = row[~lost], token[~lost]
            gap[contested] = self._exact_gap(
                rows.at(contested), contested.cumsum(0)[row] - 1, token
            )
            self.wins.index_add_(0, token, (gap[row] <= 0).long())
        return gap

    def _exact_gap(self, rows: Rows, row: Tensor, token: Tensor) -> Float64[Tensor, " rows"]:
        """The gap of rows against the rivals that may be best: row[i] against token[i]."""
        v, members = rows.v.double(), self.members[rows.owner]
        rival = torch.full_like(rows.own, -math.inf)
        rival.scatter_reduce_(0, row, self.readout.of(v[row], token[:, None])[:, 0], "amax")
        own = self.readout.of(v, members)
        gap = own.amax(1) - rival
        margin = self.readout.finer * rows.margin
        for i in (gap.abs() <= margin).nonzero()[:, 0].tolist():
            inside = members[i][own[i] >= own[i].amax() - margin[i]]
            gap[i] = self.readout.lead(v[i], inside, token[row == i])
        near = gap.abs() <= rows.margin
        self.near_ties += torch.bincount(rows.owner[near], minlength=len(self.members))
        return gap.masked_fill_(gap < -rows.margin, -math.inf)

    def _learn(self) -> Int[Tensor, " learned"]:
        """Take the tokens that won most often as the rivals; returns those that are new."""
        top = self.wins.topk(self._rival_count)
        rivals = top.indices[top.values > 0]
        learned = rivals[~torch.isin(rivals, self._rivals)]
        self._rivals = rivals
        return learned
