"""Every name that can be typed, without loading what it names: for completion and for help.

Tests hold these lists to what the package really knows.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

ZOO_NAMES = ("mini-1l", "mini-2l", "mini-4l")
HUB = {f"gelu-{n}l": f"NeelNanda/GELU_{n}L512W_C4_Code" for n in (1, 2, 3, 4)} | {
    f"attn-only-{n}l": f"NeelNanda/Attn_Only_{n}L512W_C4_Code" for n in (1, 2, 3, 4)
}
INPUTS = ("hex", "camel", "colon", "if", "caps", "english", "spanish", "icl")
DEFAULT_BUDGET = 2**16
"""Forward calls, the paper's; `auto` and `splitting` stop earlier where the answer is clear."""
METHODS = (
    "auto", "conditional", "exact", "given_last", "gld", "itgis", "leafwise", "mhis", "naive",
    "qld", "splitting",
)  # fmt: skip
PRESETS = Path(__file__).parent / "study" / "presets"
DRAWN = ("png", "svg", "pdf")
FORMATS = ("html", "md", "tex", *DRAWN)
KINDS = ("brute", "conditional")
MOST, SAMPLES = 2**17, 2**12
"""How many inputs a look runs if they are all there are, and how many of more."""
METHOD_GROUP = "longshot.methods"
"""The entry points by which other packages offer methods."""


def model_names() -> list[str]:
    """The shipped models, then the paper's on the hub."""
    return [*ZOO_NAMES, *HUB]


def method_names() -> list[str]:
    """The package's own methods, then those of other packages that are installed."""
    return [*METHODS, *(point.name for point in entry_points(group=METHOD_GROUP))]


def preset_names() -> list[str]:
    """The studies that ship with the package."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def smaller_label(label: str, budget: int) -> str:
    """What a method with several budgets is called at one that is not the largest."""
    return f"{label}-{budget}"
