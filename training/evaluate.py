"""Held-out losses, samples, and the model card: `python -m training.evaluate --work WORK`.

The loss of a window is the mean over its 63 predictions. Neighbouring windows come from one
piece of text and are not independent, so the standard error comes from the spread between blocks
of 20 windows. Two depths are compared on the same windows, so the error of their difference is
that of the paired differences.
"""

import argparse
import json
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy

from longshot.models.gelu import GeluTransformer
from training.card import write_card
from training.data import heldout_windows
from training.files import DEFAULT_WORK, PACKAGE, write_json
from training.sources import LANGUAGES, Language
from training.tokenizer import begin_and_end
from training.train import DEPTHS, mini_config

WINDOWS = 2000  # of each language, or all there are
BLOCK = 20  # windows; about two pieces of text
BATCH = 50
PROMPTS: dict[Language, str] = {
    "english": "The people of the United States",
    "python": "def __init__(self, name):\n",
    "spanish": "Y dijo el rey a los hijos de",
}
TEMPERATURE = 0.8
SAMPLE_TOKENS = 48


@dataclass(frozen=True)
class Mean:
    """A mean over windows with its standard error."""

    value: float
    error: float

    @staticmethod
    def of(values: Tensor) -> "Mean":
        """The mean of `values`, its error from the means of blocks of neighbours."""
        blocks = values[: len(values) // BLOCK * BLOCK].view(-1, BLOCK).mean(1)
        return Mean(values.mean().item(), (blocks.std() / math.sqrt(len(blocks))).item())

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.error:.4f}"


@torch.no_grad()
def window_losses(model: GeluTransformer, windows: Tensor) -> Tensor:
    """The mean loss of each window, in nats a token."""
    losses = []
    for batch in torch.split(windows, BATCH):
        logits = model.logits(batch[:, :-1])
        each = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none")
        losses.append(each.view(len(batch), -1).double().mean(1))
    return torch.cat(losses)


@torch.no_grad()
def sample(model: GeluTransformer, prompt: list[int], end: int, seed: int) -> list[int]:
    """Tokens that follow `prompt` at TEMPERATURE, until EOS or the context is full."""
    generator = torch.Generator().manual_seed(seed)
    tokens = list(prompt)
    for _ in range(min(SAMPLE_TOKENS, model.config.context - len(prompt))):
        logits = model.logits(torch.tensor([tokens]))[0, -1]
        weights = torch.softmax(logits / TEMPERATURE, -1)
        token = int(torch.multinomial(weights, 1, generator=generator))
        if token == end:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


def load_trained(work: Path, name: str, vocab_size: int) -> GeluTransformer:
    """A finished model of `training.train`."""
    model = GeluTransformer(mini_config(name, vocab_size))
    model.load_state_dict(load_file(work / "models" / name / "model.safetensors"))
    return model.eval()


def evaluate(work: Path) -> dict[str, Any]:
    """Losses by model and language, differences of neighbouring depths, and samples."""
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    begin, end = begin_and_end(tokenizer)
    names = sorted(DEPTHS, key=lambda name: DEPTHS[name])
    models = {name: load_trained(work, name, tokenizer.get_vocab_size()) for name in names}
    losses: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    for language in LANGUAGES:
        stream = np.load(work / "tokens" / f"{language}-heldout.npy")
        for name, model in models.items():
            windows = heldout_windows(stream, begin, model.config.context, WINDOWS)
            losses[name][language] = window_losses(model, windows)
    samples: dict[str, dict[str, str]] = {}
    for name, model in models.items():
        samples[name] = {}
        for language, prompt in PROMPTS.items():
            ids = [begin, *tokenizer.encode(prompt, add_special_tokens=False).ids]
            samples[name][language] = prompt + tokenizer.decode(sample(model, ids, end, seed=0))
    return {
        "windows": {language: len(losses[names[0]][language]) for language in LANGUAGES},
        "losses": {
            name: {language: Mean.of(losses[name][language]) for language in LANGUAGES}
            for name in names
        },
        "differences": {
            f"{shallow} − {deep}": {
                language: Mean.of(losses[shallow][language] - losses[deep][language])
                for language in LANGUAGES
            }
            for shallow, deep in pairwise(names)
        },
        "samples": samples,
        "training": {
            name: json.loads((work / "models" / name / "run.json").read_text()) for name in names
        },
    }


def falls_with_depth(result: dict[str, Any], errors: float = 3.0) -> bool:
    """Whether every paired difference is positive by more than `errors` standard errors."""
    return all(
        mean.value > errors * mean.error
        for row in result["differences"].values()
        for mean in row.values()
    )


def main() -> None:
    """Evaluate, write the card, and fail if depth did not help."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--card", type=Path, default=PACKAGE / "models" / "zoo" / "README.md")
    arguments = parser.parse_args()
    work: Path = arguments.work.expanduser()
    result = evaluate(work)
    for section in ("losses", "differences"):
        for name, row in result[section].items():
            print(f"{name:20}", "  ".join(f"{key} {mean}" for key, mean in row.items()))
    manifest = json.loads((work / "text" / "manifest.json").read_text())
    write_json(work / "evaluation.json", json.loads(json.dumps(result, default=vars)))
    write_card(arguments.card, result, manifest)
    if not falls_with_depth(result):
        raise SystemExit("held-out loss does not fall with depth by more than its noise")


if __name__ == "__main__":
    main()
