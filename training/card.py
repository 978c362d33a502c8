"""The model card beside the shipped weights, written from what was measured."""

from pathlib import Path
from typing import Any

from training.files import write_text
from training.sources import LANGUAGES, MIX

INTRODUCTION = """\
# The zoo: mini-1l, mini-2l, mini-4l

Small transformers that ship with `longshot`, so that every example runs without a download.
They have the paper's architecture (pre-layer-norm, learned positions, exact GELU, attention
biases, untied unembedding) at a size where a rare output can be measured on a laptop: width 64,
4 heads of 16, MLP 256, context 64, vocabulary 4096, with 1, 2 and 4 layers. They are for
studying estimators of rare outputs, not for writing: the samples below are fragments, no more.

- Licence of the weights: MIT. No text is shipped; the sources and their licences are below.
- One byte-level BPE tokenizer, `tokenizer.json`, which splits every digit.
- Every training window is BOS and 63 tokens; give the models a BOS first.
"""

COMMANDS = """\
## How they were made

The recipe is `training/` of the repository; its README has the steps. In short:

    python -m training.fetch && python -m training.tokenizer && python -m training.tokenise
    for name in mini-1l mini-2l mini-4l; do python -m training.train $name; done
    python -m training.evaluate && python -m training.zoo && python -m training.count
"""


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def _block(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))


def write_card(path: Path, result: dict[str, Any], manifest: dict[str, dict[str, Any]]) -> None:
    """Losses with their errors, training, samples, sources; `result` is `evaluate`'s."""
    languages = list(LANGUAGES)
    losses = [
        [name, *(str(row[language]) for language in languages)]
        for name, row in result["losses"].items()
    ]
    differences = [
        [name, *(str(row[language]) for language in languages)]
        for name, row in result["differences"].items()
    ]
    training = [
        [
            name,
            f"{run['training_tokens'] / 1e6:.1f} million",
            str(run["settings"]["steps"]),
            f"{run['settings']['peak_rate']:g}",
        ]
        for name, run in result["training"].items()
    ]
    windows = ", ".join(f"{number} {language}" for language, number in result["windows"].items())
    mix = ", ".join(f"{share:.0%} {language}" for language, share in MIX.items())
    sources = [
        [key, entry["package"], f"{entry['bytes'] / 1e6:.2f}", entry["licence"]]
        for key, entry in sorted(manifest.items())
    ]
    parts = [
        INTRODUCTION,
        "## Held-out loss\n",
        f"Nats a token on windows of 63 predictions ({windows}),\n"
        "± one standard error from the spread between blocks of 20 windows. The text is one piece\n"
        "in fifty, of about 2000 characters, chosen by a hash; neither models nor tokenizer\n"
        "nor token counts have seen it, but it comes from the same works as what they saw.\n",
        _table(["model", *languages], losses),
        "Paired differences, on the same windows:\n",
        _table(["difference", *languages], differences),
        "## Training\n",
        f"Windows by language: {mix}.\n"
        "AdamW (0.9, 0.95), batches of 128 windows, linear warm-up, cosine decay to 2 % of the\n"
        "peak rate, gradients clipped at 1, weight decay 0.01 on matrices, float32, seed 0.\n",
        _table(["model", "tokens", "steps", "peak rate"], training),
        COMMANDS,
        "## Samples\n",
        "Temperature 0.8, seed 0, the first sample drawn; each begins with its prompt.\n",
    ]
    for name, texts in result["samples"].items():
        for language, text in texts.items():
            parts.append(f"{name}, {language}:\n\n{_block(text)}\n")
    parts += [
        "## Sources\n",
        "Clean text in megabytes, before the held-out part is taken away.\n",
        _table(["source", "package", "MB", "licence as stated"], sources),
    ]
    write_text(path, "\n".join(parts))
