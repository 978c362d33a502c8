"""What is written appears whole, and only where a file may be."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from longshot.errors import LongshotError
from longshot.files import try_place, write_whole


@pytest.mark.parametrize("write", [try_place, lambda path: write_whole(path, "text")])
def test_only_a_file_is_replaced(write: Callable[[Path], None], tmp_path: Path) -> None:
    """A device or a pipe would be lost to whoever may write in its folder: `--html /dev/full`."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(LongshotError, match=f"{path.name} cannot be .*: it is no regular file"):
            write(path)
    with pytest.raises(LongshotError, match="it is a folder"):
        write(tmp_path)
    assert stat.S_ISFIFO(link.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [link, pipe]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    for text in ("one", "two"):
        try_place(path)
        write_whole(path, text)
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]
