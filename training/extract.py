"""Text out of packages: HTML pages, manual pages, SWORD modules, R data, plain files.

Each extractor takes the folder of an unpacked package (and a glob for its files) and yields
raw documents; `clean` decides what of them is kept.
"""

import gzip
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

Extractor = Callable[[Path, str], Iterator[str]]

_BLOCK_TAGS = "p li dd dt h1 h2 h3 h4 h5 h6 div td th tr table section article blockquote caption"
_SKIPPED_TAGS = "script style head header footer nav aside pre button svg math select textarea"
_VOID_TAGS = "br hr img input link meta col wbr area base source"
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_SKIPPED = frozenset(_SKIPPED_TAGS.split())
_VOID = frozenset(_VOID_TAGS.split())


class _Paragraphs(HTMLParser):
    """Collects the text of block elements as paragraphs; code and navigation are left out."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.paragraphs: list[str] = []
        self._current: list[str] = []
        self._skipping: list[str] = []

    def flush(self) -> None:
        text = " ".join("".join(self._current).split())
        if text:
            self.paragraphs.append(text.removesuffix("¶").strip())
        self._current = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipping:
            if tag == self._skipping[0]:
                self._skipping.append(tag)
        elif tag in _SKIPPED:
            self._skipping.append(tag)
        elif tag in _BLOCKS:
            self.flush()
        elif tag in _VOID:
            self._current.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag == self._skipping[0]:
                self._skipping.pop()
        elif tag in _BLOCKS:
            self.flush()

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self._current.append(data)


def html_text(page: str) -> str:
    """The paragraphs of a page, separated by blank lines."""
    parser = _Paragraphs()
    parser.feed(page)
    parser.close()
    parser.flush()
    return "\n\n".join(parser.paragraphs)


def html(folder: Path, pattern: str) -> Iterator[str]:
    """One document a page."""
    for path in sorted(folder.glob(pattern)):
        if path.is_file() and not path.name.startswith(("genindex", "search", "bookindex")):
            yield html_text(path.read_text(encoding="utf-8", errors="replace"))


def plain(folder: Path, pattern: str) -> Iterator[str]:
    """One document a file."""
    for path in sorted(folder.glob(pattern)):
        yield path.read_text(encoding="utf-8", errors="replace")


def speeches(folder: Path, pattern: str) -> Iterator[str]:
    """Speeches stored as one endless line: a paragraph every five sentences."""
    for text in plain(folder, pattern):
        sentences = re.split(r"(?<=[.?!]) +(?=[A-Z])", text)
        groups = (sentences[i : i + 5] for i in range(0, len(sentences), 5))
        yield "\n\n".join(" ".join(group) for group in groups)


def fortunes(folder: Path, pattern: str) -> Iterator[str]:
    """Sayings separated by a line with a per cent sign."""
    for text in plain(folder, pattern):
        yield re.sub(r"(?m)^%+$", "\n\n", text)


def python_source(folder: Path, pattern: str) -> Iterator[str]:
    """Source files, without generated tables and test data that is not meant to be read."""
    unwanted = re.compile(r"/(site-packages|encodings|pydoc_data|lib2to3/tests/data|__pycache__)/")
    for path in sorted(folder.glob(pattern)):
        if path.is_file() and not unwanted.search(path.as_posix()):
            try:
                yield path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue


def man_text(source: str) -> str:
    """The running text of a manual page; its macros only break paragraphs."""
    lines: list[str] = []
    for line in source.split("\n"):
        if line.startswith((".\\", "'\\", "..")):
            continue
        if re.match(r"\.\s*(B|I|BR|IR|RB|RI|IB|BI|SM)\b", line):
            line = re.sub(r"^\.\s*\w+\s*", "", line).replace('"', "")
        elif line.startswith((".", "'")):
            line = "\n"
        line = re.sub(r"\\f(\[\w*\]|\(..|.)", "", line)
        line = re.sub(r"\\[,/&:!|^%]", "", line)
        line = line.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")
        line = re.sub(r"\\(\(..|\[\w+\]|s[-+]?\d|.)", " ", line)
        lines.append(line)
    return "\n".join(lines)


def man(folder: Path, pattern: str) -> Iterator[str]:
    """One document a manual page."""
    for path in sorted(folder.glob(pattern)):
        if path.is_file():
            yield man_text(gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace"))


def sword(folder: Path, pattern: str) -> Iterator[str]:
    """A SWORD `zText` module: an index of (offset, size, size unpacked), zlib blocks, OSIS markup.

    Verses are found as the runs of text between tags, so the verse index is not needed. One
    document a block (a book).
    """
    for index in sorted(folder.glob(pattern)):
        blocks = index.with_suffix(".bzz").read_bytes()
        for offset, size, _ in struct.iter_unpack("<III", index.read_bytes()):
            text = zlib.decompress(blocks[offset : offset + size]).decode("utf-8", "replace")
            text = re.sub(r"(?s)<(note|title)\b.*?</\1>", " ", text)
            text = re.sub(r"<(/?(p|l|lg|div|chapter)|milestone)\b[^>]*>", "\n\n", text)
            text = re.sub(r"<[^>]*>", "", text)
            yield text.replace("¶", "\n\n")


def r_strings(data: bytes) -> list[str]:
    """The strings of a serialised R character vector (XDR: CHARSXP flags, length, bytes)."""
    strings: list[str] = []
    at = 0
    header = re.compile(rb"\x00[\x00-\x04]\x00\x09")
    while (match := header.search(data, at)) is not None:
        (length,) = struct.unpack_from(">i", data, match.end())
        at = match.end() + 4 + max(length, 0)
        strings.append(data[match.end() + 4 : at].decode("utf-8", errors="replace"))
    return strings


def r_novels(folder: Path, pattern: str) -> Iterator[str]:
    """An R lazy-load database: chunks of a length and a zlib stream; one novel each, by chapter."""
    for path in sorted(folder.glob(pattern)):
        rest = path.read_bytes()
        while rest:
            stream = zlib.decompressobj()
            novel = stream.decompress(rest[4:])
            rest = stream.unused_data
            chapter: list[str] = []
            for line in r_strings(novel):
                if re.match(r"(?i)(chapter|volume) ", line) and chapter:
                    yield "\n".join(chapter)
                    chapter = []
                chapter.append(line.replace("_", ""))
            yield "\n".join(chapter)
