"""The toys of `longshot.testing`, for tests of anything above models."""

from longshot.testing import LETTERS, toy_model, toy_network, toy_tokenizer

__all__ = ["LETTERS", "toy_model", "toy_network", "toy_tokenizer"]
