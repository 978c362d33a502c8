"""Rows through the model in blocks of one fixed shape.

A row's numbers do not depend on its neighbours: to the last bit where widths are multiples of 16
and heads of 4; odd products round by a row's place in memory.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longshot.errors import LongshotError
from longshot.evaluate.argmax import readout
from longshot.inputs import by_length
from longshot.models import Growing, Model, SizedNetwork, in_blocks

BLOCK = 128  # rows of one model call: many enough for fast products, few enough for the cache
GRAIN = 8  # the last block is filled up to a multiple of this: a few chains alone waste nothing


def activations(model: Model, tokens: Int[Tensor, "rows position"]) -> Float[Tensor, "rows width"]:
    """The activation before the unembedding of each input, in blocks."""
    out = torch.empty(len(tokens), model.width, dtype=readout(model).dtype, device=model.device)
    for rows, some in by_length(tokens):
        out[rows] = _of_one_length(model, some)
    return out


def activations_after(
    model: Model, tokens: Int[Tensor, "rows position"], shared: int
) -> tuple[Float[Tensor, "rows width"], int]:
    """The same, with the first `shared` tokens run once for many inputs where these agree in them.

    Beside them, the multiply-accumulates that it took.
    """
    out = torch.empty(len(tokens), model.width, dtype=readout(model).dtype, device=model.device)
    agree = (tokens[:, :shared] == tokens[:1, :shared]).all(0)
    network, took, same = model.network, 0, int(agree.long().cumprod(0).sum())
    for rows, some in by_length(tokens):
        where = torch.arange(len(tokens))[rows]
        most = network.rows(some.shape[1]) if isinstance(network, SizedNetwork) else BLOCK
        for here, block in zip(where.split(most), some.split(most), strict=True):
            grown = Growing(model, block, 0, same)
            out[here.to(out.device)] = grown.after(block[:, :0])
            took += grown.macs
    refuse_non_finite(out.sum(1), tokens, model)
    return out, took


def _of_one_length(
    model: Model, tokens: Int[Tensor, "rows position"]
) -> Float[Tensor, "rows width"]:
    out = torch.empty(len(tokens), model.width, dtype=readout(model).dtype, device=model.device)

    def run(here: slice) -> None:
        block = tokens[filled_up(here, model, tokens.shape[1])]
        out[here] = model.network.activation(model.embed(block))[: here.stop - here.start]

    with torch.no_grad():
        in_blocks(model.network, len(tokens), tokens.shape[1], run, BLOCK)
    refuse_non_finite(out.sum(1), tokens, model)
    return out


def macs(model: Model, tokens: Int[Tensor, "rows position"]) -> int:
    """The multiply-accumulates of plain passes over inputs, the unembedding apart."""
    return sum(len(some) * model.network.macs(some.shape[1]) for _, some in by_length(tokens))


def filled_up(here: slice, model: Model, positions: int) -> slice | Int[Tensor, " filled"]:
    """The rows of a slice, then a few times its first, up to a multiple of the grain."""
    count, network = here.stop - here.start, model.network
    if count % GRAIN == 0:
        return here
    fit = network.rows(positions) if isinstance(network, SizedNetwork) else GRAIN
    missing = -count % min(GRAIN, fit)
    rows = torch.arange(here.start, here.stop)
    return torch.cat([rows, rows[:1].expand(missing)])


def refuse_non_finite(values: Tensor, tokens: Tensor, model: Model) -> None:
    """Name the first input for which the model gives no finite number."""
    values = values.cpu()
    if not values.isfinite().all():
        worst = tokens[~values.isfinite()][0].tolist()
        raise LongshotError(f"{model.name} gives numbers that are not finite on {worst}.")
