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


def tilted(
    inputs: Product,
    rows: Sequence[Float64[Tensor, "_ width"]],
    slope: Float64[Tensor, "target position width"],
    temperature: float,
) -> list[TokenDistribution]:
    """q for each target and free position, group by group.

    `slope` is s in embedding space and `rows` are the embeddings of each group's support.
    """
    proposals = []
    for (p, positions), embedding in zip(inputs.groups, rows, strict=True):
        here = slope[:, torch.tensor(positions)]
        s = torch.bmm(here, embedding.mT.expand(len(slope), -1, -1))
        proposals.append(p.tilt(s.cpu(), temperature))
    return proposals


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
