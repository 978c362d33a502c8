"""Sampled and judged outputs from the command line, and what can be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import longshot as ls
from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app
from longshot.cli.asked import Asked, read_examples
from longshot.errors import LongshotError
from tests.models.hf_models import hf_model, hf_tokenizer

PROMPT = "They say:{output}. It is"


def run(*arguments: str, inputs: str = "camel") -> str:
    asked = ["estimate", "--model", "mini-1l", "--inputs", inputs, "--budget", "400"]
    return CliRunner().invoke(app, [*asked, *arguments], catch_exceptions=False).output


def test_a_temperature_samples_the_output() -> None:
    answer = json.loads(run("--target", "#300", "--temperature", "1", "--json"))
    assert answer["event"] == "sampled at 1.0: token:300"
    model = ls.load_model("mini-1l")
    same = ls.estimate(
        model, ls.load_inputs("camel", model), ls.Sampled(300, 1.0), budget=400, seed=0
    )
    assert answer["probability"] == same.probability
    cold = json.loads(run("--target", "#300", "--temperature", "0", "--json"))
    assert cold["event"] == "token:300"


def test_what_is_sampled_may_be_a_text() -> None:
    answer = json.loads(run("--matches", "[a-z]", "--tokens", "2", "--temperature", ".7", "--json"))
    assert answer["event"] == "sampled at 0.7: matches:2:[a-z]"
    assert answer["hits"]


def test_a_judge_reads_the_output(tmp_path: Path) -> None:
    examples = tmp_path / "labelled.jsonl"
    rows = [{"text": f" {a} {b}", "bad": a < b} for a in "abcdef" for b in "bcdefg"]
    examples.write_text("\n".join(json.dumps(row) for row in rows))
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(PROMPT)
    asked = ("--judge", "mini-2l", "--judge-prompt", str(prompt), "--tokens", "2")
    shown = run(*asked, "--judge-examples", str(examples))
    assert "YES from mini-2l about 2 tokens after camel on mini-1l" in shown
    assert "could not tell" in shown
    assert "of the bad and accuses" in shown
    assert "corrected" in shown
    answer = json.loads(run(*asked, "--json"))
    assert 0 <= answer["statistics"]["could_not_tell"] <= 1
    assert "corrected" not in answer["statistics"]


def test_examples_are_read_from_tables(tmp_path: Path) -> None:
    table = tmp_path / "labelled.csv"
    table.write_text("text,bad\nfine,false\nrude,TRUE\nworse,1\n")
    assert read_examples(str(table)) == [("fine", False), ("rude", True), ("worse", True)]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"judge": "mini-2l"}, "A judge needs a prompt beside --judge: "),
        ({"judge_chat": True, "judge_examples": "a.csv"}, "beside --judge-examples and --judge-c"),
        ({"judge_prompt": PROMPT}, "Name only one of --target, .* and --judge-prompt"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(LongshotError, match=sentence):
        Asked(target=["ers"], **given).check()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--target", "ers", "--temperature", "-1"], "A temperature is 0 or positive"),
        (["--judge-prompt", "Is it rude?"], "The judge's prompt has {output} in it, once"),
        (["--judge-prompt", PROMPT, "--judge-chat"], "need a chat template, which this model"),
        (["--judge-prompt", "nowhere.txt"], "judge's prompt nowhere.txt cannot be read"),
        (["--judge-prompt", PROMPT, "--judge", "mini-3l"], "Did you mean|mini-2l"),
        (["--judge-prompt", PROMPT, "--tokens", "0"], "A judge reads one token or more"),
        (["--judge-prompt", PROMPT, "--judge-examples", "a.txt"], "are a table, .jsonl"),
        (["--judge-prompt", PROMPT, "--judge-examples", "a.csv"], "a.csv cannot be read"),
        (["--judge-prompt", PROMPT, "--tokens", "2", "--method", "itgis"], "itgis needs"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(LongshotError, match=sentence) as caught:
        run(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("", "labelled.csv is empty"),
        ("text,evil\na,true\n", "no column named 'bad'"),
        ("text,bad\na,perhaps\n", "has 'perhaps', neither true nor false"),
        ("text,bad\na,true\n", "some that are bad and some that are not"),
    ],
)
def test_examples_that_say_nothing(written: str, sentence: str, tmp_path: Path) -> None:
    table = tmp_path / "labelled.csv"
    table.write_text(written)
    asked = ["--judge-prompt", PROMPT, "--tokens", "2", "--judge-examples", str(table)]
    with pytest.raises(LongshotError, match=sentence):
        run(*asked)


CHAT = """[inputs]
name = "chat"
[[inputs.messages]]
role = "user"
content = "Hi {a}"
[slots.a]
choices = ["you", "me"]
"""
GENERATED = '[generated]\nprompt = "The"\ntokens = 3\n'


@pytest.mark.parametrize(
    ("name", "written", "sentence"),
    [
        ("rows.jsonl#prompt", "", "rows.jsonl is empty"),
        ("rows.jsonl#prompt", '{"question": "Who?"}\n', "no column named 'prompt'"),
        ("chat.toml", CHAT, "chat template"),
        ("nucleus.toml", f"{GENERATED}top_p = 1.5\n", "top_p lies above 0 and is at most 1"),
        ("nucleus.toml", f"{GENERATED}top_p = 0.0\n", "top_p lies above 0 and is at most 1"),
    ],
)
def test_inputs_that_cannot_be_asked_about(
    name: str, written: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / name.partition("#")[0]).write_text(written)
    refused_by_all(str(tmp_path / name), sentence)


def refused_by_all(inputs: str, sentence: str) -> None:
    """By every command that takes inputs."""
    for command in (
        ["estimate", "--model", "mini-1l", "--inputs", inputs, "--target", "ers"],
        ["look", "mini-1l", inputs],
        ["compare-methods", "mini-1l", inputs, "ers"],
    ):
        with pytest.raises(LongshotError, match=sentence) as caught:
            CliRunner().invoke(app, command, catch_exceptions=False)
        assert "\n" not in str(caught.value)


def test_a_writer_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    folder, file = tmp_path / "other", tmp_path / "written.toml"
    hf_model("Llama").save_pretrained(folder)
    hf_tokenizer().save_pretrained(folder)
    file.write_text(f'{GENERATED}model = "hf:{folder}"\n')
    refused_by_all(str(file), "other, which writes .* has another tokenizer than mini-1l")
