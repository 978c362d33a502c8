"""Whether freed memory is kept, by the page faults of a process of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from longshot.evaluate import activations
from longshot.inputs import load_inputs
from longshot.models import load_model

torch.set_num_threads(1)
model = load_model("mini-2l")
tokens = load_inputs("camel", model).sample(512, torch.Generator().manual_seed(0))
activations(model, tokens)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
activations(model, tokens)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

glibc_only = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")


def faults(**told: str) -> int:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", FAULTS]
    run = subprocess.run(command, env=kept | told, capture_output=True, text=True, check=True)
    return int(run.stdout)


@glibc_only
def test_a_second_pass_takes_no_new_memory() -> None:
    assert faults() < 100


@glibc_only
def test_what_the_environment_says_is_left_as_it_is() -> None:
    assert faults(MALLOC_TRIM_THRESHOLD_="131072") > 1000
