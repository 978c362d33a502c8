"""Messages with slots, through the chat template that the model's tokenizer brings."""

from __future__ import annotations

from pathlib import Path

import pytest

import longshot as ls
from tests.models.hf_models import chat_parts


@pytest.fixture(scope="module")
def model() -> ls.Model:
    network, tokenizer = chat_parts()
    return ls.load_model(network, tokenizer=tokenizer)


def said(inputs: ls.Inputs, model: ls.Model) -> list[str]:
    rows = inputs.listed(0, inputs.count).tokens.tolist()
    return [model.tokenizer.decode([token for token in row if token >= 0]) for row in rows]


def test_messages_become_what_the_template_makes_of_them(model: ls.Model) -> None:
    inputs = ls.template(
        model,
        [("system", "Never say {topic}. {{Really}}."), ("user", "What of {topic} {when}?")],
        topic=["cats", "big dogs"],
        when=["today", "in a week"],
    )
    assert said(inputs, model) == [
        f"<|im_start|>system\nNever say {topic}. {{Really}}.<|im_end|>\n"
        f"<|im_start|>user\nWhat of {topic} {when}?<|im_end|>\n<|im_start|>assistant\n"
        for topic in ("cats", "big dogs")
        for when in ("today", "in a week")
    ]
    special = model.tokenizer.encode("<|im_start|>")
    assert len(special) == 1
    tokens = inputs.listed(0, 1).tokens[0].tolist()
    assert [tokens.count(special[0]), tokens[0]] == [3, special[0]]
    answer = ls.estimate(model, inputs, " the", method="naive", budget=8)
    assert answer.samples == 8


def test_a_last_message_of_the_assistant_is_left_open(model: ls.Model) -> None:
    inputs = ls.template(
        model, [("user", "Help."), ("assistant", "{how}, here")], how=["Sure", "No"]
    )
    end = "<|im_start|>user\nHelp.<|im_end|>\n<|im_start|>assistant\n{}, here"
    assert said(inputs, model) == [end.format("Sure"), end.format("No")]


def test_messages_in_a_file(model: ls.Model, tmp_path: Path) -> None:
    file = tmp_path / "chat.toml"
    file.write_text(
        '[inputs]\nname = "chat"\n'
        '[[inputs.messages]]\nrole = "system"\ncontent = "Be {how}."\n'
        '[[inputs.messages]]\nrole = "user"\ncontent = "Hello"\n'
        '[slots.how]\nchoices = ["kind", "brief"]\n'
    )
    inputs = ls.load_inputs(file, model)
    assert said(inputs, model)[0].startswith(
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>u"
    )


def test_mistakes_are_one_sentence(model: ls.Model) -> None:
    with pytest.raises(ls.LongshotError, match="chat template, which this model's tokenizer lacks"):
        ls.template("mini-1l", [("user", "Hello")])
    with pytest.raises(ls.LongshotError, match="refuses these messages: Who is robot"):
        ls.template(model, [("robot", "Hello")])
    with pytest.raises(ls.LongshotError, match="content: must be a string that is not empty"):
        ls.template(model, [("user", "")])
    with pytest.raises(ls.LongshotError, match="must be a list of messages, and not empty"):
        ls.template(model, [])
