"""Each format gives back the text that was put in."""

import gzip
import struct
import zlib
from pathlib import Path

from training import alphabet, extract


def test_html_leaves_code_and_navigation_out() -> None:
    page = (
        "<head><title>t</title></head><nav>Next <nav>x</nav></nav><h1>Title¶</h1>"
        "<p>One &amp; <b>two</b><br>three</p><pre>code()</pre><ul><li>item</li></ul><p>open"
    )
    assert extract.html_text(page).split("\n\n") == ["Title", "One & two three", "item", "open"]


def test_manual_page(tmp_path: Path) -> None:
    source = '.\\" comment\n.SH NAME\n\\fBls\\fP \\- lista\n.PP\nuno\n.B dos\n'
    (tmp_path / "ls.1.gz").write_bytes(gzip.compress(source.encode()))
    (text,) = extract.man(tmp_path, "*.gz")
    assert " ".join(text.split()) == "ls - lista uno dos"
    assert "lista\n\n" in text


def test_sword_module(tmp_path: Path) -> None:
    blocks = [
        zlib.compress(t.encode()) for t in ("<p>In the <w>beginning</w>", "and <note>n</note>.")
    ]
    index = struct.pack("<III", 0, len(blocks[0]), 0)
    index += struct.pack("<III", len(blocks[0]), len(blocks[1]), 0)
    (tmp_path / "ot.bzs").write_bytes(index)
    (tmp_path / "ot.bzz").write_bytes(b"".join(blocks))
    texts = [" ".join(text.split()) for text in extract.sword(tmp_path, "*.bzs")]
    assert texts == ["In the beginning", "and ."]


def test_novels_in_an_r_database(tmp_path: Path) -> None:
    def chunk(lines: list[str]) -> bytes:
        strings = (b"\0\4\0\x09" + struct.pack(">i", len(x)) + x.encode() for x in lines)
        data = b"X\n" + b"".join(strings)
        return struct.pack(">i", len(data)) + zlib.compress(data)

    path = tmp_path / "Rdata.rdb"
    path.write_bytes(chunk(["EMMA", "CHAPTER I", "Emma", "", "rich"]) + chunk(["PERSUASION"]))
    novels = list(extract.r_novels(tmp_path, "*.rdb"))
    assert novels == ["EMMA", "CHAPTER I\nEmma\n\nrich", "PERSUASION"]


def test_alphabet_lines_have_the_pattern_and_all_letters() -> None:
    words = [f"{letter}ord" for letter in "abcdefghijklmnopqrstuvwxyz"]
    counts = alphabet.word_counts([" ".join(words)])
    documents = alphabet.alphabet_documents(counts, 20_000)
    assert documents == alphabet.alphabet_documents(counts, 20_000)
    letters = set()
    for line in "\n".join(documents).split("\n"):
        parts = line.split(" ")
        assert parts[1::3] == ["for"] * (len(parts) // 3)
        assert all(a == w[0].upper() for a, w in zip(parts[::3], parts[2::3], strict=True))
        letters |= set(parts[::3])
    assert len(letters) == 26
