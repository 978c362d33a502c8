"""Small units, so that a shard of a toy takes milliseconds."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longshot.truth.sampling.UNIT", 64)
