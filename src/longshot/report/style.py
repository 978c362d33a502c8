"""One look for each method, the same in every figure and on the page.

Hues are apart for the common kinds of colour blindness (after Okabe and Ito) and marks differ in
shape, so that a print in grey can still be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.colors import hsv_to_rgb, to_hex

from longshot.study.summary import CONSTANT


class Look(NamedTuple):
    """A colour on white, a lighter one for dark pages, a mark of matplotlib's and its name."""

    colour: str
    on_dark: str
    mark: str
    shape: str
    line: str


LOOKS: dict[str, Look] = {
    CONSTANT: Look("#8a8f98", "#9aa0aa", "h", "hexagon", ":"),
    "naive": Look("#2f3640", "#d5dae2", "X", "cross", "-"),
    "conditional": Look("#009e73", "#35c99c", "D", "diamond", "-"),
    "gld": Look("#cc79a7", "#e6a3c8", "v", "down", "-"),
    "qld": Look("#e69f00", "#f5c04a", "s", "square", "-"),
    "itgis": Look("#0064a8", "#5fb0f0", "o", "circle", "-"),
    "mhis": Look("#d55e00", "#ff8f4a", "^", "up", "-"),
}
"""The looks of names that are known; another package may add its methods'."""
SPARE = (
    Look("#56b4e9", "#8bd0fa", "P", "plus", "--"),
    Look("#7a4a1d", "#c99567", "<", "left", "--"),
    Look("#6a51a3", "#ab98dc", ">", "right", "--"),
    Look("#7d8b00", "#c0cd4a", "*", "star", "--"),
)

INK, MUTED, RULE = "#1b1f24", "#6b7280", "#d9dde3"
SHADES = ("#0b3c5d", "#328cc1", "#8fbcd9", "#5b7f95", "#b7c9d3")
"""For lines that are models and not methods, in the order of the study."""

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "pdf.fonttype": 42,
    "svg.hashsalt": "longshot",
    "lines.linewidth": 1.6,
}


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib with our settings; its own are untouched afterwards."""
    with mpl.rc_context(RC):
        yield


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
        to_hex(tuple(hsv_to_rgb((hue, *rest)))) for rest in ((0.8, 0.6), (0.45, 0.9))
    )
    return look._replace(colour=colour, on_dark=on_dark)
