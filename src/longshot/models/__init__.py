"""Language models seen from their last position."""

from longshot.models.base import Model, Network, PrefixNetwork, SizedNetwork, in_blocks
from longshot.models.checkpoints import ModelInfo, available, load_model
from longshot.models.products import dense
from longshot.models.tokenizer import Tokenizer

__all__ = [
    "Model",
    "ModelInfo",
    "Network",
    "PrefixNetwork",
    "SizedNetwork",
    "Tokenizer",
    "available",
    "dense",
    "in_blocks",
    "load_model",
]
