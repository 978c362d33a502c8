"""The paper's pseudo-code, transcribed as plainly as it can be: the yardstick for speed.

One-hot inputs, autograd to the one-hot, all logits at the last position, one target at a time,
every token of the vocabulary a candidate at every position, as Algorithms 1 and 2 and Appendix A of
the paper have it, and as lean as the authors' own code: only the last position is unembedded, and
MHIS keeps what it knows of its current state instead of evaluating it again each step. Only the
MHIS weight is the corrected one. Nothing here is used by the package.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from longshot.inputs import ProductInputs
from longshot.models import Model
from longshot.models.gelu import GeluTransformer


def dense_probabilities(inputs: ProductInputs, vocab_size: int) -> Tensor:
    """p_i(x) for every position and every token of the vocabulary."""
    p = torch.zeros(inputs.length, vocab_size)
    for i, distribution in enumerate(inputs.positions):
        p[i, distribution.support] = distribution.probabilities.float()
    return p


def logits_of(model: Model, x: Tensor) -> Tensor:
    """The logits at the last position of one-hot inputs, after an ordinary forward pass."""
    network = model.network
    assert isinstance(network, GeluTransformer)
    residual = x @ network.embedding + network.positions[: x.shape[1]]
    for block in network.blocks:
        residual = block(residual, network._no_past(len(x)))
    logits: Tensor = network.norm_final(residual[:, -1]) @ network.unembedding
    return logits + network.unembedding_bias


def gradient_of(model: Model, tokens: Tensor, target: int) -> tuple[Tensor, Tensor, Tensor]:
    """M_t, the argmax, and ∇_x M_t at one-hot inputs."""
    x = one_hot(tokens, model.vocab_size).float().requires_grad_()
    last = logits_of(model, x)
    last[:, target].sum().backward()
    assert x.grad is not None
    return last[:, target].detach(), last.detach().argmax(1), x.grad


class LiteralITGIS:
    """Algorithm 1 (ITGIS), one target."""

    def __init__(
        self, model: Model, inputs: ProductInputs, target: int, temperature: float, batch: int
    ) -> None:
        self.model, self.target, self.temperature, self.batch = model, target, temperature, batch
        self.p = dense_probabilities(inputs, model.vocab_size)
        self.numerator, self.denominator = torch.zeros_like(self.p), 0.0
        self.estimates: list[float] = []
        self.generator = torch.Generator().manual_seed(0)

    def step(self) -> None:
        score = self.numerator / max(self.denominator, 1.0)
        q = self.p * torch.exp(score / self.temperature)
        q = q / q.sum(1, keepdim=True)
        tokens = torch.multinomial(q, self.batch, replacement=True, generator=self.generator).T
        _, output, gradient = gradient_of(self.model, tokens, self.target)
        self.numerator = gradient.mean(0) + 0.9 * self.numerator
        self.denominator = 1 + 0.9 * self.denominator
        position = torch.arange(tokens.shape[1])
        ratio = (self.p[position, tokens] / q[position, tokens]).prod(1)
        self.estimates.append(float((ratio * (output == self.target)).mean()))


class LiteralMHIS:
    """Algorithm 2 (MHIS), one target, several chains."""

    def __init__(
        self, model: Model, inputs: ProductInputs, target: int, temperature: float, chains: int
    ) -> None:
        self.model, self.target, self.temperature = model, target, temperature
        self.p = dense_probabilities(inputs, model.vocab_size)
        self.generator = torch.Generator().manual_seed(0)
        self.tokens = inputs.sample(chains, self.generator)
        self.samples: list[tuple[Tensor, Tensor]] = []
        self.state = gradient_of(model, self.tokens, target)

    def proposal(self, gradient: Tensor, i: int) -> Tensor:
        phi = self.p[i] * torch.exp(gradient[:, i] / self.temperature)
        return phi / phi.sum(1, keepdim=True)

    def step(self) -> None:
        chains, length = self.tokens.shape
        i = int(torch.randint(length, (), generator=self.generator))
        logit, output, gradient = self.state
        phi = self.proposal(gradient, i)
        new = torch.multinomial(phi, 1, generator=self.generator)[:, 0]
        proposed = self.tokens.clone()
        proposed[:, i] = new
        new_logit, new_output, new_gradient = gradient_of(self.model, proposed, self.target)
        back = self.proposal(new_gradient, i)
        rows = torch.arange(chains)
        old = self.tokens[:, i]
        r = (
            (self.p[i, new] / self.p[i, old])
            * torch.exp((new_logit - logit) / self.temperature)
            * (back[rows, old] / phi[rows, new])
        )
        accept = torch.rand(chains, generator=self.generator) < r
        self.tokens = torch.where(accept[:, None], proposed, self.tokens)
        gradient[accept] = new_gradient[accept]
        kept = torch.where(accept, new_logit, logit), torch.where(accept, new_output, output)
        self.state = (*kept, gradient)
        self.samples.append(kept)

    def estimate(self) -> float:
        logit, output = (torch.stack(parts) for parts in zip(*self.samples, strict=True))
        z = 1 / torch.exp(-logit / self.temperature).mean()
        weight = z * torch.exp(-logit / self.temperature)
        return float((weight * (output == self.target)).mean())
