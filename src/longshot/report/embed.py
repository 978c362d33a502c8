"""How a page carries its parts: one HTML file with style, script and data inside it."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from longshot.report.style import night
from longshot.version import __version__

RAISED = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
"""The minus and the digits as exponents, in plain text."""

ASSETS = Path(__file__).parent / "assets"
_BREAKS = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def read_asset(name: str) -> str:
    """A file of the page's source."""
    return (ASSETS / name).read_text(encoding="utf-8")


def as_json(value: Any) -> str:
    """JSON that can stand in a <script>: pure ASCII, and no character that could end it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda found: _BREAKS[found[0]], text)


def number(value: float | None, digits: int = 5) -> float | None:
    """A number as short as the page needs it; None for what JSON has no word for."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    if not math.isfinite(short):  # rounded up beyond the largest double
        return value
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def power_of_ten(value: float, digits: int = 1) -> str:
    """1.2×10⁹, in plain text."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", RAISED))
    return f"{mantissa}×10{raised}"


def in_words(log_probability: float, digits: int = 2) -> str:
    """A probability from its natural logarithm, however small; −inf is no hit."""
    if log_probability == -math.inf:
        return "no hit"
    exponent = math.floor(log_probability / math.log(10))
    mantissa = math.exp(log_probability - exponent * math.log(10))
    if exponent < -300:
        return f"{mantissa:.{digits}f}e{exponent} (its logarithm is {log_probability:.1f})"
    return f"{math.exp(log_probability):.{digits + 1}g}"


def fill(template: str, parts: Mapping[str, str]) -> str:
    """A page from its template: %%NAME%% stands for a part, and parts are not read again."""
    return re.sub(r"%%(\w+)%%", lambda found: parts[found[1]], read_asset(template))


def chart_page(
    kind: str, title: str, body: str, foot: str, specs: Mapping[str, Any], labels: Sequence[str]
) -> str:
    """A whole page: its charts, given as Vega-Lite, are drawn where a figure has their name.

    `labels` are the methods whose colours the charts use. Records that charts share stand once.
    """
    pool: dict[str, Any] = {}
    for spec in specs.values():
        pool |= spec["datasets"]
    bare = {n: spec | {"datasets": dict.fromkeys(spec["datasets"])} for n, spec in specs.items()}
    parts = {
        "TITLE": unbroken(title), "KIND": kind, "BODY": body, "FOOT": foot, "VERSION": __version__,
        "STYLE": read_asset("page.css"), "SCRIPT": read_asset("page.js"), "VEGA": vega(),
        "DATA": as_json({"specs": bare, "datasets": pool, "night": night(labels)}),
    }  # fmt: skip
    return fill("page.html", parts)


@cache
def vega() -> str:
    """The scripts that draw, in one piece, so that a page needs no network."""
    from vl_convert import javascript_bundle

    return str(javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace("</script", "<\\/script")


def figure(name: str, caption: str, **keys: str) -> str:
    """The place of a chart on a page; `keys` say for which choices it is shown."""
    data = "".join(f' data-{key}="{html.escape(value)}"' for key, value in keys.items())
    return (
        f'<figure data-chart="{html.escape(name)}"{data}><figcaption>{caption}</figcaption>'
        '<div class="chart"></div></figure>'
    )


def paragraphs(sentences: Sequence[str]) -> str:
    """Sentences as the items of a list."""
    return "".join(f"<li>{unbroken(sentence)}</li>" for sentence in sentences)


def unbroken(text: str) -> str:
    """Escaped text that no line breaks at a hyphen, as in a model's name."""
    return html.escape(text).replace("-", "\u2011")
