"""The run-time shape checks are on: without them, every annotation in the package is a comment."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from jaxtyping import TypeCheckError

from longshot.inputs.tokens import TokenDistribution
from longshot.models import Model, Tokenizer
from tests.toys import toy_tokenizer


def test_a_function_with_a_wrong_shape_is_refused(toy: Model) -> None:
    assert toy.network.activation(torch.zeros(2, 3, 8)).shape == (2, 8)
    with pytest.raises(TypeCheckError):
        toy.network.activation(torch.zeros(3, 8))


def test_a_function_with_a_wrong_dtype_is_refused(toy: Model) -> None:
    with pytest.raises(TypeCheckError):
        toy.embed(torch.zeros(2, 3))


def test_a_dataclass_with_disagreeing_shapes_is_refused() -> None:
    support, log_probs = torch.arange(2), torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    assert TokenDistribution(support, log_probs).size == 2
    with pytest.raises(TypeCheckError):
        TokenDistribution(support[:1], log_probs)


def test_plain_annotations_are_checked_too() -> None:
    with pytest.raises(TypeCheckError):
        toy_tokenizer().single(3)  # type: ignore[arg-type]


def test_users_do_not_pay_for_the_checks() -> None:
    code = (
        "import sys; from longshot.models import Tokenizer; "
        "assert not hasattr(Tokenizer.single, '__wrapped__') and 'beartype' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_same_look_under_the_tests_finds_the_wrapper() -> None:
    assert hasattr(Tokenizer.single, "__wrapped__")
