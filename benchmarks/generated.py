"""Does `auto` answer where a model writes the inputs, and where outputs are sampled?

Two pairs of shipped models: one writes a few tokens after a prompt, another reads them. Six
targets of each pair, spread over 1e-5 … 1e-3, are chosen by 2^19 plain samples and judged by 2^21
others: once as the greedy next token, and once, others, as the next token sampled at temperature 1,
whose plain truth is the mean of exact probabilities. `auto` has its defaults.

`python -m benchmarks.generated FOLDER` samples, asks, and goes on where it was stopped; `python -m
benchmarks generated` prints the rows that were copied to docs/results/generated. What is left of
the truth's own noise is allowed for as in a study's coverage.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import longshot as ls
from longshot.evaluate import activations, readout
from longshot.numerics import derived_generator
from longshot.study.scores import covers

STORED = Path(__file__).parents[1] / "docs" / "results" / "generated" / "rows.jsonl"
SAMPLES, BLOCK, ROWS = {"chosen": 2**19, "judged": 2**21}, 2**13, 256
TARGETS, LOW, HIGH = 6, 1e-5, 1e-3  # of each pair and kind
HEADINGS = ("models", "token", "plain samples", "auto", "95% interval", "holds", "calls", "s")
KINDS = {"greedy": 0.0, "sampled": 1.0}  # with the temperature of the output


class Pair(NamedTuple):
    """A model that writes so many tokens after a prompt, and one that reads them."""

    writer: str
    reader: str
    prompt: str
    tokens: int

    def inputs(self, model: ls.Model) -> ls.GeneratedInputs:
        return ls.generated(
            model, self.prompt, tokens=self.tokens, writer=self.writer, name="written"
        )


PAIRS = (
    Pair("mini-1l", "mini-2l", "The", 4),
    Pair("mini-2l", "mini-4l", "def", 4),
)


class PlainTruth(NamedTuple):
    """Sums over plain samples, for every token."""

    samples: int
    won: Tensor
    """How often it was the greedy next token."""
    likely: Tensor
    """The sum of its probabilities at temperature 1."""
    squares: Tensor

    def of(self, kind: str) -> tuple[Tensor, Tensor]:
        """The probability of every token, and its standard error."""
        n = self.samples
        if kind != "sampled":
            p = self.won / n
            return p, (p * (1 - p) / n).sqrt()
        p = self.likely / n
        return p, ((self.squares / n - p.square()).clamp(min=0) / n).sqrt()


def make_truth(folder: Path, pair: Pair, purpose: str) -> PlainTruth:
    """Plain samples, a block at a time, those of a file gone on with."""
    folder.mkdir(parents=True, exist_ok=True)
    path, model = folder / f"{pair.writer}-{purpose}.pt", ls.load_model(pair.reader)
    zeros = (torch.zeros(model.vocab_size, dtype=torch.float64) for _ in range(3))
    done = PlainTruth(*torch.load(path)) if path.exists() else PlainTruth(0, *zeros)
    inputs = pair.inputs(model)
    while done.samples < SAMPLES[purpose]:
        generator = derived_generator(0, pair.writer, purpose, done.samples)
        for v in activations(model, inputs.sample(BLOCK, generator)).split(ROWS):
            logits = readout(model).logits(v)
            q = logits.softmax(1)
            done.won.add_(logits.argmax(1).bincount(minlength=model.vocab_size))
            done.likely.add_(q.sum(0))
            done.squares.add_(q.square().sum(0))
        done = done._replace(samples=done.samples + BLOCK)
        if done.samples % 2**16 == 0:
            torch.save(tuple(done), path.with_suffix(".new"))
            os.replace(path.with_suffix(".new"), path)
    return done


def targets(p: Tensor, error: Tensor) -> list[int]:
    """Tokens that plain samples know to a third, spread evenly over the logarithms."""
    fit = ((p >= LOW) & (p <= HIGH) & (error <= p / 3)).nonzero()[:, 0]
    wanted = torch.linspace(math.log(LOW), math.log(HIGH), 2 * TARGETS + 1)[1::2]
    found: list[int] = []
    for each in wanted.tolist():
        near = (p[fit].log() - each).abs().argsort().tolist()
        found.append(next(int(fit[i]) for i in near if int(fit[i]) not in found))
    return found


def questions(folder: Path) -> Iterator[tuple[Pair, str, int, float, float]]:
    """Pair, kind, token, and its probability by the samples that judge, with its error."""
    for pair in PAIRS:
        chosen, judged = (make_truth(folder, pair, purpose) for purpose in SAMPLES)
        for kind in KINDS:
            p, error = judged.of(kind)
            for token in targets(*chosen.of(kind)):
                yield pair, kind, token, float(p[token]), float(error[token])


def ask(folder: Path) -> None:
    """All questions that are not answered yet, each a line of a file."""
    path = folder / "rows.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    done = [json.loads(line)["question"] for line in lines]
    for pair, kind, token, p, error in questions(folder):
        if [[*pair], kind, token, p, error] in done:
            continue
        model = ls.load_model(pair.reader)
        event = ls.Sampled(token, KINDS[kind])
        answer = ls.estimate(model, pair.inputs(model), event)
        plain = {**answer.to_dict(), "witnesses": []}
        row = {"question": [pair, kind, token, p, error], "answer": plain}
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def main(console: Console) -> None:
    if not STORED.exists():
        console.print(f"generated: no rows are stored in {STORED.parent} yet.")
        return
    rows = [json.loads(line) for line in STORED.read_text().splitlines()]
    for kind in KINDS:
        some = [row for row in rows if row["question"][1] == kind]
        held = [row for row in some if holds(row)]
        table = Table(
            *HEADINGS,
            title=f"{kind}: {len(held)} of {len(some)} hold",
        )
        for row in some:
            pair, _, token, p, error = row["question"]
            answer = ls.Estimate.from_dict(row["answer"])
            low, high = answer.interval
            table.add_row(
                " → ".join(pair[:2]),
                str(token),
                f"{p:.2e} ± {error:.0e}",
                f"{answer.probability:.2e}",
                f"{low:.1e} … {high:.1e}" if answer.is_two_sided else f"at most {high:.1e}",
                "yes" if holds(row) else "no",
                str(answer.cost.forwards),
                f"{answer.cost.seconds:.0f}",
            )
        console.print(table)


def holds(row: dict[str, Any]) -> bool:
    *_, p, error = row["question"]
    return covers(ls.Estimate.from_dict(row["answer"]), p, error)


if __name__ == "__main__":
    torch.set_num_threads(1)
    ask(Path(sys.argv[1]))
