"""The enumerable problem with the greedy continuation of every input, by plain passes."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from tests.methods.enumerable import Enumerated, enumerated

STEPS = 3  # as many as the toy's context has room for


class Greedy(NamedTuple):
    """All inputs with what comes after them."""

    problem: Enumerated
    path: Int64[Tensor, "input step"]
    texts: list[list[str]]
    """Of the first token, of the first two, …"""

    def is_path(self, *tokens: int) -> Tensor:
        return (self.path[:, : len(tokens)] == torch.tensor(tokens)).all(1)

    def exact(self, hit: Tensor) -> float:
        return float(self.problem.probability[hit].sum())


def all_logits(problem: Enumerated, tokens: Tensor) -> Float64[Tensor, "input vocab"]:
    model = problem.model
    return model.network.activation(model.embed(tokens)) @ model.unembedding + (
        model.unembedding_bias
    )


@cache
def greedy(seed: int = 1) -> Greedy:
    problem = enumerated(seed)
    tokens = problem.tokens
    for _ in range(STEPS):
        best = all_logits(problem, tokens).argmax(1, keepdim=True)
        tokens = torch.cat([tokens, best], 1)
    path = tokens[:, -STEPS:]
    decode = problem.model.tokenizer.decode
    texts = [[decode(row) for row in path[:, :n].tolist()] for n in range(1, STEPS + 1)]
    return Greedy(problem, path, texts)
