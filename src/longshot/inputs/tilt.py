"""Product inputs tilted token by token, and draws from them with their importance weights.

q_i(x) ∝ p_i(x)·exp(s_i·W_E[x]/T),      s_i a slope in embedding space
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longshot.inputs.base import Product
from longshot.inputs.tokens import TokenDistribution

Scores = list[Float64[Tensor, "target _ _"]]
"""The score of every token at every free position, group by group."""


def token_scores(
    inputs: Product,
    rows: Sequence[Float64[Tensor, "_ width"]],
    slope: Float64[Tensor, "target position width"],
) -> Scores:
    """s_i(x) for each target and free position, from slopes in embedding space.

    `rows` are the embeddings of each group's support.
    """
    scores = []
    for (_, positions), embedding in zip(inputs.groups, rows, strict=True):
        here = slope[:, torch.tensor(positions)]
        scores.append(torch.bmm(here, embedding.mT.expand(len(slope), -1, -1)).cpu())
    return scores


def tilted(
    inputs: Product, scores: Scores, temperature: Float64[Tensor, " target"]
) -> list[TokenDistribution]:
    """q for each target and free position, group by group, each target at its temperature."""
    pairs = zip(inputs.groups, scores, strict=True)
    return [p.tilt(s / temperature[:, None, None], 1.0) for (p, _), s in pairs]


def boundary_temperature(
    inputs: Product,
    scores: Scores,
    mean: Float64[Tensor, " target"],
    ends: tuple[float, float],
) -> Float64[Tensor, " target"]:
    """The temperature at which a linear gap is 0 on average.

    The linear gap is m + Σ_i (s_i(x_i) − E_p s_i), with m the mean of the gap under p. Its mean
    under q is m + K'(1/T) − K'(0), where K(θ) = Σ_i log E_p exp(θ·s_i) is convex, so that bisection
    between the ends finds where it vanishes: the tilt that is best for a linear gap.
    """

    def climbed(temperature: Tensor) -> Float64[Tensor, " target"]:
        total = torch.zeros_like(temperature)
        for (p, _), s in zip(inputs.groups, scores, strict=True):
            q = torch.softmax(p.log_probs + s / temperature[:, None, None], -1)
            total += ((q - p.probabilities) * s).sum((1, 2))
        return total

    low, high = (torch.full_like(mean, end) for end in ends)
    for _ in range(12):
        middle = (low * high).sqrt()
        short = mean + climbed(middle) < 0  # too warm
        low, high = torch.where(short, low, middle), torch.where(short, middle, high)
    return (low * high).sqrt()


def log_tilt(
    inputs: Product, tilts: Scores, tokens: Int64[Tensor, "sample position"]
) -> Float64[Tensor, " sample"]:
    """log of q/p of inputs, for the proposals of one target whose s/T are given."""
    total = torch.zeros(len(tokens), dtype=torch.float64)
    for (p, positions), s in zip(inputs.groups, tilts, strict=True):
        log_q = torch.log_softmax(p.log_probs + s[0], -1)
        index = p.index_of(tokens[:, list(positions)])
        total += (log_q.mT.gather(0, index) - p.log_probs[index]).sum(1)
    return total


class Draws(NamedTuple):
    """Inputs drawn from the proposals, with log p and the log of p/q."""

    tokens: Int64[Tensor, "target sample position"]
    log_prob: Float64[Tensor, "target sample"]
    log_weight: Float64[Tensor, "target sample"]


def draw(
    inputs: Product,
    proposals: list[TokenDistribution],
    uniform: Float64[Tensor, "target free sample"],
) -> Draws:
    """One sample for each column of `uniform`, whose rows are the free positions in order."""
    targets, _, samples = uniform.shape
    start = torch.stack([d.support[0] for d in inputs.positions])
    tokens = start.expand(targets, samples, -1).clone()
    log_p, log_q = torch.zeros(2, targets, samples, dtype=torch.float64)
    column = {position: i for i, position in enumerate(inputs.free_positions)}
    for (p, positions), q in zip(inputs.groups, proposals, strict=True):
        index = q.invert(uniform[:, [column[i] for i in positions]].contiguous())
        tokens[:, :, list(positions)] = p.support[index].mT
        log_p += p.log_probs[index].sum(1)
        log_q += q.log_probs.gather(2, index).sum(1)
    return Draws(tokens, log_p, log_p - log_q)
