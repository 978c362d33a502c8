"""GGUF files, converted once: what `transformers` makes of one is kept in the user's cache.

The copy stands in a folder named by the file's own checksum and the precision asked for, whole or
not at all, and is as large as the weights are when they are not packed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

_BLOCK = 2**22


def cache_folder(kind: str) -> Path:
    """Where this package keeps what it can make again."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "longshot" / kind


def converted(file: Path, precision: str) -> Path:
    """The folder of the copy of a file, there already or not."""
    digest = hashlib.sha256(f"{precision} {version('transformers')} ".encode())
    with file.open("rb") as source:
        while block := source.read(_BLOCK):
            digest.update(block)
    return cache_folder("gguf") / digest.hexdigest()[:32]


def keep(folder: Path, save: Callable[[str], Any]) -> None:
    """Put what `save` writes there; a cache that cannot be written only costs time."""
    with contextlib.suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            made = Path(place) / "made"
            save(str(made))
            made.rename(folder)  # fails where another process was first
