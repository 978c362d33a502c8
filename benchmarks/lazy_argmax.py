"""Whether rare targets win: the lazy argmax against unembedding everything.

Both decide the same activations for the same targets, and the answers are compared. The full way
takes all logits of each row in blocks that stay in the cache and looks for the largest. The lazy
one is exact whatever it has learned; it is timed when it knows its rivals, as for all but the first
batch of a run, and anew, learning included.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.timing import compare
from longshot.evaluate import UNEMBED_BLOCK, Decider, activations, winners
from longshot.events import Event, TokenIs
from longshot.inputs import load_inputs
from longshot.models import Model, load_model
from longshot.models.gelu import GeluConfig, GeluTransformer

TARGETS = 16
ROWS = {"mini-4l": 1024, "paper": 256}
BARS = {"mini-4l": None, "paper": 3.0}
PAIRS = {"mini-4l": 9, "paper": 3}


def main(console: Console) -> None:
    torch.set_num_threads(1)
    table = Table(title=f"Deciding whether rare targets win ({TARGETS} targets side by side)")
    table.add_column("vocabulary × width")
    for heading in ("rows", "unembedded", "all logits", "lazy", "times faster", "bar", "when new"):
        table.add_column(heading, justify="right")
    for name, rows in ROWS.items():
        batches = PAIRS[name] + 2  # each call meets rows that it has not seen
        model, tokens = _mini(batches * rows) if name == "mini-4l" else _paper(batches * rows)
        v = activations(model, tokens)
        targets, owner = _rare(model, v), torch.arange(rows) % TARGETS
        events: list[Event] = [TokenIs(token) for token in targets.tolist()]
        first, *rest = v.split(rows)
        full = [_all_logits(model, x) == targets[owner] for x in rest]
        assert all(
            torch.equal(Decider(model, events)(x, owner) > 0, y)
            for x, y in zip(rest, full, strict=True)
        )

        taught = Decider(model, events)
        taught(first, owner)
        taught.unembedded.zero_()
        known = compare(
            _on_each(rest, partial(_all_logits, model)),
            _on_each(rest, partial(taught, owner=owner)),
            pairs=PAIRS[name],
        )
        share = float(taught.unembedded.sum()) / (len(rest) * rows)
        new = compare(
            _on_each(rest, partial(_all_logits, model)),
            _on_each(rest, partial(_taught_anew, model, events, owner)),
            pairs=PAIRS[name],
        )
        table.add_row(
            f"{model.vocab_size} × {model.width} ({name})",
            str(rows),
            f"{share:.2%}",
            f"{known.slow_seconds * 1e3:.0f} ms",
            f"{known.fast_seconds * 1e3:.1f} ms",
            f"{known.ratio:.1f}",
            _verdict(known.ratio, BARS[name]),
            f"{new.ratio:.1f}",
        )
    console.print(table)


def _on_each(batches: list[Tensor], decide: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
    """A function that takes the next batch each time it is called."""
    following = iter(batches)
    return lambda: decide(next(following))


def _all_logits(model: Model, v: Tensor) -> Tensor:
    blocks = v.split(UNEMBED_BLOCK)
    logits = (torch.addmm(model.unembedding_bias, x, model.unembedding) for x in blocks)
    return torch.cat([x.argmax(1) for x in logits])


def _taught_anew(model: Model, events: list[Event], owner: Tensor, v: Tensor) -> Tensor:
    return Decider(model, events)(v, owner)


def _rare(model: Model, v: Tensor) -> Tensor:
    """Tokens that win nowhere here, but come near: those with the highest logits anywhere."""
    highest = torch.full((model.vocab_size,), -torch.inf)
    for x in v.split(UNEMBED_BLOCK):
        logits = torch.addmm(model.unembedding_bias, x, model.unembedding)
        highest = torch.maximum(highest, (logits - logits.amax(1, keepdim=True)).amax(0))
    highest[winners(model, v).token] = -torch.inf
    return highest.topk(16 * TARGETS).indices[::16]


def _mini(rows: int) -> tuple[Model, Tensor]:
    model = load_model("mini-4l")
    inputs = load_inputs("camel", model)
    return model, inputs.sample(rows, torch.Generator().manual_seed(0))


def _paper(rows: int) -> tuple[Model, Tensor]:
    """The paper's shape with random weights, on 33 positions with supports of 1024."""
    generator = torch.Generator().manual_seed(0)
    network = GeluTransformer(GeluConfig(1, 512, 8, 64, 2048, 64, 48262))
    network.initialise(generator)
    network.requires_grad_(False)
    model = Model("gelu-1l shape", network, load_model("mini-4l").tokenizer, 64)
    return model, torch.randint(1024, (rows, 33), generator=generator)


def _verdict(ratio: float, bar: float | None) -> str:
    if bar is None:
        return "-"
    return f"≥ {bar:g} {'met' if ratio >= bar else '[bold red]MISSED[/]'}"
