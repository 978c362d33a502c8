"""What a state that splitting visits costs, against a plain call and against its products alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode

from longshot import load_inputs, load_model
from longshot.estimate import Job
from longshot.evaluate import Evaluator
from longshot.events import TokenIs
from longshot.methods.splitting import Splitting, SplittingRun
from longshot.truth import load_truth, pick_targets

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_linear_pointwise")
CALLS = 12_000
BAR_PEAK, BAR_CALL = 0.5, 0.6

Product = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Products(TorchDispatchMode):
    """Notes every matrix product that runs, with its shapes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Product] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.overloadpacket.__name__ in PRODUCTS:
            shapes = tuple(a.shape if isinstance(a, torch.Tensor) else a for a in args)
            self.seen.append((func, shapes, kwargs or {}))
        return func(*args, **(kwargs or {}))


def main(console: Console) -> None:
    """One round of four populations on two cells of each depth; least processor times of three."""
    torch.set_num_threads(1)
    table = Table(title=f"Splitting's states, one round of {CALLS:,} calls")
    for heading in (
        "model", "inputs", "states", "tried", "of its products' peak", "bar",
        "seconds of a plain call", "bar",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for model in ("mini-1l", "mini-2l", "mini-4l"):
        for inputs in ("camel", "english"):
            states, tried, share, price = measured(model, inputs)
            table.add_row(
                model, inputs, f"{states:,}", f"{tried:.0%}",
                f"{share:.0%}", f"{BAR_PEAK:.0%}", f"{price:.2f}", f"{BAR_CALL}",
            )  # fmt: skip
    console.print(table)


@torch.no_grad()
def measured(name: str, distribution: str) -> tuple[int, float, float, float]:
    """States, the share of them that was tried, the share of the peak, the price of a state."""
    model = load_model(name)
    inputs = load_inputs(distribution, model)
    (token,) = pick_targets(load_truth(model, inputs), 1e-7, 1e-4, 1, 0).tokens
    job = Job(model, inputs, (TokenIs(token),), 2**16, 0)

    def walked() -> SplittingRun:
        run = SplittingRun(job, Splitting())
        run.round(CALLS)
        return run

    with Products() as products:
        run = walked()
    evaluator = Evaluator(model, list(job.events), "gap", inputs)
    tokens = inputs.sample(2048, torch.Generator().manual_seed(0))
    least = torch.full((len(tokens),), -torch.inf, dtype=torch.float64)
    apart = replay(products.seen)
    seconds = [
        min(times)
        for times in zip(
            *((timed(walked), timed(apart), timed(lambda: evaluator.reach(tokens, least)))
              for _ in range(3)),
            strict=True,
        )
    ]  # fmt: skip
    price = seconds[0] / run.states / (seconds[2] / len(tokens))
    return run.states, run.tried / run.states, seconds[1] / seconds[0], price


def replay(products: list[Product]) -> Callable[[], None]:
    """The same products one after the other, on operands that are made beforehand."""
    made: dict[torch.Size, torch.Tensor] = {}

    def operand(value: Any) -> Any:
        if not isinstance(value, torch.Size):
            return value
        if value not in made:
            made[value] = torch.randn(value)
        return made[value]

    calls = [(func, tuple(map(operand, args)), kwargs) for func, args, kwargs in products]

    def run() -> None:
        for func, args, kwargs in calls:
            func(*args, **kwargs)

    return run


def timed(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start
