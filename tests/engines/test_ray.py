"""Ray gives the same shards, also when a worker is killed in the middle of one."""

from __future__ import annotations

import builtins
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from longshot.engines import LocalEngine, make_engine
from longshot.engines.ray import RayEngine
from longshot.errors import LongshotError
from longshot.truth.shards import ShardRunner
from longshot.truth.tally import KINDS, Span, Stream
from tests.engines.work import DiesOnce, complain
from tests.truth.toys import toy_cell

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="the extra 'ray' is not installed"
    ),
    pytest.mark.filterwarnings("ignore"),  # Ray's own, which we cannot mend
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayEngine]:
    """One local cluster for all tests here: starting one takes seconds."""
    import ray

    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=50
    )
    yield RayEngine(2)
    ray.shutdown()


def tasks() -> list[tuple[int, Span]]:
    return [(0, Span(Stream(kind, 0, 0), i, i + 2)) for kind in KINDS for i in range(0, 6, 2)]


def test_ray_gives_the_same_shards_although_a_worker_is_killed(
    cluster: RayEngine, tmp_path: Path
) -> None:
    runner, flag = ShardRunner((toy_cell(),)), tmp_path / "killed"
    alone = {shard.span: shard.tally for _, shard in LocalEngine(1).map(runner, tasks())}
    found = list(cluster.map(DiesOnce(runner, flag), tasks()))
    assert flag.exists()
    assert sorted(shard.span for _, shard in found) == sorted(alone)
    for _, shard in found:
        assert torch.equal(shard.tally.total, alone[shard.span].total)
        assert torch.equal(shard.tally.squares, alone[shard.span].squares)
        assert shard.tally.near_ties == alone[shard.span].near_ties


def test_what_goes_wrong_in_a_task_is_told(cluster: RayEngine) -> None:
    with pytest.raises(LongshotError, match=r"^item 7 is not to my liking$"):
        list(cluster.map(complain, [7]))


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_ray(name: str, *rest: Any, **named: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_ray)
    with pytest.raises(LongshotError, match=r"pip install 'longshot-lm\[ray\]'"):
        list(make_engine("ray").map(complain, [1]))


def test_whatever_ray_says_when_it_cannot_start_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray

    def slow(**_: Any) -> None:
        raise Exception("The current node timed out during startup.\nMore of it.")

    monkeypatch.setattr(ray, "init", slow)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(LongshotError, match=r"could not be started here: .* during startup\.$"):
        list(RayEngine(2).map(complain, [1]))


def test_a_place_that_ray_cannot_use_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "missing"))
    with pytest.raises(LongshotError, match=r"could not be started here: No such file"):
        list(RayEngine(2).map(complain, [1]))
