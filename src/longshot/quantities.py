"""Whole numbers as people write them."""

from __future__ import annotations

import re

from longshot.errors import LongshotError

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
LARGEST = 2**63 - 1


def parse_count(text: str, noun: str = "calls") -> int:
    """A whole number: 4096, 4_096, 2**12, 2^12, 4k, 1.5M, 4Ki or 1e6, with or without its noun."""
    number = text.strip()
    count: int | None = None
    for word in (noun, "leaves", "samples") if noun == "leaves" else (noun,):
        number = number.removesuffix(word).rstrip()
    if power := re.fullmatch(r"(\d{1,4})\s*(?:\*\*|\^)\s*(\d{1,2})", number):
        count = int(power[1]) ** int(power[2])
    elif plain := re.fullmatch(r"(\d[\d_]*(?:\.\d+)?(?:e\+?\d{1,2})?)\s*([kmg]i?)?", number, re.I):
        digits = plain[1].replace("_", "")
        value = (float(digits) if re.search("[.e]", digits, re.I) else int(digits)) * (
            UNITS[(plain[2] or "").lower()]
        )
        count = int(value) if value == int(value) else None
    if count is None or not 0 <= count <= LARGEST:
        raise LongshotError(
            f"{text!r} is no number of {noun}; write for example 4096, 2**12, 4k or 1e6."
        )
    return count
