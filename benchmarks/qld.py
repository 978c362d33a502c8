"""QLD, a target after the shared stage, against a transcription that unembeds every b in full.

Both count the same n² pairs along the same direction, for tokens that none of the samples produces:
the one that comes nearest, and three that the estimate calls rare. The transcription (Algorithm 3
of the paper, with the corrected whitening and b) takes all logits of each b in float32; ours works
in float64 and shows a b only the rivals that may matter. The direction costs both the same: the
exact solver's time is added to both sides of the ratio.
"""

from __future__ import annotations

import time
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.samplers import mini_shape, paper_shape
from benchmarks.timing import compare
from longshot.estimate import Job
from longshot.events import TokenIs
from longshot.methods.pairs import (
    acceptance_intervals,
    count_pairs,
    intervals_against,
    split,
)
from longshot.methods.qld import Shared, share
from longshot.methods.shortest import Region, shortest_vector
from longshot.models import Model

SAMPLES = 2**12
RANKS = range(
    0, 1000, 25
)  # of the targets tried, by mean logit among the tokens no sample produces
TARGETS = 4  # the nearest, and those whose estimate is rare
RARE = 1e-4
PAIRS = 3
FLOOR = 3.0
ROWS = 128  # of the transcription at once: about where its unembedding is fastest


def literal_count(model: Model, shared: Shared, target: int, d: Tensor) -> int:
    """|{(i, j) : a_i·d + b_j ∈ S}|, from all logits of all b."""
    A, mu, d = shared.whitened.A.float(), shared.whitened.mu.float(), d.float()
    u = shared.whitened.u.float()
    a = u @ d
    b = u - a[:, None] * d
    along = (A @ d) @ model.unembedding
    slope = along[target] - along
    sorted_a = a.sort().values
    count = 0
    for rows in b.split(ROWS):
        logits = (rows @ A.mT + mu) @ model.unembedding + model.unembedding_bias
        bound = (logits - logits[:, target, None]) / slope
        low = torch.where(slope > 0, bound, -torch.inf).amax(1)
        high = torch.where(slope < 0, bound, torch.inf).amin(1)
        inside = torch.searchsorted(sorted_a, high) - torch.searchsorted(sorted_a, low, right=True)
        count += int(inside.clamp(min=0).sum())
    return count


def our_count(shared: Shared, region: Region, u_star: Tensor) -> int:
    """The same, as the method has it."""
    parts = split(region, shared.whitened.u, u_star / torch.linalg.vector_norm(u_star))
    outer = intervals_against(region, parts, region.binding(u_star))
    return count_pairs(parts.a, acceptance_intervals(region, parts, outer, shared.top)).inside


def unseen(shared: Shared) -> list[int]:
    """Tokens that no sample produces, from those that come nearest to it."""
    seen = shared.top.tokens[:, 0].unique()
    order = shared.mean_logits.argsort(descending=True)
    order = order[~torch.isin(order, seen)]
    return order[list(RANKS)].tolist()


@torch.no_grad()
def main(console: Console) -> None:
    """The speed table: literal over ours, a target, median of three."""
    table = Table(title=f"QLD, a target after the shared stage, {SAMPLES} samples (milliseconds)")
    headings = ("shape", "pairs", "literal's", "direction", "literal", "ours", "ratio", "floor")
    for heading in headings:
        table.add_column(heading, justify="right")
    for name, shape in (("mini-4l", mini_shape), ("paper", paper_shape)):
        model, inputs = shape()
        shared = share(Job(model, inputs, (TokenIs(0),), SAMPLES), 1e-6)
        done = 0
        for target in unseen(shared):
            region = Region(shared.whitened.A, shared.rows, shared.mean_logits, target)
            start = time.perf_counter()
            u_star = shortest_vector(region)
            if u_star is None or region.inward(u_star) is None:
                continue
            direction = time.perf_counter() - start
            ours = partial(our_count, shared, region, u_star)
            estimate = ours() / SAMPLES**2
            if done and not 0 < estimate < RARE:
                continue
            d = u_star / torch.linalg.vector_norm(u_star)
            literal = partial(literal_count, model, shared, target, d)
            measured = compare(literal, ours, pairs=PAIRS)
            whole = (measured.slow_seconds + direction) / (measured.fast_seconds + direction)
            verdict = "met" if whole >= FLOOR else "[bold red]MISSED[/]"
            table.add_row(
                name,
                str(ours()),
                str(literal()),
                f"{direction * 1e3:.0f}",
                f"{measured.slow_seconds * 1e3:.0f}",
                f"{measured.fast_seconds * 1e3:.0f}",
                f"{whole:.1f}",
                f"≥ {FLOOR:g} {verdict}" if estimate < RARE else "not rare",
            )
            done += 1
            if done == TARGETS:
                break
    console.print(table)
