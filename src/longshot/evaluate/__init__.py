"""One pass over inputs, and the exact argmax of what comes out of it."""

from longshot.evaluate.argmax import (
    RIVALS,
    UNEMBED_BLOCK,
    Decider,
    Winners,
    readout,
    winners,
)
from longshot.evaluate.blocks import activations, macs
from longshot.evaluate.enumeration import Enumeration, Leaves, tokens_to_run
from longshot.evaluate.evaluator import Evaluator
from longshot.evaluate.greedy import Continue, Outcomes, PlainContinuations, outcomes
from longshot.evaluate.judged import Judged
from longshot.evaluate.passes import Evaluation, Spent
from longshot.evaluate.readers import Decision
from longshot.evaluate.sampled import Sampled
from longshot.evaluate.tails import Tails
from longshot.evaluate.texts import Sayer, TextEvent, follow

__all__ = [
    "RIVALS",
    "UNEMBED_BLOCK",
    "Continue",
    "Decider",
    "Decision",
    "Enumeration",
    "Evaluation",
    "Evaluator",
    "Judged",
    "Leaves",
    "Outcomes",
    "PlainContinuations",
    "Sampled",
    "Sayer",
    "Spent",
    "Tails",
    "TextEvent",
    "Winners",
    "activations",
    "follow",
    "macs",
    "outcomes",
    "readout",
    "tokens_to_run",
    "winners",
]
