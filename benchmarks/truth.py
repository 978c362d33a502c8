"""Ground truth: how near to the bare matrix products it runs, and what conditioning is worth."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import compare
from longshot.errors import LongshotError
from longshot.estimate import Cell
from longshot.evaluate.argmax import BLOCK
from longshot.evaluate.blocks import BLOCK as MODEL_BLOCK
from longshot.inputs import CATALOGUE, Tree, load_inputs
from longshot.models import load_model
from longshot.models.gelu import GeluConfig, GeluTransformer
from longshot.models.products import dense
from longshot.names import ZOO_NAMES
from longshot.truth import Truth, load_truth, run_span
from longshot.truth.sampling import UNIT, sampler
from longshot.truth.tally import KINDS, Kind, Span, Stream

RANGE = (1e-7, 1e-4)


class Product(NamedTuple):
    """A matrix product that a unit makes `times` times: [batch, m, k] by [batch, k, n]."""

    times: int
    m: int
    k: int
    n: int
    batch: int = 1

    @property
    def macs(self) -> int:
        return self.times * self.batch * self.m * self.k * self.n


def layer(c: GeluConfig, times: int, rows: int, queries: int) -> Iterator[Product]:
    """One layer's dense products: keys and values of `rows`, the rest of `queries` only."""
    inner = c.heads * c.head_width
    yield Product(times, rows, c.width, 2 * inner)
    yield Product(times, queries, c.width, inner)
    yield Product(times, queries, inner, c.width)
    yield Product(times, queries, c.width, c.mlp_width)
    yield Product(times, queries, c.mlp_width, c.width)


def attention(c: GeluConfig, times: int, rows: int, queries: int, keys: int) -> Iterator[Product]:
    """Scores and values of `queries` against `keys`, for each row and head."""
    yield Product(times, queries, c.head_width, keys, rows * c.heads)
    yield Product(times, queries, keys, c.head_width, rows * c.heads)


def products(cell: Cell, kind: Kind) -> list[Product]:
    """All matrix products of one unit, in the shapes in which it makes them."""
    network = cell.model.network
    assert isinstance(network, GeluTransformer)
    c = network.config
    found: list[Product] = []
    if kind == "brute":
        times, n = UNIT // MODEL_BLOCK, cell.inputs.length
        for _ in range(c.layers - 1):
            found += layer(c, times, MODEL_BLOCK * n, MODEL_BLOCK * n)
            found += attention(c, times, MODEL_BLOCK, n, n)
        found += list(layer(c, times, 0, MODEL_BLOCK))[1:]  # neither keys nor values are made
        found.append(Product(2 * times, MODEL_BLOCK, c.head_width, c.width, c.heads))
        found.append(Product(times, c.heads, c.width, n, MODEL_BLOCK))
        found.append(Product(times, c.heads, n, c.width, MODEL_BLOCK))
        leaves = UNIT
    else:
        tree = Tree(cell.model, cell.inputs)
        n, tail, chunks = tree.prefix_length, 1 + len(tree.tail), -(-tree.leaf.size // tree.chunk)
        for _ in range(c.layers - 1):
            found += layer(c, 1, tree.batch * n, tree.batch * n)
            found += attention(c, 1, tree.batch, n, n)
        found.append(Product(chunks, tree.batch * n, c.width, 2 * c.heads * c.head_width))
        rows = tree.batch * tree.chunk
        for last in [False] * (c.layers - 1) + [True]:
            queries = 1 if last else tail
            found += layer(c, chunks, rows * tail, rows * queries)
            found += attention(c, chunks, tree.batch, tree.chunk * queries, n)
        leaves = chunks * rows
    return [*found, Product(-(-leaves // BLOCK), BLOCK, c.width, c.vocab_size)]


def bare(cell: Cell, kind: Kind) -> Callable[[], None]:
    """The unit's matrix products and nothing else, those with weights by oneDNN."""
    made = []
    for p in products(cell, kind):
        left, right = torch.randn(p.batch, p.m, p.k), torch.randn(p.batch, p.n, p.k)
        by = partial(torch.bmm, left, right.mT)
        if p.batch == 1:
            by = partial(dense, left[0], right[0])
        made.append((p.times, by))

    def run() -> None:
        for times, product in made:
            for _ in range(times):
                product()

    return run


def unit(cell: Cell, kind: Kind) -> Callable[[], object]:
    span = Span(Stream(kind, 0, 0), 0, 1)
    return lambda: run_span(cell, span)


def advantage(cell: Cell) -> float | None:
    """By how much conditional sampling has less variance a second than plain, on rare tokens.

    The median over the tokens in the range that the shipped truth knows to within a quarter; on a
    cell without one, over the likelier ones of a few seconds' sample.
    """
    timed = compare(unit(cell, "brute"), unit(cell, "conditional"), pairs=3)
    samples = sampler(cell, "conditional").unit(torch.Generator()).samples
    per_prefix, per_input = timed.fast_seconds / samples, timed.slow_seconds / UNIT
    low, high = RANGE
    try:
        truth = load_truth(cell.model, cell.inputs)
    except LongshotError:
        tally, began, stop = run_span(cell, Span(Stream("conditional", 0, 0), 0, 1)).tally, 0.0, 1
        began = time.perf_counter()
        while time.perf_counter() - began < 2:
            tally += run_span(cell, Span(Stream("conditional", 0, 0), stop, stop + 1)).tally
            stop += 1
        truth = Truth(cell.key, {"conditional": tally})
        low, high = 0.0, 0.01
    known = truth.between(low, high) & (truth.relative_error <= 0.25)
    p, error = truth.probability[known], truth.standard_error[known]
    ratios = p * (1 - p) * per_input / (error.square() * truth.samples["conditional"] * per_prefix)
    return statistics.median(ratios.tolist()) if len(ratios) else None


def main(console: Console) -> None:
    """Print both tables, and the cells where conditioning does not pay."""
    models = [load_model(name) for name in ZOO_NAMES]
    rates = Table("model", "kind", "leaves/s", "share of the bare products", title="truth: rates")
    for model in models:
        cell = Cell(model, load_inputs("if", model))
        for kind in KINDS:
            measured = compare(unit(cell, kind), bare(cell, kind), pairs=7)
            leaves = sampler(cell, kind).leaves_per_unit
            rate = f"{leaves / measured.slow_seconds:,.0f}"
            rates.add_row(model.name, kind, rate, f"{1 / measured.ratio:.0%}")
    console.print(rates)
    gains = Table("inputs", *ZOO_NAMES, title="variance a second, plain over conditional sampling")
    losing = []
    for name in CATALOGUE:
        row = [advantage(Cell(model, load_inputs(name, model))) for model in models]
        gains.add_row(name, *("–" if gain is None else f"{gain:.1f}×" for gain in row))
        pairs = zip(models, row, strict=True)
        losing += [f"{m.name} on {name}" for m, gain in pairs if gain is not None and gain < 1]
    console.print(gains)
    console.print(f"Conditional sampling does not win on: {', '.join(losing) or 'no cell'}.")
