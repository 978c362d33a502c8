"""Messages as the text that a chat model reads."""

from __future__ import annotations

from collections.abc import Sequence

from longshot.errors import LongshotError
from longshot.models.tokenizer import Tokenizer

Messages = Sequence[tuple[str, str]]
"""Pairs of a role and a content."""


def rendered(tokenizer: Tokenizer, messages: Messages) -> str:
    """What the model's own chat template makes of messages, up to where the assistant speaks.

    A last message of the assistant is left open, to be continued.
    """
    if tokenizer.chat is None:
        raise LongshotError("Messages need a chat template, which this model's tokenizer lacks.")
    if not messages:
        raise LongshotError("A chat has one message or more.")
    return tokenizer.chat([{"role": role, "content": content} for role, content in messages])
