"""Does `auto` answer where a model writes the inputs, and where outputs are sampled?

mini-1l writes four tokens after "The" at temperature 1, and each of the shipped models reads them.
Four targets of each model, spread over 1e-5 … 1e-3 by 2^21 plain samples, are asked for twice: as
the greedy next token, and as the next token sampled at temperature 1, whose plain truth is the mean
of its exact probabilities. `auto` has its defaults.

`python -m benchmarks.generated FOLDER` samples, asks, and goes on where it was stopped; `python -m
benchmarks generated` prints the rows that were copied to docs/results/generated. A target's own
truth has noise, which is allowed for as in a study's coverage.
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
WRITER, PROMPT, TOKENS = "mini-1l", "The", 4
MODELS = ("mini-1l", "mini-2l", "mini-4l")
SAMPLES, BLOCK, ROWS = 2**21, 2**13, 256
TARGETS, LOW, HIGH = 4, 1e-5, 1e-3  # of each model and kind
KINDS = ("greedy", "sampled")


def inputs_of(model: ls.Model) -> ls.GeneratedInputs:
    """What all models are asked about."""
    return ls.generated(model, PROMPT, tokens=TOKENS, writer=WRITER, name="written")


class PlainTruth(NamedTuple):
    """Sums over plain samples, for every token of every model."""

    samples: int
    won: dict[str, Tensor]
    """How often it was the greedy next token."""
    likely: dict[str, Tensor]
    """The sum of its probabilities at temperature 1."""
    squares: dict[str, Tensor]

    def of(self, kind: str, model: str) -> tuple[Tensor, Tensor]:
        """The probability of every token, and its standard error."""
        n = self.samples
        if kind == "greedy":
            p = self.won[model] / n
            return p, (p * (1 - p) / n).sqrt()
        p = self.likely[model] / n
        return p, ((self.squares[model] / n - p.square()).clamp(min=0) / n).sqrt()


def make_truth(folder: Path) -> PlainTruth:
    """Plain samples up to 2^21, a block at a time, those of a file gone on with."""
    folder.mkdir(parents=True, exist_ok=True)
    path, models = folder / "truth.pt", [ls.load_model(name) for name in MODELS]
    zeros = [{m.name: torch.zeros(m.vocab_size, dtype=torch.float64) for m in models}] * 3
    done = PlainTruth(0, *({k: v.clone() for k, v in z.items()} for z in zeros))
    if path.exists():
        done = PlainTruth(*torch.load(path))
    inputs = inputs_of(models[0])
    while done.samples < SAMPLES:
        generator = derived_generator(0, "generated", done.samples)
        tokens = inputs.sample(BLOCK, generator)
        for model in models:
            for v in activations(model, tokens).split(ROWS):
                logits = readout(model).logits(v)
                done.won[model.name] += logits.argmax(1).bincount(minlength=model.vocab_size)
                q = logits.softmax(1)
                done.likely[model.name] += q.sum(0).double()
                done.squares[model.name] += q.square().sum(0).double()
        done = done._replace(samples=done.samples + BLOCK)
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


def questions(truth: PlainTruth) -> Iterator[tuple[str, str, int, float, float]]:
    """Kind, model, token, and its probability by plain samples with its error."""
    for kind in KINDS:
        for model in MODELS:
            p, error = truth.of(kind, model)
            for token in targets(p, error):
                yield kind, model, token, float(p[token]), float(error[token])


def ask(folder: Path) -> None:
    """All questions that are not answered yet, each a line of a file."""
    path = folder / "rows.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    done = {tuple(json.loads(line)["question"][:3]) for line in lines}
    for question in questions(make_truth(folder)):
        kind, name, token, *_ = question
        if (kind, name, token) in done:
            continue
        model = ls.load_model(name)
        event: ls.Event | int = ls.Sampled(token, 1.0) if kind == "sampled" else token
        answer = ls.estimate(model, inputs_of(model), event)
        plain = {**answer.to_dict(), "witnesses": []}
        with path.open("a") as file:
            file.write(json.dumps({"question": question, "answer": plain}) + "\n")


def main(console: Console) -> None:
    if not STORED.exists():
        console.print(f"generated: no rows are stored in {STORED.parent} yet.")
        return
    rows = [json.loads(line) for line in STORED.read_text().splitlines()]
    for kind in KINDS:
        some = [row for row in rows if row["question"][0] == kind]
        held = [row for row in some if holds(row)]
        table = Table(
            *("model", "token", "plain samples", "auto", "95% interval", "holds", "calls", "s"),
            title=f"{kind}: {len(held)} of {len(some)} hold",
        )
        for row in some:
            _, model, token, p, error = row["question"]
            answer = ls.Estimate.from_dict(row["answer"])
            low, high = answer.interval
            table.add_row(
                model,
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
