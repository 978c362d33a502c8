"""What a real model says after every sentence about a household, and what `transformers` says.

    python examples/smollm2/look.py FOLDER/FILE.gguf [--all]

The next word after 168 prompts, those of household.toml with fewer things: looked at as a tree of
prefixes, and each prompt by itself in `transformers` alone. With --all the 18,144 prompts of the
template are looked at too. Prints lines of JSON: seconds of one processor, gigabytes so far.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import tomllib
from collections import defaultdict
from pathlib import Path

import torch

import longshot as ls
from longshot.inputs import Finite

HERE = Path(__file__).parent


def main(file: Path, everything: bool) -> None:
    """Look, compare, print."""
    torch.set_num_threads(1)
    start = time.process_time()
    model = ls.load_model(f"hf:{file.parent}#{file.name}")
    say("load", start, parameters=model.embedding.numel())
    text, slots = household()
    few = {"do": slots["do"], "thing": slots["thing"][:4], "other": slots["other"][:3]}
    inputs, start = ls.template(model, text, **few), time.process_time()
    ours = {output.tokens[0]: output.probability for output in ls.look(model, inputs).outputs}
    say("look", start, inputs=inputs.count, outputs=len(ours))
    start, theirs = time.process_time(), table(file, inputs)
    apart = sum(abs(ours.get(t, 0.0) - theirs.get(t, 0.0)) for t in {*ours, *theirs}) / 2
    say("transformers", start, inputs=inputs.count, outputs=len(theirs), apart=apart)
    if everything:
        inputs, start = ls.load_inputs(HERE / "household.toml", model), time.process_time()
        say("look", start, inputs=inputs.count, outputs=len(ls.look(model, inputs).outputs))


def household() -> tuple[str, dict[str, list[str]]]:
    """The template's text and the choices of its slots, all equally likely."""
    parsed = tomllib.loads((HERE / "household.toml").read_text())
    slots = {name: list(slot["choices"]) for name, slot in parsed["slots"].items()}
    return parsed["inputs"]["text"], slots


@torch.no_grad()
def table(file: Path, inputs: Finite) -> dict[int, float]:
    """The probability of each next token by `transformers`, one prompt at a time."""
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    found: dict[int, float] = defaultdict(float)
    for tokens, log_prob in zip(*inputs.listed(0, inputs.count), strict=True):
        logits = theirs(input_ids=tokens[tokens >= 0][None], use_cache=False).logits[0, -1]
        found[int(logits.argmax())] += float(log_prob.exp())
    return found


def say(what: str, start: float, **known: float) -> None:
    """A line about what was done since `start`."""
    seconds = time.process_time() - start
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line = {"what": what, "seconds": round(seconds, 1), "gigabytes": round(gigabytes, 2), **known}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--all" in sys.argv)
