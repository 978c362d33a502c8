"""Killed workers and drivers lose nothing; `python -m tests.faults.kills` tries hundreds."""

from __future__ import annotations

import pytest

from tests.faults.kills.trial import Case, Killed


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("kills"))


@pytest.mark.long
@pytest.mark.parametrize("moment", ["start", "middle", "end"])
@pytest.mark.parametrize("victim", ["driver", "local worker"])
@pytest.mark.parametrize("work", ["truth", "study"])
def test_a_kill_loses_nothing(work: str, victim: str, moment: str, killed: Killed) -> None:
    assert killed.outcome(Case(0, work, victim, moment), seed=1) in ("killed", "done before")


@pytest.mark.long
def test_what_is_lost_would_be_seen(killed: Killed) -> None:
    """Negative control: with a shard more expected, a kill is told to have lost it."""
    expected = killed.expected["truth"]
    killed.expected["truth"] = {**expected, "another": "shard"}
    came = killed.outcome(Case(0, "truth", "driver", "middle"), seed=1)
    killed.expected["truth"] = expected
    assert came == "run again it leaves something else"
