"""The n² synthetic samples a_i·d + b_j: which lie in S, how many, and how sure that is.

S is convex, so a_i·d + b_j ∈ S is l_j < a_i < r_j with

    l_j = max over g_i·d > 0 of −(g_i·b_j + h_i)/(g_i·d),    r_j = min over g_i·d < 0 of the same,

and the count is a search of the ends in the sorted a.

**Few b meet many rivals.** The rivals that bind at the shortest vector, and the tokens that lead at
the sample u_j itself (known from one unembedding for all targets), give an interval that contains
(l_j, r_j). If it holds no a_i, b_j is done. The others meet further rivals, those first on whom the
target gains least along d, until it has left behind all that may follow: a token outside the
strongest of u_j has at most a known logit there, so none with a large slope g_i·d is still ahead
when the interval begins. So each pair is decided as the whole vocabulary decides it.

**The error.** a and b come from one sample: the share is a one-sample V-statistic, and

    Var p̂ ≈ Var_i( f(a_i) + g(b_i) )/n,   f(a) = share of b_j with a inside,  g(b) = share of a_i.

That is sampling noise alone, up to √2 too large while pairs are few. It takes the whitening and the
direction as given; that they come from the same samples adds little on Gaussian activations (up to
a quarter where tried), and more on skewed ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longshot.methods.shortest import Ends, Region, column, interval

ROWS, RIVALS = 1024, 256  # of one look: the leads stay in the cache
TAIL_SHARE, TAIL_LEAST = 0.05, 20


class Strongest(NamedTuple):
    """The largest logits of each sample, and what no other logit of it exceeds."""

    logits: Float64[Tensor, "n rank"]
    tokens: Int64[Tensor, "n rank"]
    others: Float64[Tensor, " n"]


class Split(NamedTuple):
    """u = a·d + b, with the slopes along d of the target's leads."""

    u: Float64[Tensor, "n width"]
    d: Float64[Tensor, " width"]
    a: Float64[Tensor, " n"]
    slopes: Float64[Tensor, " vocab"]

    def b(self, rows: Int64[Tensor, " some"]) -> Float64[Tensor, "some width"]:
        return self.u[rows] - self.a[rows, None] * self.d


def split(region: Region, u: Float64[Tensor, "n width"], d: Float64[Tensor, " width"]) -> Split:
    """Both parts of every sample."""
    return Split(u, d, u @ d, region.slopes(d))


def own_logits(region: Region, u: Float64[Tensor, "n width"]) -> Float64[Tensor, " n"]:
    """The target's logit at each sample."""
    return u @ column(region) + region.mean_logits[region.target]


def intervals_against(region: Region, parts: Split, rivals: Int64[Tensor, " rival"]) -> Ends:
    """What a few rivals leave of each line a·d + b_j."""
    slope = parts.slopes[rivals]
    region.macs += parts.u.numel() * len(rivals)
    lead = torch.addmm(region.h[rivals], parts.u, region.normals(rivals).mT)
    return interval(lead - parts.a[:, None] * slope, slope)


def acceptance_intervals(region: Region, parts: Split, outer: Ends, top: Strongest) -> Ends:
    """(l_j, r_j) for each b_j: exact, but left as `outer` where that already holds no a_i."""
    low, high = outer.low.clone(), outer.high.clone()
    sorted_a, order = parts.a.sort().values, parts.slopes.argsort()
    own = own_logits(region, parts.u)

    def narrow(rows: Tensor, lead: Tensor, slope: Tensor) -> Tensor:
        """Apply some rivals to some b_j; whether any a_i is left inside."""
        ends = Ends(low[rows], high[rows]).meet(interval(lead, slope))
        low[rows], high[rows] = ends
        return count_inside(sorted_a, ends) > 0

    undecided = []
    for rows in count_inside(sorted_a, outer).nonzero()[:, 0].split(ROWS):
        slope = parts.slopes[top.tokens[rows]]
        lead = own[rows, None] - top.logits[rows] - parts.a[rows, None] * slope
        lead.masked_fill_(top.tokens[rows] == region.target, math.inf)
        undecided.append(rows[narrow(rows, lead, slope) & (top.others[rows] > -math.inf)])
    for rows in torch.cat(undecided).split(ROWS) if undecided else ():
        v = parts.b(rows) @ region.A.mT
        region.macs += len(rows) * region.A.numel()
        for rivals in order.split(RIVALS):
            # The target gains at least `gain` on these and on all that follow: a b_j whose interval
            # begins where that has made up for any deficit at u_j has met all that matter.
            gain, step = float(parts.slopes[rivals[0]]), low[rows] - parts.a[rows]
            if gain > 0:
                met = (step > 0) & (step * gain > top.others[rows] - own[rows])
                rows, v = rows[~met], v[~met]
            if not len(rows):
                break
            left = narrow(rows, region.leads_over(rivals, v), parts.slopes[rivals])
            rows, v = rows[left], v[left]
    return Ends(low, high)


def count_inside(sorted_a: Float64[Tensor, " n"], intervals: Ends) -> Int64[Tensor, " m"]:
    """How many a_i have l < a_i < r, for each interval."""
    below = torch.searchsorted(sorted_a, intervals.low, right=True)
    return (torch.searchsorted(sorted_a, intervals.high) - below).clamp_(min=0)


class Pairs(NamedTuple):
    """The synthetic samples inside S: their number, and the standard error of their share."""

    inside: int
    standard_error: float | None


def count_pairs(a: Float64[Tensor, " n"], intervals: Ends) -> Pairs:
    """|{(i, j) : l_j < a_i < r_j}| and the V-statistic's standard error, in O(n log n)."""
    n = len(a)
    g = count_inside(a.sort().values, intervals)
    low, high = intervals.low[g > 0].sort().values, intervals.high[g > 0].sort().values
    # An interval that begins below a holds it, unless it also ends at or below a.
    f = torch.searchsorted(low, a) - torch.searchsorted(high, a, right=True)
    variance = float((f + g).double().div(n).var(correction=0)) / n
    return Pairs(int(g.sum()), math.sqrt(variance) if variance > 0 else None)


def tail_dependence(
    a: Float64[Tensor, " n"], need: Float64[Tensor, " n"]
) -> tuple[float, float] | None:
    """Two z-scores for "a is distributed in the tail of b as everywhere".

    The tail of b is the twentieth with the least `need`, how much a it takes to win: a function of
    b alone. There the ranks of a, scaled to (0, 1), should be a simple random sample of all ranks:
    with a mean of 1/2 (level) and a mean squared distance from it of 1/12 (spread). None with too
    few samples to tell.
    """
    n, m = len(a), int(TAIL_SHARE * len(a))
    if m < TAIL_LEAST or a.max() == a.min() or need.max() == need.min():
        return None
    rank = torch.empty_like(a)
    rank[a.argsort(stable=True)] = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    offset = rank[need.argsort(stable=True)[:m]] - 0.5
    drawn = math.sqrt(m / (1 - m / n))  # without replacement
    level = float(offset.mean()) * drawn * math.sqrt(12)
    spread = (float(offset.square().mean()) - 1 / 12) * drawn * math.sqrt(180)
    return level, spread
