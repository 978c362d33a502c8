"""Texts that grow token by token behind prompts, on the network's memory where it has one."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longshot.models.base import CachedNetwork, Memory, Model


class Growing:
    """What a model makes of prompts of one length with texts behind them.

    The texts grow from call to call, by at most `more` tokens, of which only the new ones are run.
    The first `shared` tokens of all prompts are the same and are run once. `macs` is what it took.
    """

    def __init__(
        self, model: Model, prompts: Int[Tensor, "n prompt"], more: int, shared: int = 0
    ) -> None:
        self.model, self.prompts, self.known, self.macs = model, prompts, 0, 0
        self.network = model.network if isinstance(model.network, CachedNetwork) else None
        if self.network is None:
            return
        rows, length = prompts.shape
        self.memory: Memory = self.network.memory(rows, length + more)
        self.known = min(shared, length - 1)
        if self.known:
            one = self.network.memory(1, self.known)
            self.macs += self.network.macs(self.known)
            with torch.no_grad():
                self.network.resume(model.embed(prompts[:1, : self.known]), one, 0)
            for layer, own in zip(self.memory, one, strict=True):
                layer[:, :, :, : self.known] = own

    @torch.no_grad()
    def after(self, text: Int[Tensor, "n token"]) -> Float[Tensor, "n width"]:
        """The activation after each prompt and text."""
        whole = torch.cat([self.prompts, text], 1)
        if self.network is None:
            self.macs += len(whole) * self.model.network.macs(whole.shape[1])
            return self.model.network.activation(self.model.embed(whole))
        start, self.known = self.known, whole.shape[1]
        self.macs += len(whole) * self.network.macs(self.known - start, start)
        return self.network.resume(self.model.embed(whole[:, start:]), self.memory, start)
