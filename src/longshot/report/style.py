"""One look for each method, the same in every chart: a colour on light, one on dark, and a shape.

Hues are apart for the common kinds of colour blindness (after Okabe and Ito) and marks differ in
shape, so that a print in grey can still be read.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any, NamedTuple

from longshot.study.summary import CONSTANT

_STAR = "M0-1.1L.27-.37 1.05-.34.43.14.65.89 0 .45-.65.89-.43.14-1.05-.34-.27-.37Z"
_HEXAGON = "M.87-.5V.5L0 1-.87.5V-.5L0-1Z"
_SALTIRE = "M-.85-1 0-.28.85-1 1-.85.28 0 1 .85.85 1 0 .28-.85 1-1 .85-.28 0-1-.85Z"


class Look(NamedTuple):
    """A colour on white, a lighter one for dark pages, and a shape of Vega's or a path."""

    colour: str
    on_dark: str
    shape: str


LOOKS: dict[str, Look] = {
    CONSTANT: Look("#8a8f98", "#9aa0aa", _HEXAGON),
    "naive": Look("#2f3640", "#d5dae2", _SALTIRE),
    "conditional": Look("#009e73", "#35c99c", "diamond"),
    "gld": Look("#cc79a7", "#e6a3c8", "triangle-down"),
    "qld": Look("#e69f00", "#f5c04a", "square"),
    "itgis": Look("#0064a8", "#5fb0f0", "circle"),
    "mhis": Look("#d55e00", "#ff8f4a", "triangle-up"),
}
"""The looks of names that are known; another package may add its methods'."""
SPARE = (
    Look("#56b4e9", "#8bd0fa", "cross"),
    Look("#7a4a1d", "#c99567", "triangle-left"),
    Look("#6a51a3", "#ab98dc", "triangle-right"),
    Look("#7d8b00", "#c0cd4a", _STAR),
)
SHADES = (
    Look("#0b3c5d", "#d7ebf8", "circle"),
    Look("#328cc1", "#6fb9e6", "square"),
    Look("#8fbcd9", "#3f7ea6", "diamond"),
    Look("#5b7f95", "#9dc3d9", "triangle-up"),
)
"""For lines that are models and not methods, in the order of the study."""

PAPER, INK, MUTED, RULE = (
    ("#ffffff", "#14171c"), ("#1b1f24", "#e8eaee"), ("#5f6874", "#9ba3af"), ("#d9dde3", "#2c323b"),
)  # fmt: skip
FONT = "system-ui, 'Liberation Sans', 'DejaVu Sans', sans-serif"


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """A look for each label: its own if it has one, or else the next that is free, in turn."""
    others = [label for label in labels if label not in LOOKS]
    free = {label: _spare(number) for number, label in enumerate(others)}
    return {label: LOOKS.get(label) or free[label] for label in labels}


def _spare(number: int) -> Look:
    """A look without an owner; beyond the listed ones, hues a golden section apart."""
    look = SPARE[number % len(SPARE)]
    if number < len(SPARE):
        return look
    hue = 0.6180339887 * number % 1
    colour, on_dark = (
        "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hsv_to_rgb(hue, *rest))
        for rest in ((0.8, 0.6), (0.45, 0.9))
    )
    return look._replace(colour=colour, on_dark=on_dark)


def night(labels: Sequence[str]) -> dict[str, str]:
    """The dark page's colour for each colour of a chart that these labels are drawn in."""
    drawn = [*looks(labels).values(), *SHADES]
    return dict([PAPER, INK, MUTED, RULE]) | {look.colour: look.on_dark for look in drawn}


def config() -> dict[str, Any]:
    """What all charts have in common, on light paper."""
    ink, muted, rule = INK[0], MUTED[0], RULE[0]
    words = {"labelColor": ink, "titleColor": muted, "labelFontSize": 11, "titleFontSize": 11}
    return {
        "background": PAPER[0],
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **words, "gridColor": rule, "domainColor": rule, "tickColor": rule,
            "titleFontWeight": "normal", "labelLimit": 220, "titleLimit": 600,
        },
        "legend": {
            **words, "titleFontWeight": "normal", "orient": "top", "symbolSize": 70,
            "columns": 4, "labelLimit": 160,
        },
        "header": {**words, "labelFontWeight": "bold", "labelFontSize": 12, "labelColor": ink},
        "title": {
            "color": ink, "subtitleColor": muted, "anchor": "start", "fontSize": 13,
            "subtitleFontSize": 11,
        },
    }  # fmt: skip
