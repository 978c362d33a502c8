"""What another package's model must show before it is used, on random tokens.

1. It is causal: a later token changes nothing at earlier positions.
2. The logits of our path are its own, up to rounding, with the scale and the cap it names.
3. Gradients reach the embedded inputs; what they keep in memory sizes the batches.
4. Inputs resumed or extended from a memory give the values and gradients of whole inputs, or the
   network has no memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longshot.errors import LongshotError, first_line
from longshot.models.decoder import CachedDecoderNetwork, Decoder, DecoderNetwork

ROWS, LENGTH = 3, 8  # of the random tokens


def checked_network(decoder: Decoder, name: str) -> DecoderNetwork:
    """A network around `decoder`, which has passed the checks."""
    name = name if decoder.kind in name else f"{name} ({decoder.kind})"
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, min(LENGTH, decoder.context))
    tokens = torch.randint(len(decoder.embedding), shape, generator=generator)
    tokens = tokens.to(decoder.embedding.device)
    try:
        _require_causal(decoder, tokens, name)
        scale = _agreeing_scale(decoder, tokens, name)
        kept = _bytes_kept(decoder, tokens, name)
    except LongshotError:
        raise
    except Exception as error:  # an architecture with habits of its own can fail anywhere
        raise LongshotError(
            f"{name} does not run from embedded inputs: {first_line(error).rstrip('.')}."
        ) from error
    cached = CachedDecoderNetwork(decoder, scale, kept)
    return cached if _cache_agrees(cached, tokens) else DecoderNetwork(decoder, scale, kept)


@torch.no_grad()
def _require_causal(decoder: Decoder, tokens: Tensor, name: str) -> None:
    half = tokens.shape[1] // 2
    changed = tokens.clone()
    changed[:, half:] = (changed[:, half:] + 1) % len(decoder.embedding)
    before, after = (
        decoder.hidden(decoder.embedding[x])[:, :half].float() for x in (tokens, changed)
    )
    tolerance = 4 * _epsilon(decoder) * before.abs().amax()
    if half and (after - before).abs().amax() > tolerance:
        raise LongshotError(
            f"{name} is not causal: a later token changes what it computes at earlier ones, as in "
            "an encoder."
        )


@torch.no_grad()
def _agreeing_scale(decoder: Decoder, tokens: Tensor, name: str) -> float:
    """The factor with which our logits are the model's own."""
    theirs = decoder.logits(tokens).double()
    v, weight = decoder.hidden(decoder.embedding[tokens])[:, -1].double(), decoder.unembedding
    logits = v @ weight.double() + (0 if decoder.bias is None else decoder.bias.double())
    largest = torch.linalg.vector_norm(weight.float(), dim=0).max()
    size = float(torch.linalg.vector_norm(v, dim=1).max() * largest)
    best = float("inf")
    for scale in decoder.scales:
        ours, cap = logits * scale, decoder.cap
        if cap is not None:
            ours = cap * torch.tanh(ours / cap)
        difference = float((ours - theirs).abs().max())
        if difference <= 4 * _epsilon(decoder) * scale * size:
            return scale
        best = min(best, difference)
    raise LongshotError(
        f"{name} was refused: on random tokens its logits are not its final activation times its "
        f"unembedding (they differ by up to {best:.2g}), so it does something in between."
    )


def _bytes_kept(decoder: Decoder, tokens: Tensor, name: str) -> int:
    """What the gradient of one token's activation keeps in memory."""
    weights = {x.untyped_storage()._cdata for x in (*decoder.parameters(), *decoder.buffers())}
    kept: dict[int, int] = {}

    def note(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage.nbytes()
        return saved

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        embedded = decoder.embedding[tokens].clone().requires_grad_()
        last = decoder.hidden(embedded)[:, -1]
        (gradient,) = torch.autograd.grad(last.sum(), embedded)
    if not gradient.isfinite().all():
        raise LongshotError(f"{name} has gradients that are not finite on random tokens.")
    return sum(kept.values()) // tokens.numel()


def _cache_agrees(network: CachedDecoderNetwork, tokens: Tensor) -> bool:
    """Whether inputs that change, resumed and then extended, give what the whole inputs give."""
    end = tokens.shape[1]
    if (cut := end - 2) < 1:
        return False
    changed = torch.cat([tokens[:, :cut], tokens.roll(1, 0)[:, cut:]], 1)
    leaves = torch.stack([tokens[:, -1:], changed[:, -1:]], 1)
    other = torch.cat([changed[:, :-1], leaves[:, 0]], 1)
    whole, tail = (
        network.embedding[x].clone().requires_grad_() for x in (changed, changed[:, cut:])
    )
    plain = network.activation(whole)
    (slope,) = torch.autograd.grad(plain.sum(), whole)
    try:
        memory = network.memory(len(tokens), end)
        with torch.no_grad():
            network.resume(network.embedding[tokens], memory, 0)
        resumed = network.resume(tail, memory, cut)
        (steep,) = torch.autograd.grad(resumed.sum(), tail)
        with torch.no_grad():
            extended = network.extend(network.embedding[leaves], memory, end - 1)
    except Exception:  # a cache of another kind, such as a recurrent state
        return False
    with torch.no_grad():
        expected = torch.stack([network.activation(network.embedding[other]), plain], 1)
    pairs = ((resumed, plain), (extended, expected), (steep, slope[:, cut:]))
    return all(_agree(ours, theirs, network.decoder) for ours, theirs in pairs)


def _agree(ours: Tensor, theirs: Tensor, decoder: Decoder) -> bool:
    tolerance = _epsilon(decoder) ** 0.5 * theirs.abs().max()
    return ours.shape == theirs.shape and bool((ours - theirs).abs().max() <= tolerance)


def _epsilon(decoder: Decoder) -> float:
    return float(torch.finfo(decoder.unembedding.dtype).eps)
