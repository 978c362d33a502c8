"""Ground truth: the probability of every token, with its standard error."""

from longshot.truth.result import (
    NoiseFloor,
    PickedTargets,
    Truth,
    noise_floor,
    pick_certified,
    pick_targets,
)
from longshot.truth.shards import ShardRunner, run_span
from longshot.truth.store import Store
from longshot.truth.tables import load_truth

__all__ = [
    "NoiseFloor",
    "PickedTargets",
    "ShardRunner",
    "Store",
    "Truth",
    "load_truth",
    "noise_floor",
    "pick_certified",
    "pick_targets",
    "run_span",
]
