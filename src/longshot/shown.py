"""How results show themselves in notebooks: a table, and a chart by `.plot()`.

What draws them stands above what they are, in `longshot.report`, and is loaded when it is asked.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Shown:
    """Something that a notebook shows as a small table and that can be plotted."""

    def _repr_html_(self) -> str:
        return str(import_module("longshot.report.notebook").as_table(self))

    def plot(self, *what: Any, **options: Any) -> Any:
        """The Altair chart of it; see `longshot.report.notebook.plot`."""
        return import_module("longshot.report.notebook").plot(self, *what, **options)
