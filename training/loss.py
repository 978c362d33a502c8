"""Cross-entropy of an unembedding, without ever holding all the logits.

With 64 dimensions and 4096 tokens the logits are the largest thing in training by far. Here a
block of rows small enough for the cache is multiplied, normalised and turned into its gradient
softmax(logits) − onehot(target) at once, in less than half the time of `cross_entropy`.
"""

from typing import Any

import torch
from torch import Tensor

ROWS = 256


class _MeanCrossEntropy(torch.autograd.Function):
    """The loss and, in the same sweep, its gradients."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, unembedding: Tensor, bias: Tensor, targets: Tensor
    ) -> Tensor:
        number = len(targets)
        total = hidden.new_zeros(())
        hidden_gradient = torch.empty_like(hidden)
        unembedding_gradient = torch.zeros_like(unembedding)
        bias_gradient = torch.zeros_like(bias)
        for start in range(0, number, ROWS):
            rows, wanted = hidden[start : start + ROWS], targets[start : start + ROWS, None]
            logits = torch.addmm(bias, rows, unembedding)
            total -= logits.gather(1, wanted).sum()
            largest = logits.amax(-1, keepdim=True)
            probabilities = logits.sub_(largest).exp_()
            normaliser = probabilities.sum(-1, keepdim=True)
            total += (normaliser.log() + largest).sum()
            probabilities.div_(normaliser)
            probabilities.scatter_add_(1, wanted, torch.full_like(normaliser, -1.0))
            torch.mm(probabilities, unembedding.T, out=hidden_gradient[start : start + ROWS])
            unembedding_gradient.addmm_(rows.T, probabilities)
            bias_gradient += probabilities.sum(0)
        ctx.save_for_backward(hidden_gradient, unembedding_gradient, bias_gradient)
        ctx.number = number
        return total / number

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scale = upstream[0] / ctx.number
        return (*(gradient * scale for gradient in ctx.saved_tensors), None)


def mean_cross_entropy(
    hidden: Tensor, unembedding: Tensor, bias: Tensor, targets: Tensor
) -> Tensor:
    """Mean over rows of −log softmax(hidden · unembedding + bias)[target]."""
    loss: Tensor = _MeanCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, unembedding, bias, targets
    )
    return loss
