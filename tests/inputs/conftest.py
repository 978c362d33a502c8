"""The shipped tokenizer with its frequencies, and a cache folder that is not the user's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from longshot.inputs import Counts, ProductInputs, build, load_counts
from longshot.inputs.catalogue import CATALOGUE
from longshot.models import Model, Tokenizer
from longshot.models.checkpoints import ZOO
from tests.toys import toy_network


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shipped() -> Tokenizer:
    return Tokenizer.from_file(ZOO / "tokenizer.json")


@pytest.fixture(scope="session")
def counts(shipped: Tokenizer) -> Counts:
    return load_counts(shipped)


@pytest.fixture(scope="session")
def eight(shipped: Tokenizer, counts: Counts) -> dict[str, ProductInputs]:
    return {name: build(name, shipped, counts) for name in CATALOGUE}


@pytest.fixture(scope="session")
def model(shipped: Tokenizer) -> Model:
    """A network of no consequence behind the shipped tokenizer."""
    network = toy_network(layers=1, vocab=shipped.vocab_size, context=40)
    return Model("toy-shipped", network, shipped, context=40)
