"""On the shipped models, plain and conditional sampling agree, and the shipped truth with both."""

from __future__ import annotations

import pytest
import torch

from longshot.estimate import Cell
from longshot.inputs import load_inputs
from longshot.models import load_model
from longshot.models.checkpoints import ZOO
from longshot.names import ZOO_NAMES
from longshot.truth import Truth, run_span
from longshot.truth.tally import Kind, Span, Stream

PAIRS = [(model, inputs) for model in ZOO_NAMES for inputs in ("hex", "camel", "icl")]


def sampled(cell: Cell, kind: Kind, units: int) -> Truth:
    return Truth(cell.key, {kind: run_span(cell, Span(Stream(kind, 11, 0), 0, units)).tally})


@pytest.mark.parametrize(("model", "inputs"), PAIRS)
def test_plain_and_conditional_sampling_agree(
    model: str, inputs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """z-scores of all tokens that plain sampling saw 20 times, the rest counted as one event.

    Fewer than 100 of them a cell, each beyond 5 with probability below 1e-5 with the skew of such
    counts: over all nine cells a false alarm in fewer than one run in a hundred.
    """
    if not (ZOO / model / "model.safetensors").is_file():
        pytest.skip(f"{model} is not trained yet")
    monkeypatch.setattr("longshot.truth.sampling.UNIT", 1024)
    language_model = load_model(model)
    cell = Cell(language_model, load_inputs(inputs, language_model))
    plain = sampled(cell, "brute", 4)
    ours = sampled(cell, "conditional", 50)
    assert (
        ours.samples["conditional"] >= 400
    )  # prefixes enough for the spread between them to be known
    seen = plain.tallies["brute"].total >= 20
    assert 3 <= int(seen.sum()) < 100
    difference = (plain.probability - ours.probability)[seen]
    # Plain sampling's error with the conditional p: its own count is low where its error is.
    p = ours.probability[seen]
    variance = p * (1 - p) / plain.leaves + ours.standard_error[seen].square()
    z = difference / variance.sqrt()
    assert float(z.abs().max()) < 5
    assert torch.isfinite(z).all()
    rest = abs(float(plain.probability[~seen].sum() - ours.probability[~seen].sum()))
    assert rest < 5 * float((variance.sum() + 1 / plain.leaves) ** 0.5)
