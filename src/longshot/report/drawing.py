"""What all charts are drawn with: named records, one look for each method, axes and hollow marks.

Names of models, inputs and tokens only ever stand in records and domains, never as a literal of a
Vega expression: it would take one such as "if" for its function of that name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import altair as alt
from altair.utils import schemapi

from longshot.errors import visible
from longshot.report.embed import power_of_ten
from longshot.report.style import PAPER, Look, config

Chart = Any
"""An Altair chart: of one panel, of layers, facets or several charts."""
Record = dict[str, Any]
ALL = 640
"""The width of a chart on paper; a page may stretch those of one panel."""


ALWAYS = {"truth", "estimate", "fitted", "MACs", "seconds", "multiply-accumulates",
          "multiply-accumulates, shared", "seconds, shared", "temperature"}  # fmt: skip
"""Numbers that no record lacks."""


def named(name: str) -> alt.NamedData:
    """A chart's records by their name, by which charts share them on a page."""
    return alt.NamedData(name)


def finished(chart: Any, records: Mapping[str, Sequence[Record]], **properties: Any) -> Chart:
    """A chart with its records and the look that all have in common."""
    done = chart.properties(**properties).configure(**config())
    done.datasets = dict(records)  # plain already: Altair would look at each of their fields
    return done


def spec_of(chart: Chart) -> dict[str, Any]:
    """A chart as Vega-Lite, checked against its schema but for the records, with the records."""
    bare = chart.copy(deep=False)
    bare.datasets = {}
    spec: dict[str, Any] = bare.to_dict(validate=schemapi.DEBUG_MODE)
    return spec | {"datasets": chart.datasets}


def specs(charts: Mapping[str, Callable[[], Chart]]) -> dict[str, dict[str, Any]]:
    """Charts as Vega-Lite, unchecked: Altair would check every step of their making.

    That takes a third of the time, and no input of a user's can make a chart wrong; the tests check
    them all.
    """
    with schemapi.debug_mode(False):
        return {name: spec_of(make()) for name, make in charts.items()}


def look(
    styles: Mapping[str, Look], labels: Iterable[str], field: str = "method", legend: bool = True
) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape of a method, under one legend."""
    shown = [label for label in styles if label in set(labels)]
    key = alt.Legend(title=None, symbolOpacity=1) if legend else None
    colours, shapes = ([getattr(styles[x], part) for x in shown] for part in ("colour", "shape"))
    return (
        alt.Color(f"{field}:N").scale(domain=shown, range=colours).legend(key),
        alt.Shape(f"{field}:N").scale(domain=shown, range=shapes).legend(key),
    )


def marks(base: Any, shape: alt.Shape, when: str, **mark: Any) -> list[Any]:
    """The points of a chart, filled, and those where `when` holds hollow."""
    base = base.encode(shape=shape)
    filled = base.mark_point(filled=True, **mark).transform_filter(f"!datum.{when}")
    hollow = base.mark_point(filled=False, fill=PAPER[0], strokeWidth=1.2, **mark)
    return [filled, hollow.transform_filter(f"datum.{when}")]


def tip(*fields: str) -> list[alt.Tooltip]:
    """What a mark says when it is pointed at; a number that may be missing stands as it is."""
    return [
        alt.Tooltip(field, type="quantitative", format=".3~g")
        if field in ALWAYS
        else alt.Tooltip(field, type="nominal")
        for field in fields
    ]


def powers(
    low: float, high: float, title: str | None, most: int = 5, flush: bool = False
) -> alt.Axis:
    """A logarithmic axis whose ticks are powers of ten, or finer steps where it is short.

    With `flush` a label near an end stays within it, and out of the next panel.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1,) if math.log10(high / low) >= 1.5 else (1, 2, 5)
    ticks = [m * 10.0**n for n in range(first, last + 1) for m in steps]
    ticks = [tick for tick in ticks if low <= tick <= high]
    ticks = ticks[:: max(1, math.ceil(len(ticks) / most))]
    spelt = [f"{t:g}" if 1e-2 <= t < 1e4 else power_of_ten(t, 0).removeprefix("1×") for t in ticks]
    label = f"{json.dumps(spelt)}[indexof({json.dumps(ticks)}, datum.value)]"
    return alt.Axis(values=ticks, labelExpr=label, title=title, labelFlush=14 if flush else False)


def logarithmic(low: float, high: float) -> alt.Scale:
    """A logarithmic scale that ends where it is told to."""
    return alt.Scale(type="log", domain=[low, high], nice=False, clamp=True)


def names_of(names: Sequence[str]) -> str:
    """An expression that gives the label of each whole number on an axis; no literal is bare."""
    return f"slice({json.dumps([f'·{visible(name)}' for name in names])}[datum.value], 1)"


def placed(records: list[Record], **orders: Sequence[str]) -> list[Record]:
    """The records with the place of some of their fields in an order, for `by_place`."""
    for record in records:
        for field, order in orders.items():
            record[f"{field} place"] = order.index(record[field])
    return records


def by_place(field: str) -> Any:
    """In the order that `placed` gave a field."""
    return alt.EncodingSortField(f"{field} place", op="min")


def span(values: Iterable[float | None], room: float = 1.4) -> tuple[float, float]:
    """The ends of a logarithmic axis on which all these values have room."""
    known = [value for value in values if value is not None and value > 0] or [1e-7, 1e-4]
    return min(known) / room, max(known) * room


def panels(layers: Any, records: list[Record]) -> Any:
    """A panel for each distribution, four to a row."""
    columns = min(len({record["inputs"] for record in records}), 4) or 1
    facet = alt.Facet("inputs:N").sort(by_place("inputs")).title(None)
    return layers.properties(width=max(110, (ALL - 70) // columns), height=120).facet(
        facet, columns=columns
    )
