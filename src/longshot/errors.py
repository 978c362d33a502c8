"""The one exception for a user's mistake, and the sentence it carries."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LongshotError(Exception):
    """Something the user can put right: what was wrong, where, and what would be right."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> LongshotError:
    """The error for a misspelt name, with the nearest names that exist."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(repr(n) for n in near)}?"
    else:
        hint = f"known: {', '.join(known)}."
    return LongshotError(f"There is no {kind} named {name!r}; {hint}")


def visible(text: str) -> str:
    """One line that does nothing to a terminal: what does not print stands as its escape.

    Whatever is not ours (names, paths, texts of tokens) goes through here before it is shown.
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def first_line(error: BaseException) -> str:
    """The first line of another library's message, or the error's type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def needs(what: str, package: str, extra: str) -> LongshotError:
    """The error for an optional package that is not installed, with the two ways to install it."""
    return LongshotError(
        f"{what} needs the package {package}: pip install '.[{extra}]' in a clone of longshot, "
        f"or pip install 'longshot-lm[{extra}]'."
    )
