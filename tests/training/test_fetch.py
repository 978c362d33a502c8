"""Fetching that is killed and run again writes what an uninterrupted run writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from training import clean, extract, fetch, tokenise
from training.sources import Source

_WORDS = (
    "able back call days each find give have into just keep life make name over part quite "
    "read same than upon very when xenon year zone"
)
WORDS = _WORDS.split()


def page(start: int) -> str:
    """Paragraphs that no other page has, but for the first."""
    order = [WORDS[(start + 7 * i) % 26] for i in range(26)]
    paragraphs = [" ".join(WORDS), *(" ".join([*order, f"of {'x' * n}"]) for n in range(1, 40))]
    return "\n\n".join(paragraphs)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    for start, name in enumerate(("one", "two", "three"), start=1):
        (folder / f"{name}.txt").write_text(page(start), encoding="utf-8")
    sources = tuple(
        Source(name, "english", "npm", name, f"{name}.txt", extract.plain, "MIT")
        for name in ("one", "two", "three")
    )
    monkeypatch.setattr(fetch, "SOURCES", sources)
    monkeypatch.setattr(fetch, "download", lambda source, packages: folder / source.package)
    monkeypatch.setattr(fetch, "unpack", lambda archive: folder)
    return folder


def texts(work: Path) -> dict[str, str]:
    return {
        path.name: path.read_text() for path in work.glob("text/**/*.*") if path.suffix != ".seen"
    }


def test_resumed_equals_uninterrupted(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetch.fetch(tmp_path / "whole") == []
    clean_prose = clean.clean_prose
    calls: Iterator[int] = iter(range(100))

    def dies_on_the_third(text: str, language: str, seen: clean.Deduplicator) -> str:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return clean_prose(text, language, seen)

    monkeypatch.setattr(clean, "clean_prose", dies_on_the_third)
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch(tmp_path / "parts")
    assert not (tmp_path / "parts" / "text" / "english" / "three.txt").exists()
    assert fetch.fetch(tmp_path / "parts") == []
    assert next(calls) == 4  # three sources, and the third once more
    whole = texts(tmp_path / "whole")
    assert texts(tmp_path / "parts") == whole
    assert sum(" ".join(WORDS) in text for text in whole.values()) == 1


def test_a_source_that_fails_is_named_and_the_rest_is_kept(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: Path, pattern: str) -> Iterator[str]:
        raise OSError("no such package")
        yield ""

    broken = Source("broken", "english", "npm", "broken", "*", fails, "MIT")
    good = Source("three", "english", "npm", "three", "three.txt", extract.plain, "MIT")
    monkeypatch.setattr(fetch, "SOURCES", (broken, good))
    assert fetch.fetch(tmp_path / "work") == ["english/broken"]
    assert (tmp_path / "work" / "text" / "english" / "three.txt").exists()


def test_split_text_is_read_whole(packages: Path, tmp_path: Path) -> None:
    fetch.fetch(tmp_path)
    held_in, held_out = tokenise.read_split(tmp_path / "text", "english")
    joined = "\n".join(held_in + held_out)
    for name in ("one", "two", "three", "alphabet"):
        for document in clean.read_documents(tmp_path / "text" / "english" / f"{name}.txt"):
            assert all(paragraph.strip() in joined for paragraph in document.split("\n\n"))
