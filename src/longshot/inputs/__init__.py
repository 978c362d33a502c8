"""What the model is fed: distributions over token sequences with an exact `log_prob`."""

from __future__ import annotations

from pathlib import Path

from longshot.errors import LongshotError
from longshot.inputs.base import (
    Finite,
    Group,
    Inputs,
    Listed,
    PositionSummary,
    Product,
    as_finite,
    as_product,
    fixed_beginning,
    is_finite,
    is_product,
    log_prob,
    refuse_unreadable,
)
from longshot.inputs.catalogue import CATALOGUE, build
from longshot.inputs.changed import ChangedInputs, Law, UnchangedInputs
from longshot.inputs.corpus import Corpus
from longshot.inputs.counts import Counts, load_counts
from longshot.inputs.product import ProductInputs
from longshot.inputs.template import read_template
from longshot.inputs.tilt import Draws, draw, tilted
from longshot.inputs.tokens import TokenDistribution
from longshot.inputs.tree import Branches, Tree
from longshot.models import Model, load_model

__all__ = [
    "CATALOGUE",
    "Branches",
    "ChangedInputs",
    "Corpus",
    "Counts",
    "Draws",
    "Finite",
    "Group",
    "Inputs",
    "Law",
    "Listed",
    "PositionSummary",
    "Product",
    "ProductInputs",
    "TokenDistribution",
    "Tree",
    "UnchangedInputs",
    "as_finite",
    "as_product",
    "build",
    "draw",
    "fixed_beginning",
    "is_finite",
    "is_product",
    "load_counts",
    "load_inputs",
    "log_prob",
    "read_template",
    "refuse_unreadable",
    "tilted",
]


def load_inputs(
    name_or_path: str | Path | Inputs, model: str | Path | Model, corpus: Corpus | None = None
) -> Inputs:
    """One of the catalogue's distributions by its name, or a template from a `.toml` file.

    Inputs that are there already are checked against the model and given back.

    Token frequencies are the shipped ones where the model's tokenizer is, else counted in
    `corpus`: files, `{"english": files, …}`, or `"paper"` for the paper's own texts.
    """
    model = load_model(model)
    if not isinstance(name_or_path, str | Path):
        if not isinstance(name_or_path, Inputs):
            raise LongshotError(f"Inputs are a name, a .toml file or inputs, not {name_or_path!r}.")
        refuse_unreadable(name_or_path, model)
        return name_or_path
    counts = load_counts(model.tokenizer, corpus)
    if str(name_or_path).endswith(".toml"):
        inputs = read_template(Path(name_or_path), model.tokenizer, counts)
    else:
        inputs = build(str(name_or_path), model.tokenizer, counts)
    refuse_unreadable(inputs, model)
    return inputs
