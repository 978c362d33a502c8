"""A look at what a model says: every output with its probability, and what was never seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import longshot as ls
import longshot.cli.main
from longshot.cli.app import app
from longshot.testing import enumerated, toy_model
from tests.inputs.laws import Table
from tests.inputs.test_slots import toy as slots

MODEL = toy_model(2, context=12, dtype=torch.float64)


def by_hand(steps: int) -> dict[tuple[int, ...], float]:
    table, found = Table(slots()), dict[tuple[int, ...], float]()
    for row, p in zip(table.tokens, table.probability.tolist(), strict=True):
        words = row[row >= 0].tolist()
        for _ in range(steps):
            v = MODEL.network.activation(MODEL.embed(torch.tensor([words])))[0]
            words.append(int((v @ MODEL.unembedding + MODEL.unembedding_bias).argmax()))
        said = tuple(words[-steps:])
        found[said] = found.get(said, 0.0) + p
    return found


@pytest.mark.parametrize("steps", [1, 2])
def test_inputs_that_can_be_listed_give_an_exact_table(steps: int) -> None:
    found = ls.look(MODEL, slots(), tokens=steps)
    truth = by_hand(steps)
    assert {output.tokens: output.probability for output in found.outputs} == pytest.approx(truth)
    assert found.is_exact
    assert found.never_seen == 0
    assert found.inputs == slots().count
    probabilities = [output.probability for output in found.outputs]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(output.seen for output in found.outputs) == found.inputs
    assert found.outputs[0].text == MODEL.tokenizer.decode(list(found.outputs[0].tokens))


def test_examples_say_what_they_are_examples_of() -> None:
    toy = enumerated(1)
    found = ls.look(toy.model, toy.inputs)
    assert {output.tokens[0] for output in found.outputs} == set(toy.output.tolist())
    for output in found.outputs:
        assert output.probability == pytest.approx(toy.exact(output.tokens[0]))
        texts = [toy.model.tokenizer.decode(row) for row in toy.tokens.tolist()]
        mine = [p for t, p in zip(texts, toy.probability, strict=True) if t == output.example]
        said = [o for t, o in zip(texts, toy.output.tolist(), strict=True) if t == output.example]
        assert said == [output.tokens[0]]
        assert float(mine[0]) == pytest.approx(
            float(toy.probability[toy.output == output.tokens[0]].max())
        )


def test_runners_up_are_never_first_and_the_nearest_come_first() -> None:
    toy = enumerated(1)
    found = ls.look(toy.model, toy.inputs, runners_up=3)
    v = toy.model.network.activation(toy.model.embed(toy.tokens))
    logits = v @ toy.model.unembedding + toy.model.unembedding_bias
    behind = (logits - logits.amax(1, keepdim=True)).amax(0)
    never = [t for t in behind.argsort(descending=True).tolist() if toy.exact(t) == 0]
    assert [near.token for near in found.runners_up] == never[:3]
    for near in found.runners_up:
        assert near.gap == pytest.approx(float(behind[near.token]), abs=1e-5)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_sample_of_many_inputs_says_what_it_never_saw(steps: int) -> None:
    truth, samples = by_hand(steps), 400
    found = ls.look(MODEL, slots(), tokens=steps, most=2, samples=samples)
    assert not found.is_exact
    assert found.inputs == samples
    assert sum(output.probability for output in found.outputs) == pytest.approx(1)
    for output in found.outputs:
        p = truth[output.tokens]
        assert abs(output.probability - p) < 4 * (p * (1 - p) / samples) ** 0.5 + 1e-9
    unseen = 1 - sum(truth[output.tokens] for output in found.outputs)
    assert abs(found.never_seen - unseen) < 0.02
    few = ls.look(MODEL, slots(), tokens=2, most=2, samples=5)
    assert few.never_seen > 0


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "who.toml"
    file.write_text(
        '[inputs]\nname = "who"\ntext = "I am {who}, {mood}"\n'
        '[slots.who]\nchoices = ["Ann", "Mary Jane"]\n[slots.mood]\nchoices = ["glad", "not so"]\n'
    )
    shown = CliRunner().invoke(app, ["look", "mini-1l", str(file)])
    assert shown.exit_code == 0
    assert "mini-1l after all 4 inputs who" in shown.output
    assert "never first, but near it" in shown.output
    result = CliRunner().invoke(app, ["look", "mini-1l", str(file), "--json", "--tokens", "2"])
    found = json.loads(result.output)
    assert found["is_exact"]
    assert sum(output["probability"] for output in found["outputs"]) == pytest.approx(1)
    sampled = CliRunner().invoke(app, ["look", "mini-1l", "hex", "--samples", "64"])
    assert "after a sample of 64 inputs hex" in sampled.output
    assert "never seen: about" in sampled.output
    inputs = CliRunner().invoke(app, ["inputs", "show", "--file", str(file), "--model", "mini-1l"])
    assert "tokens at most, 4 inputs in all" in inputs.output
    said = CliRunner().invoke(
        app, ["inputs", "show", "--file", str(file), "--model", "mini-1l", "--json"]
    )
    assert all(min(row["tokens"]) >= 0 for row in json.loads(said.output)["samples"])


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(ls.LongshotError, match="one token or more of one input or more"):
        ls.look(MODEL, slots(), tokens=0)
    with pytest.raises(ls.LongshotError, match=f"reads 12 tokens, not the {slots().length + 11}"):
        ls.look(MODEL, slots(), tokens=12)
