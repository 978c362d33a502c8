"""One pass over inputs, and the exact argmax of what comes out of it."""

from longshot.evaluate.argmax import (
    RIVALS,
    UNEMBED_BLOCK,
    Decider,
    Winners,
    rounding_margin,
    winners,
)
from longshot.evaluate.evaluator import Evaluation, Evaluator, activations

__all__ = [
    "RIVALS",
    "UNEMBED_BLOCK",
    "Decider",
    "Evaluation",
    "Evaluator",
    "Winners",
    "activations",
    "rounding_margin",
    "winners",
]
