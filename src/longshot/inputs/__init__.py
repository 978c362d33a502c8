"""What the model is fed: distributions over token sequences with an exact `log_prob`."""

from __future__ import annotations

from pathlib import Path

from longshot.errors import LongshotError
from longshot.files import read_text
from longshot.inputs.base import (
    NOTHING,
    Finite,
    Group,
    Inputs,
    Listed,
    PositionSummary,
    Product,
    as_finite,
    as_product,
    by_length,
    continued,
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
from longshot.inputs.generated import GeneratedInputs
from longshot.inputs.noisy import NoisyInputs, with_noise
from longshot.inputs.product import ProductInputs
from longshot.inputs.rows import is_rows
from longshot.inputs.slots import Piece, SlotInputs
from longshot.inputs.template import read_template, template
from longshot.inputs.tilt import (
    Draws,
    Scores,
    boundary_temperature,
    draw,
    log_tilt,
    tilted,
    token_scores,
)
from longshot.inputs.tokens import TokenDistribution
from longshot.inputs.tree import Branches, Tree
from longshot.inputs.writing import generated, read_generated
from longshot.models import Model, load_model
from longshot.toml import TomlFile

__all__ = [
    "CATALOGUE",
    "NOTHING",
    "Branches",
    "ChangedInputs",
    "Corpus",
    "Counts",
    "Draws",
    "Finite",
    "GeneratedInputs",
    "Group",
    "Inputs",
    "Law",
    "Listed",
    "NoisyInputs",
    "Piece",
    "PositionSummary",
    "Product",
    "ProductInputs",
    "Scores",
    "SlotInputs",
    "TokenDistribution",
    "Tree",
    "UnchangedInputs",
    "as_finite",
    "as_product",
    "boundary_temperature",
    "build",
    "by_length",
    "continued",
    "draw",
    "fixed_beginning",
    "generated",
    "is_finite",
    "is_product",
    "load_counts",
    "load_inputs",
    "log_prob",
    "log_tilt",
    "read_template",
    "refuse_unreadable",
    "template",
    "tilted",
    "token_scores",
    "with_noise",
]


def load_inputs(
    name_or_path: str | Path | Inputs, model: str | Path | Model, corpus: Corpus | None = None
) -> Inputs:
    """One of the catalogue's distributions by its name, or one's own from a file.

    That is a template or a writer, `.toml`, or texts, such as `rows.jsonl#prompt`.
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
    inputs: Inputs
    if str(name_or_path).endswith(".toml"):
        path = Path(name_or_path)
        file = TomlFile.parse(read_text("template", path), str(path))
        if "generated" in file.parsed:
            inputs = read_generated(file, model)
        else:
            inputs = read_template(path, model.tokenizer, counts)
    elif is_rows(str(name_or_path)):
        inputs = template(model, "{row}", name=str(name_or_path), row=Path(name_or_path))
    else:
        inputs = build(str(name_or_path), model.tokenizer, counts)
    refuse_unreadable(inputs, model)
    return inputs
