"""The page's data: complete, compact, and unable to break out of its script."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshot.report.embed import as_json, number
from longshot.report.page import page, page_data
from tests.report.synthetic import NASTY, full_page, make_evidence, make_run


def data_of(text: str) -> dict[str, object]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    parsed: dict[str, object] = json.loads(found)
    return parsed


def test_nasty_tokens_arrive_as_they_are() -> None:
    evidence = make_evidence(make_run(("m",), ("hex",), ("itgis",), 20, nasty=True))
    text = page(evidence)
    assert text.count("<script") == 2
    assert text.count("</script>") == 2
    assert "%%" not in re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.S)
    (cell,) = data_of(text)["cells"]  # type: ignore[misc]
    assert {target[0] for target in cell["targets"]} == set(NASTY)


def test_the_page_asks_for_nothing_outside_itself() -> None:
    text = page(make_evidence(make_run(("m",), ("hex",), ("itgis",), 3)))
    assert "default-src 'none'" in text
    addresses = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)|url\(([^)]*)\)""", text)
    assert {one or other for one, other in addresses} == {"data:,"}


def test_every_estimate_is_there() -> None:
    run = make_run(("a", "b"), ("hex", "icl"), ("naive", "itgis"), 9)
    data = page_data(make_evidence(run))
    found = [
        (data["models"][cell["model"]], data["inputs"][cell["inputs"]], label, token, q)
        for cell in data["cells"]
        for label, columns in cell["methods"].items()
        for token, q in zip(columns["token"], columns["q"], strict=True)
    ]
    wanted = {(*row.key[1:4], row.key.token): row.estimate for row in run.rows}
    assert len(found) == len(wanted) == 2 * 2 * 2 * 9
    for *key, q in found:
        answer = wanted[tuple(key)]
        assert answer is not None
        if q is None:
            assert answer.probability == 0
        else:
            assert 10**q == pytest.approx(answer.probability, rel=1e-3)


def test_a_full_study_stays_small() -> None:
    size = len(full_page().encode())
    assert size < 10e6, f"{size / 1e6:.1f} MB"


@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists))
def test_json_in_a_script_is_read_back_and_cannot_end_it(value: object) -> None:
    text = as_json(value)
    assert json.loads(text) == value
    assert text.isascii()
    assert not set(text) & set("<>&")


@given(st.floats())
def test_a_number_is_short_or_missing(value: float) -> None:
    short = number(value)
    if short is None:
        assert value != value or abs(value) == float("inf")
    else:
        assert short == pytest.approx(value, rel=1e-4)
