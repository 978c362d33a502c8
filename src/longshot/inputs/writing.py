"""Who writes the inputs, after what, and what the model reads around it: from Python or a file.

[inputs]
name = "questions"
text = "Q: {written}\\nA:"      # or messages; without either the model reads the prompt too
[generated]
prompt = "A list of questions:\\n-"
tokens = 16                     # at most: a special token ends the text
model = "mini-2l"               # who writes; without it the model itself
temperature = 0.8               # 1 unless given
top_p = 0.9                     # 1 unless given
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longshot.errors import LongshotError, unknown_name
from longshot.inputs.base import refuse_unreadable
from longshot.inputs.chat import Messages, rendered
from longshot.inputs.generated import GeneratedInputs
from longshot.models import Model, load_model
from longshot.toml import TomlFile

WRITTEN = "{written}"
KEYS = {"prompt": str, "tokens": int, "model": str, "temperature": float, "top_p": float}


def read_generated(file: TomlFile, model: Model) -> GeneratedInputs:
    """The inputs that a file with a [generated] table describes."""
    inputs, told = file.parsed.get("inputs", {}), file.parsed["generated"]
    for table, path, keys in (
        (file.parsed, (), ("inputs", "generated")),
        (inputs, ("inputs",), ("name", "text", "messages")),
        (told, ("generated",), KEYS),
    ):
        if not isinstance(table, dict):
            file.refuse(path, "must be a table")
        for key in table:
            if key not in keys:
                file.refuse((*path, key), str(unknown_name("key", key, keys)))
    for key, kind in KEYS.items():
        value = told.get(key)
        if key in told and not isinstance(value, (float, int) if kind is float else kind):
            file.refuse(("generated", key), f"must be of the type {kind.__name__}, not {value!r}")
    for key in ("prompt", "tokens"):
        if key not in told:
            file.refuse(("generated", key), "is missing")
    around = inputs.get("text")
    if "messages" in inputs:
        around = [(m.get("role", ""), m.get("content", "")) for m in inputs["messages"]]
    settings = {key: value for key, value in told.items() if key not in ("prompt", "model")}
    with file.errors_at("generated"):
        return generated(
            model,
            told["prompt"],
            writer=told.get("model"),
            around=around,
            name=inputs.get("name", "generated"),
            **settings,
        )


def generated(
    model: str | Path | Model,
    prompt: str,
    *,
    tokens: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    writer: str | Path | Model | None = None,
    around: str | Messages | None = None,
    name: str = "generated",
) -> GeneratedInputs:
    """What a model, itself unless a `writer` is named, writes after a prompt.

    `around` is the text, or the messages of a chat, in which the model reads it in place of
    {written}; without it the model reads the prompt too.
    """
    reads = load_model(model)
    writes = reads if writer is None else load_model(writer)
    tokenizer, parts = reads.tokenizer, dict[str, Any]()
    if around is not None:
        text = around if isinstance(around, str) else rendered(tokenizer, around)
        if text.count(WRITTEN) != 1:
            raise LongshotError(f"What stands around the text has {WRITTEN} in it, once.")
        before, _, after = text.partition(WRITTEN)
        bos = [tokenizer.bos] if isinstance(around, str) else []
        parts = {"before": bos + tokenizer.encode(before), "after": tokenizer.encode(after)}
    words = [tokenizer.bos, *tokenizer.encode(prompt)]
    inputs = GeneratedInputs(
        name, writes, words, tokens, temperature=temperature, top_p=top_p, **parts
    )
    refuse_unreadable(inputs, reads)
    return inputs
