"""Ground truth: the probability of every token, with its standard error."""

from longshot.truth.result import NoiseFloor, Targets, Truth, noise_floor, pick_targets
from longshot.truth.shards import Cell, Runner, run_span
from longshot.truth.store import CellName, Store
from longshot.truth.tables import load_truth

__all__ = [
    "Cell",
    "CellName",
    "NoiseFloor",
    "Runner",
    "Store",
    "Targets",
    "Truth",
    "load_truth",
    "noise_floor",
    "pick_targets",
    "run_span",
]
