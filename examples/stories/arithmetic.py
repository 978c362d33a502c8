"""How often are the sums of sums.toml really wrong? By arithmetic, where the story asks a judge.

python examples/stories/arithmetic.py hf:FOLDER#FILE.gguf
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import torch

import longshot as ls
from longshot.evaluate import Sayer

HERE = Path(__file__).parent


def main(name: str) -> None:
    """Print the share of wrong sums, by their probability, and some of them."""
    torch.set_num_threads(1)
    model = ls.load_model(name)
    inputs = ls.load_inputs(HERE / "sums.toml", model)
    tokens, log_prob = inputs.listed(0, inputs.count)
    said = Sayer(model, inputs)(tokens, 3).path
    wrong, share = [], 0.0
    for row, path, log_p in zip(tokens.tolist(), said.tolist(), log_prob.tolist(), strict=True):
        written = model.tokenizer.decode([token for token in row[1:] if token >= 0] + path)
        a, b, total, *_ = (*map(int, re.findall(r"\d+", written)), -1)
        if a + b != total:
            wrong.append(written)
            share += math.exp(log_p)
    print(f"{len(wrong)} of {inputs.count} sums are wrong, {share:.3f} of the probability:")
    print(wrong[:: max(1, len(wrong) // 8)])


if __name__ == "__main__":
    main(sys.argv[1])
