"""The acceptance region of a token in whitened activation space, and the directions into it.

With v = A·u + μ the logits are linear in u, and the target t wins strictly on

    S = { u : g_i·u + h_i > 0 for every rival i },   g_i = Aᵀ(w_t − w_i),   h_i = lead over i at μ,

an intersection of half-spaces. The directions of Wu and Hilton (2024), section 3.2.1:

    shortest          argmin ‖u‖ over the closure of S: a convex quadratic problem, solved exactly
    projection        the same by their Algorithm 4, random constraint projection
    column            Aᵀw_t, the target's column pulled back into whitened space
    conditional-mean  E[u | u ∈ S] for u ~ N(0, Id), by Geweke's (1991) Gibbs sampler

**The exact solver** generates constraints: only a few dozen rivals matter, so it solves for a
working set, adds the rivals that the solution violates most, drops those without a multiplier, and
ends when none is violated. ‖u‖ grows at every step, so it ends. The core is Lawson and Hanson's
(1974, chapter 23) least distance problem, a non-negative least squares.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from scipy import optimize, special
from torch import Tensor

from longshot.errors import LongshotError

TOLERANCE = 1e-10  # of a lead, relative to the logits' size
ADDED = 32  # rivals that join the working set at once
SHRINK = 0.99  # Algorithm 4's pull towards 0
PROJECTION_TOLERANCE = 1e-2  # a tighter one spends its steps on last digits instead of shrinking
CHAINS = 8  # of the Gibbs sampler, side by side
LOG_ROOT_2_PI = math.log(2 * math.pi) / 2


class Ends(NamedTuple):
    """Open intervals (low, high); empty where high ≤ low."""

    low: Float64[Tensor, " n"]
    high: Float64[Tensor, " n"]

    def meet(self, other: Ends) -> Ends:
        """What lies in both."""
        return Ends(self.low.maximum(other.low), self.high.minimum(other.high))


def interval(lead: Float64[Tensor, "n rival"], slope: Float64[Tensor, "*row rival"]) -> Ends:
    """The a between which lead + a·slope > 0 for every rival; ±inf where none binds."""
    none = lead.new_full(lead.shape[:1], math.inf)
    if not lead.shape[1]:
        return Ends(-none, none)
    ratio = lead / slope
    rising, falling = slope > 0, slope < 0
    if rising.all():
        return Ends(-ratio.amin(1), none)
    low = -ratio.masked_fill(~rising, math.inf).amin(1)
    high = -ratio.masked_fill(~falling, -math.inf).amax(1)
    if (flat := ~(rising | falling)).any():  # a rival that a cannot move: ahead for good, or never
        high = high.masked_fill(((lead <= 0) & flat).any(1), -math.inf)
    return Ends(low, high)


class Region:
    """S for one target; `macs` counts the multiply-accumulates spent on it."""

    def __init__(
        self,
        A: Float64[Tensor, "width width"],
        rows: Float64[Tensor, "vocab width"],
        mean_logits: Float64[Tensor, " vocab"],
        target: int,
    ) -> None:
        self.A, self.rows, self.mean_logits, self.target = A, rows, mean_logits, target
        self.macs = 0
        self.h = mean_logits[target] - mean_logits
        self.h[target] = math.inf  # no rival of its own
        self.size = float(mean_logits.abs().max()) or 1.0
        self.tolerance = TOLERANCE * self.size

    def slopes(self, e: Float64[Tensor, " width"]) -> Float64[Tensor, " vocab"]:
        """g_i·e for every i: how the lead over each rival grows along e."""
        self.macs += self.rows.numel() + self.A.numel()
        along = self.rows @ (self.A @ e)
        return along[self.target] - along

    def leads(self, u: Float64[Tensor, " width"]) -> Float64[Tensor, " vocab"]:
        """g_i·u + h_i over every rival; +inf over the target itself."""
        return self.slopes(u) + self.h

    def leads_over(
        self, rivals: Int64[Tensor, " rival"], v: Float64[Tensor, "n width"]
    ) -> Float64[Tensor, "n rival"]:
        """g_i·u + h_i over some rivals, at v = A·u."""
        self.macs += v.numel() * len(rivals)
        return torch.addmm(self.h[rivals], v, (self.rows[self.target] - self.rows[rivals]).mT)

    def normals(self, rivals: Int64[Tensor, " rival"]) -> Float64[Tensor, "rival width"]:
        """The g_i as rows."""
        self.macs += len(rivals) * self.A.numel()
        return (self.rows[self.target] - self.rows[rivals]) @ self.A

    def binding(self, u: Float64[Tensor, " width"]) -> Int64[Tensor, " rival"]:
        """The rivals that the target ties with at u."""
        return (self.leads(u) <= 1e3 * self.tolerance).nonzero()[:, 0]

    def inward(self, u: Float64[Tensor, " width"]) -> Float64[Tensor, " width"] | None:
        """A unit direction from u, of the closure, into S; None if S has no interior.

        Without a bias the zero activation satisfies every `≥ 0`, so the closure proves nothing.
        Wanted is an e with g_i·e > 0 for all that tie at u; when long enough it has g_i·e ≥ 1,
        which is again a region, and the question is whether that one is empty.
        """
        tied = torch.cat([torch.tensor([self.target]), self.binding(u)])
        behind = torch.full((len(tied),), self.size, dtype=torch.float64)
        behind[0] = 0
        e = shortest_vector(Region(self.A, self.rows[tied], behind, 0))
        return None if e is None else e / torch.linalg.vector_norm(e).clamp(min=1e-300)


def least_distance(
    normals: Float64[Tensor, "rival width"], least: Float64[Tensor, " rival"]
) -> Float64[Tensor, " width"] | None:
    """argmin ‖u‖ subject to normals·u ≥ least; None if nothing satisfies it."""
    size = torch.linalg.vector_norm(normals, dim=1)
    if (least[size == 0] > 0).any():
        return None
    usable = size > 0
    G = (normals[usable] / size[usable, None]).numpy()
    distance = (least[usable] / size[usable]).numpy()
    reach = distance.max(initial=0.0)  # a lower bound on ‖u‖: the unit of length
    if reach <= 0:
        return normals.new_zeros(normals.shape[1])
    E = np.vstack([G.T, distance / reach])
    f = np.zeros(len(E))
    f[-1] = 1
    y, residual = optimize.nnls(E, f, maxiter=100 * E.shape[1])
    if residual < 1e-7:  # ‖r‖⁻² = 1 + ‖u‖²: the shortest u would be 10⁷ times the nearest wall
        return None
    # At the solution the constraints with a multiplier are equalities: solve them to full accuracy.
    u = np.linalg.lstsq(G[y > 0], distance[y > 0], rcond=None)[0]
    return torch.from_numpy(u)


def shortest_vector(region: Region) -> Float64[Tensor, " width"] | None:
    """The shortest u at which no rival is ahead: 0 if the mean is accepted, None if there is none.

    Raises a LongshotError if rounding keeps the working set from settling.
    """
    u = region.rows.new_zeros(region.rows.shape[1])
    working = torch.empty(0, dtype=torch.int64)
    for _ in range(1000):
        lead = region.leads(u)
        worst = lead.topk(min(ADDED, len(lead)), largest=False)
        violated = worst.indices[worst.values < -region.tolerance]
        if not len(violated):
            return u
        working = torch.cat([working, violated]).unique()
        normals = region.normals(working)
        solution = least_distance(normals, -region.h[working])
        if solution is None:
            return None
        u = solution
        working = working[normals @ u + region.h[working] <= 1e3 * region.tolerance]
    raise LongshotError(
        f"qld: the shortest accepting vector of token {region.target} did not settle; "
        f"a larger epsilon may help."
    )


def random_constraint_projection(
    region: Region, repetitions: int, generator: torch.Generator
) -> Float64[Tensor, " width"]:
    """Algorithm 4, with a tolerance of the right sign, a share of the mean's largest deficit.

    A step projects onto a random violated half-space; where none is violated it shrinks towards 0,
    or ends after `repetitions` steps. Shrinking may leave all satisfied: then it shrinks again.
    """
    tolerance = PROJECTION_TOLERANCE * max(-float(region.h.min()), region.tolerance)
    x, lead = region.rows.new_zeros(region.rows.shape[1]), region.h.clone()
    for step in range(100 * repetitions):
        violated = (lead < -tolerance).nonzero()[:, 0]
        if len(violated):
            i = violated[torch.randint(len(violated), (1,), generator=generator)]
            g = region.normals(i)[0]
            x = x - float(lead[i]) / float(g @ g) * g
        elif step < repetitions:
            x = SHRINK * x
        else:
            return x
        lead = region.leads(x)
    raise LongshotError(
        f"qld: random constraint projection found no accepting vector for token {region.target} "
        f"in {100 * repetitions} steps; use direction 'shortest'."
    )


def column(region: Region) -> Float64[Tensor, " width"]:
    """Aᵀw_t: along it the target's own logit grows fastest."""
    return region.rows[region.target] @ region.A


def conditional_mean(
    region: Region,
    shortest: Float64[Tensor, " width"],
    inward: Float64[Tensor, " width"],
    sweeps: int,
    generator: torch.Generator,
) -> Float64[Tensor, " width"]:
    """E[u | u ∈ S] for u ~ N(0, Id), from the second half of `sweeps` sweeps of Gibbs chains.

    Given the other coordinates, u_k is a standard normal cut to an interval: it is drawn by
    inverting its distribution function, and its mean, not the draw, enters the average. A
    coordinate costs one row of numbers over the vocabulary, so a whole sweep costs no more than
    one step of hit-and-run along a random direction. The chains start a little inside the shortest
    vector: at a corner of S no coordinate may be free to move.
    """
    G = (region.rows @ region.A).mT.contiguous()
    G = G[:, region.target, None] - G  # row k: the k-th coordinates of all g_i
    room = interval(region.leads(shortest)[None], region.slopes(inward)).high
    step = min(float(room) / 2, 1 / max(float(torch.linalg.vector_norm(shortest)), 1.0))
    u = (shortest + step * inward).repeat(CHAINS, 1)
    uniform = torch.rand(sweeps, len(G), CHAINS, generator=generator, dtype=torch.float64)
    total = torch.zeros_like(u)
    for sweep in range(sweeps):
        lead = region.h + u @ G  # anew in each sweep, so that rounding does not add up
        for k, slope in enumerate(G):
            ends, here = interval(lead, slope), u[:, k].clone()
            low, high = here + ends.low.clamp(max=0), here + ends.high.clamp(min=0)
            draw, mean = truncated_normal(low, high, uniform[sweep, k])
            lead.addr_(draw - here, slope)
            u[:, k] = draw
            if sweep >= sweeps // 2:
                total[:, k] += mean
    region.macs += region.rows.shape[0] * region.A.numel() + 2 * sweeps * CHAINS * G.numel()
    return total.sum(0) / ((sweeps - sweeps // 2) * CHAINS)


def truncated_normal(
    low: Float64[Tensor, " n"], high: Float64[Tensor, " n"], uniform: Float64[Tensor, " n"]
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"]]:
    """A draw of a standard normal given low ≤ x ≤ high, and its mean; far tails included."""
    # The upper tail is the lower one in a mirror, where logarithms keep their digits.
    sign = torch.where(low > 0, -1.0, 1.0).double()
    low, high = torch.where(low > 0, -high, low), torch.where(low > 0, -low, high)
    log_low, log_high = torch.special.log_ndtr(low), torch.special.log_ndtr(high)
    uniform = uniform.clamp(1e-16, 1 - 1e-16)
    log_quantile = torch.logaddexp((-uniform).log1p() + log_low, uniform.log() + log_high)
    draw = torch.from_numpy(special.ndtri_exp(log_quantile.numpy())).clamp(low, high)
    log_mass = log_high + (-(log_low - log_high).exp()).log1p()
    log_density = torch.stack([-low.square() / 2, -high.square() / 2]) - LOG_ROOT_2_PI
    mean = (log_density[0] - log_mass).exp() - (log_density[1] - log_mass).exp()
    mean = torch.where(mean.isfinite(), mean, draw).clamp(low, high)  # an interval of no width
    return sign * draw, sign * mean
