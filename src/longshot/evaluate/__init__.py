"""One pass over inputs, and the exact argmax of what comes out of it."""

from longshot.evaluate.argmax import (
    RIVALS,
    UNEMBED_BLOCK,
    Decider,
    Winners,
    rounding_margin,
    winners,
)
from longshot.evaluate.evaluator import Evaluation, Evaluator, Spent, activations
from longshot.evaluate.greedy import Followed, Plainly, follow, smallest_gap
from longshot.evaluate.paths import PathEvaluator, evaluator_for
from longshot.evaluate.tails import Tails

__all__ = [
    "RIVALS",
    "UNEMBED_BLOCK",
    "Decider",
    "Evaluation",
    "Evaluator",
    "Followed",
    "PathEvaluator",
    "Plainly",
    "Spent",
    "Tails",
    "Winners",
    "activations",
    "evaluator_for",
    "follow",
    "rounding_margin",
    "smallest_gap",
    "winners",
]
