from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from longshot.errors import LongshotError
from longshot.inputs import ProductInputs, load_inputs
from longshot.models import Model
from tests.toys import toy_network


def test_by_name(model: Model, eight: dict[str, ProductInputs]) -> None:
    inputs = load_inputs("camel", model)
    assert inputs.name == "camel"
    assert inputs.fingerprint == eight["camel"].fingerprint


def test_by_path(model: Model, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('[inputs]\nname = "mine"\ntext = "a{x}"\n[slots.x]\nchoices = ["b", "c"]\n')
    for path in (file, str(file)):
        assert load_inputs(path, model).name == "mine"


def test_a_corpus_changes_the_law(
    model: Model, eight: dict[str, ProductInputs], tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("class ErrorName: pass")
    inputs = load_inputs("camel", model, corpus={"python": [tmp_path / "a.py"]})
    assert inputs.positions[1].size < eight["camel"].positions[1].size


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("enlish", "did you mean 'english'"),
        ("nowhere.toml", r"template nowhere.toml cannot be read: No such file or directory\."),
        ("a\0.toml", "cannot be read: embedded null byte"),
    ],
)
def test_what_is_not_there(model: Model, name: str, said: str) -> None:
    with pytest.raises(LongshotError, match=said):
        load_inputs(name, model)


def test_inputs_must_fit_the_context(model: Model) -> None:
    with pytest.raises(LongshotError, match=r"'camel' are 33 tokens long.*at most 32"):
        load_inputs("camel", dataclasses.replace(model, context=32))


def test_inputs_must_fit_the_embedding(model: Model) -> None:
    small = dataclasses.replace(model, network=toy_network(layers=1, vocab=1000, context=40))
    with pytest.raises(LongshotError, match="embeds only 1000 tokens"):
        load_inputs("camel", small)
