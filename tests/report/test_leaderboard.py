"""The leaderboard: ranked by the test half, on the same targets, and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longshot.errors import LongshotError
from longshot.report.leaderboard import leaderboard
from longshot.study.results import finite
from tests.report import synthetic
from tests.report.synthetic import make_run

INPUTS = ("hex", "caps", "icl")


def write_rows(folder: Path) -> None:
    """One run of three methods, as if two of them were ours and one somebody else's."""
    run = make_run(("mini-1l",), INPUTS, ("itgis", "mhis", "mine"), targets=10)
    ours, mine = [], []
    for record in run.records():
        rows = mine if record["method"] == "mine" else ours
        rows.append(json.dumps(finite(record)) + "\n")
    (folder / "ours.jsonl").write_text("".join(ours))
    (folder / "mine.jsonl").write_text("".join(mine))


def write_entries(folder: Path, *entries: dict[str, Any]) -> Path:
    parts = [
        "[[entries]]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in each.items())
        for each in entries
    ]
    (folder / "leaderboard.toml").write_text("\n\n".join(parts) + "\n")
    return folder / "leaderboard.toml"


def places(page: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return [[part.strip().replace("*", "") for part in line] for line in lines[2:]]


@pytest.fixture
def ours(tmp_path: Path) -> dict[str, Any]:
    write_rows(tmp_path)
    return {"rows": "ours.jsonl", "who": "longshot", "version": "0.1.0"}


MINE = {"rows": "mine.jsonl", "who": "A. <b>", "version": "mine 2", "methods": ["mine"]}


def test_a_better_method_takes_the_first_place(
    tmp_path: Path, ours: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(synthetic.NO_HIT, "mine", 0.0)
    for noise, is_first in ((0.02, True), (6.0, False)):
        monkeypatch.setitem(synthetic.NOISE, "mine", noise)
        write_rows(tmp_path)
        page = leaderboard(write_entries(tmp_path, ours, MINE))
        found = places(page)
        assert (found[0][1] == "mine") is is_first
        assert [row[0] for row in found] == ["1", "2", "3", "4"]
        assert {row[1] for row in found} == {"constant", "itgis", "mhis", "mine"}
        losses = [float(row[2]) for row in found]
        assert losses == sorted(losses)
    assert "<b>" not in page
    assert "2 cells of mini-1l, 20 targets" in page  # hex is there to be tuned on


def test_who_lacks_some_targets_has_no_place(tmp_path: Path, ours: dict[str, Any]) -> None:
    lines = (tmp_path / "mine.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "mine.jsonl").write_text("".join(li for li in lines if '"icl"' not in li))
    found = places(leaderboard(write_entries(tmp_path, ours, MINE)))
    assert found[-1][:2] == ["–", "mine"]
    assert [row[0] for row in found[:-1]] == ["1", "2", "3"]


def test_another_truth_is_refused(tmp_path: Path, ours: dict[str, Any]) -> None:
    lines = (tmp_path / "mine.jsonl").read_text().splitlines()
    changed = [json.dumps({**json.loads(line), "truth": 1e-5}) for line in lines]
    (tmp_path / "mine.jsonl").write_text("\n".join(changed))
    with pytest.raises(LongshotError, match="judged by other targets of mini-1l on hex"):
        leaderboard(write_entries(tmp_path, ours, MINE))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": "none.jsonl"}, "none.jsonl"),
        ({"by": "me"}, "is no key of an entry"),
        ({"who": ""}, "entries.0.who"),
        ({"methods": ["other"]}, "holds no method 'other'"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, ours: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(LongshotError, match=message):
        leaderboard(write_entries(tmp_path, {**ours, **change}))


def test_no_entries_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(LongshotError, match="entries"):
        leaderboard(tmp_path / "empty.toml")
