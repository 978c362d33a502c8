"""The page's data: complete, compact, and unable to break out of its script."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longshot.errors import visible
from longshot.report.embed import as_json, number, read_asset
from longshot.report.page import page
from tests.report.synthetic import NASTY, full_page, make_evidence, make_run


def data_of(text: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    parsed: dict[str, Any] = json.loads(found)
    return parsed


def test_nasty_tokens_arrive_as_they_are() -> None:
    evidence = make_evidence(make_run(("m",), ("hex",), ("itgis",), 20, nasty=True))
    text = page(evidence)
    assert len(re.findall("<script[ >]", text)) == 3
    assert text.count("</script>") == 3
    data = data_of(text)
    assert {r["token"] for r in data["datasets"]["targets-m"]} == {visible(t) for t in NASTY}
    body = text[text.index("<main") : text.index("</main>")]
    assert "&lt;script&gt;" in body
    assert "<script" not in body


def test_the_page_asks_for_nothing_outside_itself() -> None:
    text = page(make_evidence(make_run(("m",), ("hex",), ("itgis",), 3)))
    assert "default-src 'none'" in text
    head = text[: text.index('<script type="application/json"')]
    addresses = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)|url\(([^)]*)\)""", head)
    assert {one or other for one, other in addresses} == {"data:,"}


def test_every_chart_stands_once_with_records_that_are_shared() -> None:
    run = make_run(("a", "b"), ("hex", "icl"), ("naive", "itgis"), 9)
    text = page(make_evidence(run))
    data = data_of(text)
    figures = re.findall(r'<figure data-chart="([^"]+)"', text)
    assert sorted(figures) == sorted(data["specs"])
    for spec in data["specs"].values():
        assert spec["datasets"].keys() <= data["datasets"].keys()
        assert not any(spec["datasets"].values())
    assert len(data["datasets"]["targets-a"]) == 2 * 2 * 9


def test_every_target_is_listed_with_its_witness() -> None:
    run = make_run(("a",), ("hex", "icl"), ("naive", "itgis"), 9)
    text = page(make_evidence(run))
    listed = text[text.index('id="targets"') :]
    assert len(re.findall(r'<th scope="row"', listed)) == 2 * 9
    assert "Word" in listed
    assert "18 shown" in listed


def test_the_page_says_how_it_was_made() -> None:
    run = replace(
        make_run(("a",), ("hex",), ("itgis",), 4), finished="2026-11-18T10:00", made_by="9"
    )
    text = page(make_evidence(run))
    made = "longshot run synthetic.toml</code> · finished 2026-11-18 · by longshot 9 · 4,096 model"
    assert made in text
    assert "temperature tuned, 1" in text


def test_the_script_and_style_stay_small() -> None:
    """Charts are no hand-written script."""
    lines = sum(len(read_asset(name).splitlines()) for name in ("page.js", "page.css", "page.html"))
    assert lines <= 250


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
