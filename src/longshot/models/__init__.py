"""Language models seen from their last position."""

from longshot.models.base import CachedNetwork, Memory, Model, Network, SizedNetwork, in_blocks
from longshot.models.checkpoints import ModelInfo, available, load_model
from longshot.models.growing import Growing
from longshot.models.products import dense
from longshot.models.tokenizer import Tokenizer

__all__ = [
    "CachedNetwork",
    "Growing",
    "Memory",
    "Model",
    "ModelInfo",
    "Network",
    "SizedNetwork",
    "Tokenizer",
    "available",
    "dense",
    "in_blocks",
    "load_model",
]
