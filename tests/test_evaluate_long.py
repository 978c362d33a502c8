"""The exact argmax on ten times the activations, from all eight distributions."""

from __future__ import annotations

import pytest

from longshot.inputs import CATALOGUE
from longshot.models import load_model
from longshot.names import ZOO_NAMES
from tests.test_evaluate import check_argmax, real_activations


@pytest.mark.long
@pytest.mark.parametrize("name", ZOO_NAMES)
def test_the_lazy_argmax_is_exact_on_a_million_activations(name: str) -> None:
    model = load_model(name)
    v = real_activations(model, 1_000_000, tuple(CATALOGUE))
    assert len(v) == 1_000_000
    near_ties, hits = check_argmax(model, v)
    assert near_ties < 20_000
    assert hits > 1000
