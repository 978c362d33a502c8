"""What the model is fed: distributions over token sequences with an exact `log_prob`."""

from __future__ import annotations

from pathlib import Path

from longshot.errors import LongshotError
from longshot.inputs.catalogue import CATALOGUE, build
from longshot.inputs.corpus import Corpus
from longshot.inputs.counts import Counts, load_counts
from longshot.inputs.product import Group, PositionSummary, ProductInputs
from longshot.inputs.template import read_template
from longshot.inputs.tokens import TokenDistribution
from longshot.models import Model, load_model

__all__ = [
    "CATALOGUE",
    "Corpus",
    "Counts",
    "Group",
    "PositionSummary",
    "ProductInputs",
    "TokenDistribution",
    "build",
    "load_counts",
    "load_inputs",
    "read_template",
]


def load_inputs(
    name_or_path: str | Path, model: str | Path | Model, corpus: Corpus | None = None
) -> ProductInputs:
    """One of the catalogue's distributions by its name, or a template from a `.toml` file.

    Token frequencies are the shipped ones where the model's tokenizer is, else counted in
    `corpus`: files, `{"english": files, …}`, or `"paper"` for the paper's own texts.
    """
    model = load_model(model)
    counts = load_counts(model.tokenizer, corpus)
    if str(name_or_path).endswith(".toml"):
        inputs = read_template(Path(name_or_path), model.tokenizer, counts)
    else:
        inputs = build(str(name_or_path), model.tokenizer, counts)
    if inputs.length > model.context:
        raise LongshotError(
            f"The inputs {inputs.name!r} are {inputs.length} tokens long, but the model "
            f"{model.name!r} reads at most {model.context}."
        )
    highest = max(int(distribution.support[-1]) for distribution in inputs.positions)
    if highest >= len(model.embedding):
        raise LongshotError(
            f"The inputs {inputs.name!r} use token {highest}, but the model {model.name!r} embeds "
            f"only {len(model.embedding)} tokens; its tokenizer is not the one it was trained with."
        )
    return inputs
