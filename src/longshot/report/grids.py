"""A table as plain values, and its three spellings: Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from functools import cached_property

from longshot.errors import visible
from longshot.report.embed import RAISED


@dataclass(frozen=True)
class Field:
    """One field of a table: its text, the number it sorts by, and what stands small beside it."""

    text: str
    value: float | None = None
    beside: str = ""
    best: bool = False


@dataclass(frozen=True)
class Grid:
    """A table; the first column names its row. `footer` rows stay below when others are sorted."""

    name: str
    title: str
    note: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Field, ...], ...]
    footer: tuple[tuple[Field, ...], ...] = ()
    group: str = ""
    """The model that it is about, where it is about one."""
    loss: str = ""
    """The loss that it is about, where a chooser of the page asks for one."""

    @cached_property
    def is_text(self) -> tuple[bool, ...]:
        """Which columns hold names and no numbers."""
        columns = zip(*self.rows, strict=True) if self.rows else ((),) * len(self.headings)
        numbers = [any(entry.value is not None for entry in column) for column in columns]
        return tuple(i == 0 or not found for i, found in enumerate(numbers))


def as_markdown(grid: Grid) -> str:
    """A pipe table under its title, with its note."""

    def field(entry: Field) -> str:
        text = _markdown(entry.text)
        beside = f" {_markdown(entry.beside)}" if entry.beside else ""
        return (f"**{text}**" if entry.best else text) + beside

    align = [":--" if text else "--:" for text in grid.is_text]
    lines = [_pipes([_markdown(h) for h in grid.headings]), _pipes(align)]
    lines += [_pipes([field(entry) for entry in row]) for row in grid.rows]
    lines += [
        _pipes([f"*{field(row[0])}*", *(field(entry) for entry in row[1:])]) for row in grid.footer
    ]
    table = "\n".join(lines)
    return f"### {_markdown(grid.title)}\n\n{table}\n\n{_markdown(grid.note)}\n"


def _pipes(fields: list[str]) -> str:
    return f"| {' | '.join(fields)} |"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", visible(" ".join(text.split())))


def as_latex(grid: Grid) -> str:
    """A booktabs table, to be taken in by \\input."""

    def field(entry: Field) -> str:
        text = _latex(entry.text)
        beside = rf" {{\scriptsize {_latex(entry.beside)}}}" if entry.beside else ""
        return (rf"\textbf{{{text}}}" if entry.best else text) + beside

    def line(row: tuple[Field, ...]) -> str:
        return "  " + " & ".join(field(entry) for entry in row) + r" \\"

    body = [line(row) for row in grid.rows]
    if grid.footer:
        body += [r"  \midrule", *(line(row) for row in grid.footer)]
    columns = "".join("l" if text else "r" for text in grid.is_text)
    headings = " & ".join(_latex(heading) for heading in grid.headings)
    return "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering\small",
            rf"\caption{{{_latex(grid.title)}. {_latex(grid.note)}}}",
            rf"\label{{tab:{re.sub(r'[^a-zA-Z0-9]+', '-', grid.name)}}}",
            rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
            r"  \toprule",
            f"  {headings} " + r"\\",
            r"  \midrule",
            *body,
            r"  \bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "±": r"$\pm$", "–": "--", "−": "$-$", "×": r"$\times$", "…": r"\dots{}",
}  # fmt: skip


def _latex(text: str) -> str:
    spelt = "".join(
        _LATEX.get(character, character) for character in visible(" ".join(text.split()))
    )
    plain = str.maketrans(RAISED, "-0123456789")
    return re.sub(f"[{RAISED}]+", lambda found: f"$^{{{found[0].translate(plain)}}}$", spelt)


def as_html(grid: Grid) -> str:
    """A figure with a table that the page's script can sort."""

    def field(entry: Field, column: int) -> str:
        tag = "td" if column else 'th scope="row"'
        kind = ' class="best"' if entry.best else ' class="text"' if grid.is_text[column] else ""
        value = "" if entry.value is None else f' data-value="{entry.value:.6g}"'
        beside = f"<small>{html.escape(entry.beside)}</small>" if entry.beside else ""
        return f"<{tag}{kind}{value}>{html.escape(entry.text)}{beside}</{tag[:2]}>"

    def line(row: tuple[Field, ...]) -> str:
        return f"<tr>{''.join(field(entry, i) for i, entry in enumerate(row))}</tr>"

    heads = "".join(
        f'<th scope="col"{" class=text" if text else ""}>'
        f'<button type="button">{html.escape(heading)}</button></th>'
        for heading, text in zip(grid.headings, grid.is_text, strict=True)
    )
    foot = f"<tfoot>{''.join(line(row) for row in grid.footer)}</tfoot>" if grid.footer else ""
    return (
        f'<figure class="table" data-model="{html.escape(grid.group)}" '
        f'data-loss="{html.escape(grid.loss)}" data-name="{html.escape(grid.name)}">'
        f"<figcaption><b>{html.escape(grid.title)}</b> <span>{html.escape(grid.note)}</span>"
        f'</figcaption><div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(line(row) for row in grid.rows)}</tbody>{foot}</table></div></figure>"
    )
