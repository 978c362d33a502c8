"""How likely is your language model's unlikeliest output?"""

from longshot.api import estimate, estimate_many, estimate_steps
from longshot.errors import LongshotError
from longshot.estimate import Cost, Estimate, Job, Problem, Witness
from longshot.evaluate import Judged, Sampled
from longshot.events import Continuation, Event, Matches, TokenIn, TokenIs
from longshot.inputs import (
    GeneratedInputs,
    Inputs,
    ProductInputs,
    SlotInputs,
    TokenDistribution,
    generated,
    load_inputs,
    template,
)
from longshot.look import Sayings, look
from longshot.methods import METHODS, Method
from longshot.models import Model, load_model
from longshot.study import Run, load_run
from longshot.truth import Truth, load_truth, pick_targets

__all__ = [
    "METHODS",
    "Continuation",
    "Cost",
    "Estimate",
    "Event",
    "GeneratedInputs",
    "Inputs",
    "Job",
    "Judged",
    "LongshotError",
    "Matches",
    "Method",
    "Model",
    "Problem",
    "ProductInputs",
    "Run",
    "Sampled",
    "Sayings",
    "SlotInputs",
    "TokenDistribution",
    "TokenIn",
    "TokenIs",
    "Truth",
    "Witness",
    "estimate",
    "estimate_many",
    "estimate_steps",
    "generated",
    "load_inputs",
    "load_model",
    "load_run",
    "load_truth",
    "look",
    "pick_targets",
    "template",
]
