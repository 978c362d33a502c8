"""Tables: the right numbers, the best in bold, and nothing that breaks out of its field."""

from __future__ import annotations

import html.parser
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshot.report.evidence import Evidence, gather
from longshot.report.grids import Field, Grid, as_html, as_latex, as_markdown
from longshot.report.tables import halves, losses, summary, tables
from longshot.report.words import answer
from longshot.study.summary import missing_methods
from tests.report.synthetic import make_evidence, make_run


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return make_evidence(make_run(targets=12))


def test_a_loss_table_has_every_method_the_baseline_and_the_noise_floor(evidence: Evidence) -> None:
    grid = losses(evidence, "mini-2l", "is")
    assert grid.headings[:2] == ("distribution", "constant")
    assert grid.headings[-2:] == ("noise floor", "targets")
    assert [row[0].text for row in grid.rows] == list(evidence.inputs)
    assert [row[0].text for row in grid.footer] == [
        "average, development",
        "average, test",
        "average",
    ]


def test_the_lowest_of_each_row_is_bold(evidence: Evidence) -> None:
    for grid in (losses(evidence, m, loss) for m in evidence.models for loss in ("is", "log")):
        for row in (*grid.rows, *grid.footer):
            values = [entry.value for entry in row[1:-2]]
            best = [entry.value for entry in row[1:-2] if entry.best]
            assert set(best) == {min(v for v in values if v is not None)}


def test_an_average_is_the_mean_of_its_rows(evidence: Evidence) -> None:
    grid = losses(evidence, "mini-1l", "log")
    for column in range(1, len(grid.headings) - 1):
        rows = [row[column].value for row in grid.rows]
        mean = sum(v for v in rows if v is not None) / len(rows)
        assert grid.footer[-1][column].value == pytest.approx(mean)
        half = sum(v for v in rows[:4] if v is not None) / 4
        assert grid.footer[0][column].value == pytest.approx(half)


def test_a_method_that_ran_on_a_part_is_marked_and_never_bold(evidence: Evidence) -> None:
    part = {
        key: outcome
        for key, outcome in evidence.outcomes.items()
        if key[2] != "itgis" or key[1] == "hex"
    }
    partial = replace(evidence, outcomes=part)
    grid = summary(partial, "is")
    column = grid.headings.index("itgis")
    for row in grid.rows:
        assert "1 of 8" in row[column].beside
        assert not row[column].best
        assert any(entry.best for entry in row)
    assert not any(
        row[2 + evidence.labels.index("itgis")].best for row in halves(partial, "is").rows
    )


def test_every_table_of_fitted_losses_says_what_its_bound_did() -> None:
    evidence = gather(make_run(("m",), ("hex", "caps"), ("naive", "itgis"), 12))
    for name in ("summary-is", "loss-is-m", "halves-is"):
        (grid,) = (grid for grid in tables(evidence) if grid.name == name)
        moved = sum(o.score.losses["is"].clipped for o in evidence.outcomes.values())
        assert f"{moved} of {2 * 3 * 12} were moved" in grid.note
        assert "which the paper does not do" in grid.note
    (grid,) = (grid for grid in tables(evidence) if grid.name == "unfitted-is")
    for row, label in zip(grid.rows, ("naive", "itgis"), strict=True):
        cells = [cell.score for cell in evidence.scored("m", label)]
        zeros = sum(score.zeros for score in cells)
        assert [entry.value for entry in row[2:5]] == [
            24, sum(score.losses["is"].clipped for score in cells), zeros
        ]  # fmt: skip
        assert (row[-1].value == row[-2].value) == (zeros == 0)
    zeros = sum(cell.score.zeros for cell in evidence.scored())
    assert f"leaves out the estimates of zero, {zeros} of 48" in grid.note


def test_coverage_in_the_table_is_counted_over_all_distributions(evidence: Evidence) -> None:
    (grid,) = (grid for grid in tables(evidence) if grid.name == "intervals")
    assert "No interval at all: gld, qld." in grid.note
    for row in grid.rows:
        found = evidence.scored(row[0].text, row[1].text)
        counts = [sum(c) for c in zip(*(cell.score.coverage for cell in found), strict=True)]
        assert [row[4].value, row[5].value] == counts
        assert row[6].value == (counts[1] / counts[0] if counts[0] else None)


def test_a_method_that_is_not_installed_is_reported_and_said() -> None:
    evidence = gather(make_run(("m",), ("hex",), ("itgis", "foreign"), 8))
    assert any("a·x^c + b: foreign." in detail for detail in answer(evidence).details)
    assert missing_methods(make_run(("m",), ("hex",), ("itgis", "gld"), 2)) == ""


def test_halves_stand_apart_only_where_there_are_both(evidence: Evidence) -> None:
    names = {grid.name for grid in tables(evidence)}
    assert {"halves-is", "halves-log", "temperatures", "cost", "intervals"} <= names
    one = make_evidence(make_run(inputs=("hex", "camel"), targets=5, tuned=False))
    names = {grid.name for grid in tables(one)}
    assert "halves-is" not in names
    assert "temperatures" not in names


def test_powers_of_ten_are_set_as_powers(evidence: Evidence) -> None:
    (grid,) = (grid for grid in tables(evidence) if grid.name == "cost")
    assert "10⁹" in as_markdown(grid)
    assert "$\\times$10$^{9}$" in as_latex(grid)


texts = st.text(st.characters(codec="utf-8"), max_size=20)


@given(texts)
def test_any_text_stays_in_its_field(text: str) -> None:
    grid = Grid("g", text, text, ("a", text), ((Field(text), Field(text, 1.0, text, True)),))
    lines = as_markdown(grid).split("\n")
    table = [line for line in lines if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", re.sub(r"\\\\", "", line))) for line in table} == {3}

    latex = as_latex(grid)
    (line,) = (line for line in latex.split("\n") if r"\textbf" in line)
    assert len(re.findall(r"(?<!\\)&", line.replace(r"\textbackslash{}", ""))) == 1

    seen: list[str] = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attrs: seen.append(tag)  # type: ignore[method-assign]
    parser.feed(as_html(grid))
    assert set(seen) <= {
        "figure", "figcaption", "b", "span", "div", "table", "thead", "tbody", "tr", "th", "td",
        "button", "small",
    }  # fmt: skip
