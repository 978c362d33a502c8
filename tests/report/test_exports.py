"""Exports: what other tools open, opened by them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

import longshot as ls
from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app
from longshot.estimate import Job, Round
from longshot.events import TokenIs
from longshot.methods import MHIS
from longshot.report.exports import SCHEMA, read_witnesses, write_witnesses
from tests.report.synthetic import estimate, make_run


@pytest.mark.parametrize("method", ["naive", "itgis"])
def test_the_json_is_what_its_schema_says(method: str) -> None:
    question = [
        "estimate",
        "--model",
        "mini-1l",
        "--target",
        "quence",
        "--budget",
        "2**8",
        "--json",
    ]
    shown = CliRunner().invoke(app, [*question, "--method", method], catch_exceptions=False).output
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    plain = json.loads(shown)
    Draft202012Validator(schema).validate(plain)
    assert plain["model"] == "mini-1l"
    assert plain["target"] == "'quence'"
    assert plain["budget"] == 256
    assert (plain["log_probability"] is None) == (plain["probability"] == 0)


def test_estimates_are_a_table() -> None:
    answers = [estimate("itgis", -12.0, 0.4), estimate("naive", -math.inf, 0.4)]
    table = ls.to_pandas(answers)
    assert list(table["probability"]) == [answer.probability for answer in answers]
    assert {"low", "high", "hits", "seconds"} <= set(table.columns)
    run = make_run(("m",), ("hex",), ("itgis",), 3)
    assert set(table.columns) - {"event"} <= set(run.to_pandas().columns)


def test_rounds_and_chains_are_arviz() -> None:
    from arviz_plots import plot_trace  # with matplotlib: a second that no other test needs

    rounds = tuple(Round(100 * i, -10.0 - i, (1e-6, 1e-4)) for i in range(4))
    tree = ls.to_arviz(estimate("splitting", -12.0, 0.4, trace=rounds))
    assert tree["posterior"]["log_probability"].shape == (1, 4)
    chains = ls.to_arviz({"score": [[1.0, 2.0], [3.0, 4.0]]})
    assert chains["posterior"]["score"].dims == ("chain", "draw")
    model = ls.load_model("mini-1l")
    job = Job(model, ls.load_inputs("camel", model), (TokenIs(84),), 64)
    (walked,) = MHIS(chains=2).chains_of(job)
    walks = ls.to_arviz(walked)
    assert walks["posterior"]["score"].sizes["chain"] == 2
    plot_trace(walks, backend="none")
    with pytest.raises(ls.LongshotError, match="has no rounds"):
        ls.to_arviz(estimate("naive", -12.0, 0.4))


@pytest.mark.filterwarnings("ignore")  # of inspect_ai's own
def test_a_run_is_an_inspect_log(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log

    run = make_run(("m",), ("hex",), ("naive", "itgis"), 3)
    rows = sorted(run.rows, key=lambda row: row.key)  # as a store has them: another order
    run = replace(run, rows=tuple(rows))
    log = read_eval_log(str(ls.to_inspect(run, tmp_path / "run.eval")))
    assert log.samples is not None
    assert len(log.samples) == 6
    answers = [row.estimate.probability for row in run.in_order if row.estimate]
    assert answers != [row.estimate.probability for row in rows if row.estimate]
    told = [s.metadata["probability"] for s in log.samples if s.metadata]
    assert told == answers
    assert [s.scores["probability"].value for s in log.samples if s.scores] == answers


def test_witnesses_come_back(tmp_path: Path) -> None:
    run = make_run(("m",), ("hex",), ("itgis",), 8, nasty=True)
    wanted = list(run.witnesses())
    found = read_witnesses(write_witnesses(wanted, tmp_path / "w.jsonl"))
    assert [record["prompt"] for record in found] == [record["text"] for record in wanted]
    assert found


def test_results_show_themselves() -> None:
    answer = estimate("itgis", -12.0, 0.4, warnings=("<b>careful</b>",))
    assert repr(answer) == "Estimate(token:1 by itgis: 6.14e-06, 95%: 2.8e-06 … 1.4e-05)"
    assert "&lt;b&gt;careful" in answer._repr_html_()
    assert answer.plot().to_dict()["layer"]
    run = make_run(("m",), ("hex",), ("itgis", "naive"), 6)
    assert repr(run).startswith("Run('synthetic', 1 cells")
    assert run.plot("loss").to_dict()["layer"]
    with pytest.raises(ls.LongshotError, match="chart of a run"):
        run.plot("lost")
    model = ls.load_model("mini-1l")
    inputs = ls.load_inputs("camel", model)
    assert "mini-1l" in repr(model)
    assert len(repr(model)) < 120
    assert all("<table>" in shown._repr_html_() for shown in (model, inputs, run, answer))
    truth = ls.load_truth(model, inputs)
    assert repr(truth).startswith("Truth(mini-1l on camel")
    assert truth.plot(model).to_dict()["layer"]
