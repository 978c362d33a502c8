"""What every test runs under: shape checks, one thread, and no global seed to lean on.

The import hook puts jaxtyping's shape check (with beartype for the rest of each annotation) around
every function and dataclass of the package. It only works on modules that are imported after it,
so it comes before anything else here. `tests/test_shapes.py` proves that it is on.
"""

from __future__ import annotations

import os
import sys

from tests import typechecker

assert "longshot" not in sys.modules, "longshot was imported before its shape checks were installed"
typechecker.install("longshot")

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from longshot.models import Model  # noqa: E402
from tests.toys import toy_model  # noqa: E402

# Two threads on two shared cores slow small matrices down, and sums would depend on the machine.
torch.set_num_threads(1)
torch.set_deterministic_debug_mode("error")  # as use_deterministic_algorithms, without its compiler


# Timings never decide a test, and CI tries the same examples every time.
hypothesis.settings.register_profile("longshot", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("longshot")


@pytest.fixture
def generator() -> torch.Generator:
    """The randomness of one test; nothing may depend on torch's global state."""
    return torch.Generator().manual_seed(20241017)


@pytest.fixture(scope="session")
def toy() -> Model:
    """The usual toy, shared: its weights are never written to."""
    return toy_model()
