"""From extracted text to documents worth training on, and the split into held-in and held-out.

A document is a string of paragraphs (prose) or of source lines (Python). Cleaning drops what
is not language and what was seen before; `split` then decides, by a hash of each piece of about
2000 characters, which pieces are never trained on. The rule needs no state, so the tokenizer,
the token counts and the training stream agree on it without sharing a file.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

SEPARATOR = "\x1e\n"  # ASCII "record separator": stands between the documents of one file
PIECE_CHARACTERS = 2000
HELD_OUT_ONE_IN = 50  # 2 %
CAPITALS_ONE_IN = 60  # of the English pieces, so that capitals have tokens and contexts

MINIMUM_PARAGRAPH = 20
LONGEST_CODE_LINE = 160
LONGEST_REPEATED_CODE = 120  # shorter blocks of code repeat honestly (imports, `return None`)

_SPANISH = "el la los las de del que en un una por para con se es su al lo como más y o no si"
_ENGLISH = "the of and to in is that for it with as be this on are by or not from an if"
SPANISH_WORDS = frozenset(_SPANISH.split())
ENGLISH_WORDS = frozenset(_ENGLISH.split())


def normalise(text: str) -> str:
    """NFC, plain line ends, no control characters or invisible marks."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = text.replace("\xa0", " ").replace("\u2028", "\n")
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\ufeff\ufffd]", "", text)


def one_line(text: str) -> str:
    """A paragraph with its wrapped lines joined."""
    return " ".join(text.split())


def is_language(paragraph: str) -> bool:
    """Mostly letters, of a useful length: not a table row, a path, a number or a rule of dashes."""
    visible = [c for c in paragraph if not c.isspace()]
    if len(paragraph) < MINIMUM_PARAGRAPH or not visible:
        return False
    letters = sum(c.isalpha() and c < "\u0250" for c in visible)
    return letters / len(visible) >= 0.75 and paragraph.count(" ") >= 3


def is_spanish(paragraph: str) -> bool:
    """Translated manuals keep untranslated paragraphs; common words tell the two apart."""
    words = re.findall(r"[^\W\d_]+", paragraph.lower())
    spanish = sum(w in SPANISH_WORDS for w in words)
    return spanish >= 1 and spanish > sum(w in ENGLISH_WORDS for w in words)


class Deduplicator:
    """Remembers what it has been shown, by a short hash that ignores case and spacing."""

    KEY_BYTES = 8

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def is_new(self, text: str) -> bool:
        folded = " ".join(text.casefold().split()).encode()
        key = hashlib.blake2b(folded, digest_size=self.KEY_BYTES).digest()
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def to_bytes(self) -> bytes:
        """The hashes of everything seen, for a run that goes on from here."""
        return b"".join(sorted(self._seen))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Deduplicator":
        seen = cls()
        step = cls.KEY_BYTES
        seen._seen = {data[i : i + step] for i in range(0, len(data), step)}
        return seen


def clean_prose(text: str, language: str, seen: Deduplicator) -> str:
    """The paragraphs (separated by blank lines) of `text` that are new and are language."""
    kept = []
    for paragraph in re.split(r"\n\s*\n", normalise(text)):
        paragraph = one_line(paragraph)
        if not is_language(paragraph) or (language == "spanish" and not is_spanish(paragraph)):
            continue
        if seen.is_new(paragraph):
            kept.append(paragraph)
    return "\n\n".join(kept)


def clean_code(text: str, seen: Deduplicator) -> str:
    """Source without data tables, over-long lines, or blocks (licences) met in another file."""
    kept = []
    for block in re.split(r"\n[ \t]*\n", normalise(text).expandtabs(8)):
        lines = [line.rstrip() for line in block.split("\n")]
        lines = [line for line in lines if len(line) <= LONGEST_CODE_LINE and _is_code(line)]
        block = "\n".join(lines).strip("\n")
        if block.strip() and (len(block) < LONGEST_REPEATED_CODE or seen.is_new(block)):
            kept.append(block)
    return "\n\n".join(kept)


def _is_code(line: str) -> bool:
    """False for rows of numbers and for lines in scripts the vocabulary cannot serve."""
    visible = [c for c in line if not c.isspace()]
    digits = sum(c.isdigit() for c in visible)
    foreign = sum(c > "\u024f" for c in visible)
    return (len(visible) < 12 or digits <= 0.4 * len(visible)) and foreign <= 0.1 * len(visible)


def pieces(document: str) -> Iterator[str]:
    """`document` cut at paragraph ends (or sentence or line ends) after every 2000 characters.

    The pieces joined give the document again, so that neighbours can be put back together.
    """
    start = 0
    while len(document) - start > PIECE_CHARACTERS:
        earliest, latest = start + PIECE_CHARACTERS, start + 2 * PIECE_CHARACTERS
        for mark in ("\n\n", "\n", ". ", " "):
            at = document.find(mark, earliest, latest)
            if at >= 0:
                end = at + len(mark)
                break
        else:
            end = min(latest, len(document))
        yield document[start:end]
        start = end
    if start < len(document):
        yield document[start:]


def chosen(piece: str, one_in: int, purpose: str) -> bool:
    """A fixed pseudo-random choice of one piece in `one_in`, independent between purposes."""
    digest = hashlib.sha256(f"{purpose}\0{piece.strip()}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % one_in == 0


def split(document: str) -> tuple[list[str], list[str]]:
    """Held-in and held-out parts; held-in neighbours stay together, as one document."""
    held_in: list[str] = []
    held_out: list[str] = []
    run: list[str] = []
    for piece in pieces(document):
        if chosen(piece, HELD_OUT_ONE_IN, "held-out"):
            held_out.append(piece.strip("\n"))
            held_in.append("".join(run).strip("\n"))
            run = []
        else:
            run.append(piece)
    held_in.append("".join(run).strip("\n"))
    return [part for part in held_in if part.strip()], [part for part in held_out if part.strip()]


def with_capitals(document: str) -> str:
    """Shout one piece in sixty: `He screamed: "…"` around capitals, which novels rarely have."""
    said = ("screamed", "shouted", "cried", "screamed")
    out = []
    for piece in pieces(document):
        if chosen(piece, CAPITALS_ONE_IN, "capitals"):
            sentences = re.split(r"(?<=[.?!;])\s+", one_line(piece).replace('"', "").upper())
            groups = [" ".join(sentences[i : i + 2]) for i in range(0, len(sentences), 2)]
            piece = "\n\n".join(
                f'{("He", "She")[len(text) % 2]} {said[len(text) // 2 % 4]}: "{text}"'
                for text in groups
            )
            piece += "\n\n"
        out.append(piece)
    return "".join(out)


def read_documents(path: Path) -> list[str]:
    """The documents of one text file."""
    return [d for d in path.read_text(encoding="utf-8").split(SEPARATOR) if d.strip()]


def join_documents(documents: Iterable[str]) -> str:
    """The file that `read_documents` reads."""
    return SEPARATOR.join(document.strip("\n") + "\n" for document in documents)
