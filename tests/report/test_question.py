"""The page of one question, and its tokens' scores."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import longshot as ls
from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app
from longshot.errors import LongshotError
from longshot.estimate import Problem, Witness
from longshot.events import TokenIn, TokenIs
from longshot.inputs import ProductInputs
from longshot.inputs.tokens import TokenDistribution
from longshot.models import Model
from longshot.report.question import REDRAWN, question_page, token_scores
from tests.report.synthetic import estimate
from tests.toys import toy_model


@pytest.fixture(scope="module")
def problem() -> Problem:
    model = toy_model(3, dtype=torch.float64)
    free = TokenDistribution.from_weights([1, 2, 5, 6], [1.0, 2.0, 3.0, 4.0])
    inputs = ProductInputs("toy", [TokenDistribution.fixed(0), free, free, free])
    return Problem(model, inputs, TokenIs(4))


WITNESSES = (
    Witness((0, 1, 5, 2), "<|BOS|>aeb", -5.0, 0.3),
    Witness((0, 6, 6, 1), "<|BOS|>ffa", -6.0, 0.1),
)


def gap(model: Model, embedded: torch.Tensor) -> torch.Tensor:
    activation = model.network.activation(embedded)
    logits = activation @ model.network.unembedding
    if model.network.unembedding_bias is not None:
        logits = logits + model.network.unembedding_bias
    return TokenIs(4).score(logits)


def test_scores_are_what_redrawing_costs(problem: Problem) -> None:
    """Against every replacement, one at a time, by the network itself."""
    model, inputs = problem.model, problem.inputs
    scores = token_scores(problem, WITNESSES)
    middles = (torch.arange(REDRAWN, dtype=torch.float64) + 0.5) / REDRAWN
    for witness, row in zip(WITNESSES, scores, strict=True):
        tokens = torch.tensor([witness.tokens])
        for i, p in enumerate(inputs.positions):
            redrawn = tokens.repeat(REDRAWN, 1)
            redrawn[:, i] = p.support[p.invert(middles)]
            cost = gap(model, model.embed(tokens)) - gap(model, model.embed(redrawn)).mean()
            assert float(row[i]) == pytest.approx(float(cost), abs=1e-5)
    assert scores[:, 0].abs().max() == 0  # the fixed position


def test_the_token_without_which_the_target_is_lost_is_shaded_for_it() -> None:
    """In `mini-2l` after camel-case tokens: redrawing the last one costs several logits of lead,
    though a gradient at the mean embedding points the other way."""
    model = ls.load_model("mini-2l")
    inputs = ls.load_inputs("camel", model)
    options = {"method": "itgis", "temperature": 0.5, "score": "logit"}
    answer = ls.estimate(model, inputs, "ail", budget=2**10, **options)
    scores = token_scores(
        Problem(model, inputs, TokenIs(model.tokenizer.single("ail"))), answer.witnesses
    )
    assert len(scores) > 2
    assert (scores[:, -1] > 5).all()
    assert (scores[:, -1] == scores.amax(1)).all()


def test_a_set_of_tokens_is_scored_by_its_best(problem: Problem) -> None:
    several = Problem(problem.model, problem.inputs, TokenIn(frozenset((3, 4))))
    assert token_scores(several, WITNESSES).shape == (2, 4)
    assert token_scores(several, ()).shape == (0, 4)


def test_the_page_shades_free_tokens(problem: Problem) -> None:
    page = question_page(problem, estimate("itgis", -12.0, 0.4, witnesses=WITNESSES))
    assert page.count('class="fixed"') == 2
    assert page.count("--w:") - page.count("--w: ") == 2 * 3
    assert "--w:1.000" in page  # the strongest
    assert "6.14×10⁻⁶" in page
    assert "95% interval" in page


def test_without_a_hit_there_is_still_a_page(problem: Problem) -> None:
    answer = estimate("itgis", -float("inf"), 0.4, warnings=("<b>No input</b>",))
    page = question_page(problem, answer)
    assert "no hit" in page
    assert "No interval: no sample hit." in page
    assert "&lt;b&gt;No input" in page
    assert "No input that produces the target was found." in page


QUESTION = ["estimate", "--model", "mini-1l", "--target", "quence", "--budget", "256", "--html"]


def test_the_command_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "answer.html"
    shown = CliRunner().invoke(app, [*QUESTION, str(path)], catch_exceptions=False).output
    assert "probability" in shown
    assert "quence" in path.read_text()
    with pytest.raises(LongshotError, match="cannot be written"):
        CliRunner().invoke(app, [*QUESTION, str(tmp_path)], catch_exceptions=False)
