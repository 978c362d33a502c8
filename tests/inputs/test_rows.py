"""Datasets: rows of a table as inputs, and what is wrong with a table in one sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow
import pytest
import torch
from pyarrow import parquet

import longshot as ls
from longshot.inputs import SlotInputs
from tests.inputs.chi_square import FALSE_ALARM
from tests.inputs.laws import Table, worst_redraw

ROWS = [
    {"prompt": "Hello there", "n": 3},
    {"prompt": "What is\nthis, please?", "n": 1.5},
    {"prompt": "Hello there", "n": 1},
    {"prompt": "Yes, no", "n": 2},
]


@pytest.fixture(scope="module")
def model() -> ls.Model:
    return ls.load_model("mini-1l")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    lines = [json.dumps(row) for row in ROWS]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n\n")
    cells = "\n".join(f'"{row["prompt"]}",{row["n"]}' for row in ROWS)
    (tmp_path / "rows.csv").write_text("prompt,n\n" + cells)
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    return tmp_path


def law(inputs: SlotInputs, model: ls.Model) -> dict[str, float]:
    tokens, log_prob = inputs.listed(0, inputs.count)
    rows = [model.tokenizer.decode([t for t in row if t >= 0]) for row in tokens.tolist()]
    return dict(zip(rows, log_prob.exp().tolist(), strict=True))


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_rows_of_a_table(kind: str, tables: Path, model: ls.Model) -> None:
    inputs = ls.load_inputs(f"{tables}/rows.{kind}#prompt", model)
    found = law(inputs, model)
    expected = {"Hello there": 2, "What is\nthis, please?": 1, "Yes, no": 1}
    assert found == pytest.approx({f"<|BOS|>{t}": n / 4 for t, n in expected.items()})
    template = tables / "t.toml"
    template.write_text(
        '[inputs]\nname = "weighted"\ntext = "{row}"\n'
        f'[slots.row]\nfile = "rows.{kind}#prompt"\nweights = "n"\n'
    )
    weighted = law(ls.load_inputs(template, model), model)
    assert weighted["<|BOS|>Hello there"] == pytest.approx(4 / 7.5)


def test_the_law_of_rows_and_of_their_redraws(tables: Path, model: ls.Model) -> None:
    inputs = ls.load_inputs(tables / "rows.jsonl#prompt", model)
    generator = torch.Generator().manual_seed(0)
    assert Table(inputs).fit(inputs.sample(20_000, generator)) > FALSE_ALARM
    assert worst_redraw(inputs, 0, 0.3) > FALSE_ALARM


def test_naive_agrees_with_the_list(tables: Path, model: ls.Model) -> None:
    inputs = ls.load_inputs(tables / "rows.csv#prompt", model)
    outputs: dict[int, float] = {}
    for row, log_prob in zip(*inputs.listed(0, inputs.count), strict=True):
        v = model.network.activation(model.embed(row[row >= 0][None]))[0]
        token = int((v @ model.unembedding + model.unembedding_bias).argmax())
        outputs[token] = outputs.get(token, 0.0) + math.exp(log_prob)
    for token, truth in outputs.items():
        answer = ls.estimate(model, inputs, token, method="naive", budget=2000)
        assert answer.interval is not None
        assert answer.interval[0] <= min(truth, 1.0) <= answer.interval[1]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.jsonl#prompt", "", r"empty\.jsonl is empty: there is no text in it"),
        ("empty.csv#prompt", "prompt,n\n", r"empty\.csv is empty: there is no text in it"),
        ("empty.txt", "\n", r"empty\.txt is empty"),
        ("a.jsonl#promt", '{"prompt": "x"}', "no column named 'promt'; did you mean 'prompt'"),
        ("a.csv#x", "prompt,n\na,1\n", "no column named 'x'; known: n, prompt"),
        ("a.jsonl", "{}", r"Which column of .*a\.jsonl\? Name it: .*a\.jsonl#COLUMN"),
        ("a.jsonl#prompt", '{"prompt": 3}', "the column 'prompt' has 3, no text"),
        ("a.jsonl#prompt", "[1]", "a line that is no JSON object"),
        ("a.jsonl#prompt", "{", "a line that is no JSON"),
        ("a.parquet#prompt", "x", r"The table .*a\.parquet cannot be read"),
        ("a.txt#prompt", "x", "has no columns"),
        ("a.txt", "x\tlots", "has the weight 'lots'; a weight is a positive number"),
        ("a.txt", "x\t-1", "has the weight '-1'"),
    ],
)
def test_mistakes_are_one_sentence(
    name: str, content: str, said: str, tmp_path: Path, model: ls.Model
) -> None:
    (tmp_path / name.partition("#")[0]).write_text(content)
    with pytest.raises(ls.LongshotError, match=said) as caught:
        ls.load_inputs(f"{tmp_path}/{name}", model)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there(tmp_path: Path, model: ls.Model) -> None:
    for name in ("none.jsonl#a", "none.txt", "none.parquet#a"):
        with pytest.raises(ls.LongshotError, match=r"none\.[a-z]+ cannot be read: "):
            ls.load_inputs(f"{tmp_path}/{name}", model)
    with pytest.raises(ls.LongshotError, match=r"needs the package datasets|cannot be read"):
        ls.load_inputs("hf-dataset:nobody/nothing#text", model)
