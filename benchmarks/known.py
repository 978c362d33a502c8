"""How often does `auto`'s interval hold where the probability is known exactly?

`python -m benchmarks known` asks `auto` about events of 1e-8 … 1e-4 in problems that have nothing
to do with a shipped model. The first half of the scored ones was in sight when `auto` was made to
allow for kinds of input that too few populations vouch for; the others only judge. Two families:

- **scored**: a score of ten independent tokens, with effects of their own that depend on the last
  one, effects of neighbours, and a second kind of input behind some rare first tokens. How the
  score of 10^13 inputs is distributed is a product of matrices at each frequency.
- **transformers**: small random ones, and inputs that can all be listed, though not within the
  budget.

Some minutes of a core. `python -m benchmarks.known FILE [BUDGET …]` keeps the answers to
each problem in a line and goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Complex128, Float64
from rich.console import Console
from rich.table import Table
from torch import Tensor

import longshot as ls
from longshot.evaluate import Enumeration, winners
from longshot.intervals import LEAST_REPLICATES
from longshot.models import Model
from longshot.testing import toy_model, toy_tokenizer

BUDGET = 2**14
LOW, HIGH = 1e-8, 1e-4
SCORED, TRANSFORMERS, EACH = 100, 15, 4  # problems, and targets of each transformer
IN_SIGHT = 50  # of the scored
LENGTH, VOCAB, LAST = 10, 20, 24  # of the scored: positions, tokens of each, and of the last one
FREQUENCIES = 2048  # more than a score has values
STEP = 1 / 8  # between two of these: sums are exact
RARE_FIRST = 0.03  # at most, of inputs of the second kind


class Question(NamedTuple):
    """An event whose probability is known."""

    model: Model
    inputs: ls.ProductInputs
    token: int
    truth: float


# --- scored


class Effects(NamedTuple):
    """What tokens add to the score of an input, for either kind."""

    own: Float64[Tensor, "2 position token last"]
    pair: Float64[Tensor, "2 before token"]
    second: Float64[Tensor, " token"]
    """1 for the first tokens that make an input one of the second kind."""


class Scored:
    """A network of one-hot tokens, without a memory, whose token 0 leads by the score."""

    def __init__(self, effects: Effects, threshold: float) -> None:
        self.effects, self.threshold = effects, threshold
        self.embedding = torch.eye(LAST, dtype=torch.float64)
        self.unembedding = torch.zeros(1, LAST, dtype=torch.float64)
        self.unembedding[0, 0] = 1.0
        self.unembedding_bias = None

    def activation(self, embedded: Tensor) -> Tensor:
        e, last = embedded[:, :-1, :VOCAB], embedded[:, -1]
        own = torch.einsum("niv,kivy,ny->nk", e, self.effects.own, last)
        pair = torch.einsum("niu,kuv,niv->nk", e[:, :-1], self.effects.pair, e[:, 1:])
        second = e[:, 0] @ self.effects.second
        kinds = own + pair
        score = kinds[:, 0] * (1 - second) + kinds[:, 1] * second
        return (score - self.threshold)[:, None]

    def macs(self, positions: int) -> int:
        return positions * VOCAB * (VOCAB + LAST)

    def backward_macs(self, positions: int) -> int:
        return 2 * self.macs(positions)


def scored(seed: int) -> Question:
    """A problem of the first family: everything about it is drawn from the seed."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand(1, generator=generator))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def law(size: int, power: float) -> ls.TokenDistribution:
        weights = torch.arange(1, size + 1, dtype=torch.float64) ** -power
        return ls.TokenDistribution.from_weights(
            range(size), weights[torch.randperm(size, generator=generator)]
        )

    positions = [law(VOCAB, uniform(0.5, 1.3)) for _ in range(LENGTH - 1)]
    positions.append(law(LAST, uniform(0.7, 1.5)))
    own = uniform(0.3, 1) * normal(2, LENGTH - 1, VOCAB, 1)
    own = own + uniform(0.2, 0.6) * normal(2, LENGTH - 1, VOCAB, LAST)  # not alike behind all
    own[:, 0] += uniform(0.5, 2) * normal(2, 1, LAST)  # the last token's own
    own[1, 0] += uniform(0, 4)
    pair = uniform(0.1, 0.5) * normal(2, VOCAB, VOCAB)
    rarest = positions[0].probabilities.argsort()
    rarest = rarest[positions[0].probabilities[rarest].cumsum(0) <= RARE_FIRST]
    second = torch.zeros(VOCAB, dtype=torch.float64).index_fill(0, rarest, 1.0)
    effects = Effects((own / STEP).round() * STEP, (pair / STEP).round() * STEP, second)
    values, above = tail(effects, positions)
    wanted = math.exp(uniform(math.log(LOW), math.log(HIGH)))
    at = int((above >= wanted).nonzero().max())
    network = Scored(effects, float(values[at]) - STEP / 2)
    model = Model(f"scored {seed}", network, toy_tokenizer(LAST), LENGTH)
    inputs = ls.ProductInputs(f"scored {seed}", positions)
    return Question(model, inputs, 0, float(above[at]))


def tail(
    effects: Effects, positions: list[ls.TokenDistribution]
) -> tuple[Float64[Tensor, " value"], Float64[Tensor, " value"]]:
    """The values of the score, rising, and the probability of at least each."""
    frequency = 2 * math.pi * torch.fft.fftfreq(FREQUENCIES, dtype=torch.float64)

    def wave(x: Tensor) -> Complex128[Tensor, "frequency *shape"]:
        angle = frequency.reshape(-1, *[1] * x.ndim) * (x / STEP)
        return torch.polar(torch.ones_like(angle), angle)

    p = [position.probabilities for position in positions]
    found = torch.zeros(FREQUENCIES, dtype=torch.complex128)
    for kind, share in enumerate((1 - effects.second, effects.second)):
        pair = wave(effects.pair[kind])
        row = wave(effects.own[kind, 0].mT) * (p[0] * share)  # frequency, last token, token
        for i in range(1, LENGTH - 1):
            row = (row @ pair) * wave(effects.own[kind, i].mT) * p[i]
        found += row.sum(2) @ p[-1].to(found.dtype)
    mass = torch.fft.fft(found).real / FREQUENCIES  # of 0, 1, … and, at the end, −1
    rising = torch.roll(mass, FREQUENCIES // 2)
    values = STEP * torch.arange(-FREQUENCIES // 2, FREQUENCIES // 2, dtype=torch.float64)
    return values, rising.flip(0).cumsum(0).flip(0)


# --- transformers


def transformers(seed: int) -> list[Question]:
    """Some tokens of a problem of the second family."""
    generator = torch.Generator().manual_seed(seed)
    model = toy_model(seed, vocab=48, context=8, width=16)
    model.embedding.mul_(2)  # tokens matter more than positions, as in a trained model

    def law(size: int) -> ls.TokenDistribution:
        support = torch.randperm(model.vocab_size, generator=generator)[:size].sort().values
        return ls.TokenDistribution.from_weights(
            support.tolist(), torch.arange(1, size + 1, dtype=torch.float64).reciprocal()
        )

    inputs = ls.ProductInputs(f"listed {seed}", [*(law(4) for _ in range(6)), law(24)])
    mass = torch.zeros(model.vocab_size, dtype=torch.float64)
    for leaves in Enumeration(model, inputs, 1):
        won = winners(model, leaves.activation).token
        mass.index_add_(0, won[won >= 0], leaves.log_prob.exp()[won >= 0])
    some = [t for t in mass.argsort().tolist() if LOW <= mass[t] <= HIGH]
    some = [some[i] for i in torch.randperm(len(some), generator=generator)[:EACH].tolist()]
    return [Question(model, inputs, token, float(mass[token])) for token in some]


# --- answers


class Answer(NamedTuple):
    """What `auto` says of one event."""

    truth: float
    probability: float
    low: float
    high: float
    two_sided: bool
    vouched: bool
    """Whether populations enough hit to tell what the draws do not reach."""

    @property
    def holds(self) -> bool:
        return self.low <= self.truth <= self.high


def questions(family: str, seed: int) -> list[Question]:
    return [scored(seed)] if family == "scored" else transformers(seed)


Problem = tuple[str, int, int]
"""A family, the seed of a problem of it, and a budget."""
PROBLEMS = {"scored": SCORED, "transformers": TRANSFORMERS}


def answers(family: str, seed: int, budget: int) -> Iterator[Answer]:
    """Of one problem, without the events of which plain draws were enough."""
    for model, inputs, token, truth in questions(family, seed):
        said = ls.estimate(model, inputs, token, budget=budget, seed=seed)
        if "leafwise" in said.statistics:
            yield Answer(
                truth,
                said.probability,
                *said.interval,
                said.is_two_sided,
                said.statistics["populations"] - said.statistics["without_a_hit"]
                >= LEAST_REPLICATES,
            )


def main(console: Console) -> None:
    problems = [(family, seed, BUDGET) for family, n in PROBLEMS.items() for seed in range(n)]
    show(console, ((problem, answer) for problem in problems for answer in answers(*problem)))


def show(console: Console, found: Iterable[tuple[Problem, Answer]]) -> None:
    """A line for each group of problems and budget, and one for all that only judge."""
    headings = ("at most", "asked", "two-sided", "hold", "below the truth", "above it")
    more = ("hold unvouched", "one-sided that hold", "upper/lower", "rms log error")
    table = Table("", *headings, *more)
    groups: dict[tuple[int, str], list[Answer]] = {}
    for (family, seed, budget), answer in found:
        seen = family == "scored" and seed < IN_SIGHT
        for name in ("scored, in sight",) if seen else (family, "all that judge"):
            groups.setdefault((budget, name), []).append(answer)
    for (budget, name), each in sorted(groups.items()):
        given, bounds = [a for a in each if a.two_sided], [a for a in each if not a.two_sided]
        alone = [a.holds for a in given if not a.vouched]
        errors = [math.log(a.probability / a.truth) for a in given]
        table.add_row(
            name,
            str(budget),
            str(len(each)),
            share(len(given), len(each)),
            share(sum(a.holds for a in given), len(given)),
            str(sum(a.high < a.truth for a in given)),
            str(sum(a.low > a.truth for a in given)),
            share(sum(alone), len(alone)),
            share(sum(a.holds for a in bounds), len(bounds)),
            f"{statistics.median(a.high / a.low for a in given):.1f}" if given else "",
            f"{math.sqrt(statistics.mean(e * e for e in errors)):.2f}" if given else "",
        )
    console.print(table)


def share(some: int, of: int) -> str:
    return f"{some} of {of}" + (f" ({some / of:.1%})" if of else "")


def ask(path: Path, budgets: Iterable[int]) -> None:
    """All problems that FILE does not have yet."""
    kept = path.read_text().splitlines() if path.exists() else []
    done = {tuple(json.loads(line)["problem"]) for line in kept}
    with path.open("a") as file:
        for budget, (family, count) in itertools.product(budgets, PROBLEMS.items()):
            for seed in range(count):
                problem = (family, seed, budget)
                if problem not in done:
                    line = {"problem": problem, "answers": list(answers(*problem))}
                    print(json.dumps(line), file=file, flush=True)


def read(path: Path) -> Iterator[tuple[Problem, Answer]]:
    for line in map(json.loads, path.read_text().splitlines()):
        family, seed, budget = line["problem"]
        yield from (((family, seed, budget), Answer(*each)) for each in line["answers"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.known")
    parser.add_argument("file", type=Path)
    parser.add_argument("budgets", type=int, nargs="*", default=[BUDGET])
    options = parser.parse_args()
    ask(options.file, options.budgets)
    show(Console(), read(options.file))
