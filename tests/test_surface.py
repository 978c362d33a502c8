"""The public names and their signatures change on purpose only: see `tests/surface.py`."""

from __future__ import annotations

import pytest

import longshot as ls
from tests.surface import difference, surface


def test_the_public_surface_is_what_was_stored() -> None:
    assert difference() == ""


def test_a_changed_signature_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a new default, a name that went, a new member."""

    def load_truth(model: object, inputs: object, kind: str = "plain") -> None: ...

    monkeypatch.setattr(ls, "load_truth", load_truth)
    assert "+load_truth(model: 'object', inputs: 'object', kind: 'str' = 'plain')" in difference()
    monkeypatch.undo()
    monkeypatch.setattr(ls, "__all__", [name for name in ls.__all__ if name != "pick_targets"])
    assert "-pick_targets(" in difference()
    monkeypatch.undo()
    monkeypatch.setattr(ls.Estimate, "certainty", lambda self: 1.0, raising=False)
    assert "+    certainty(self)" in difference()


def test_it_lists_verbs_classes_and_settings() -> None:
    lines = surface().splitlines()
    for beginning in ("estimate(", "class Estimate(", "    to_dict(", "method itgis(", "METHODS: "):
        assert any(line.startswith(beginning) for line in lines), beginning
