"""Cleaning keeps language once, and the held-out split is disjoint, complete and stable."""

import random
from pathlib import Path

from training import clean

WORDS = "time and tide wait for no man who sails against the western wind"


def prose(paragraphs: int, seed: int = 0) -> str:
    rng = random.Random(seed)
    words = WORDS.split()
    return "\n\n".join(" ".join(rng.choices(words, k=60)) + "." for _ in range(paragraphs))


def test_prose_is_joined_normalised_and_kept_once() -> None:
    seen = clean.Deduplicator()
    text = "Cafe\u0301 life is a wrapped\nparagraph of words.\n\n== 12.5 | 99 | 31 ==\n\nshort one"
    assert clean.clean_prose(text, "english", seen) == "Café life is a wrapped paragraph of words."
    again = "CAFÉ life is a wrapped  paragraph of words.\n\nBut this paragraph is quite new here."
    assert clean.clean_prose(again, "english", seen) == "But this paragraph is quite new here."


def test_a_deduplicator_goes_on_where_it_was() -> None:
    seen = clean.Deduplicator()
    assert seen.is_new("The same words")
    assert not clean.Deduplicator.from_bytes(seen.to_bytes()).is_new("the same  words")


def test_untranslated_paragraphs_are_not_spanish() -> None:
    text = "La orden escribe el nombre de los archivos.\n\nThis is the name of a file to be read."
    kept = clean.clean_prose(text, "spanish", clean.Deduplicator())
    assert kept == "La orden escribe el nombre de los archivos."


def test_code_keeps_indentation_and_loses_tables_and_licences() -> None:
    licence = "\n".join(f"# line {word} of a long licence text" for word in "abcdef")
    table = "    0x1F, 0x2E, 0x3D, 0x4C, 0x5B, 12345, 67890,"
    code = f"{licence}\n\ndef f(x):\n    return x\n\n{table}\n\n{'x' * 300}"
    seen = clean.Deduplicator()
    assert clean.clean_code(code, seen) == f"{licence}\n\ndef f(x):\n    return x"
    assert clean.clean_code(code, seen) == "def f(x):\n    return x"


def test_pieces_join_to_the_document() -> None:
    for document in (prose(100), "x" * 9000, "short", "a. " * 4000, ""):
        assert "".join(clean.pieces(document)) == document


def test_split_is_disjoint_complete_and_about_two_per_cent() -> None:
    document = prose(4000)
    held_in, held_out = clean.split(document)
    inside = {p for part in held_in for p in part.split("\n\n")}
    outside = {p for part in held_out for p in part.split("\n\n")}
    assert not inside & outside
    assert inside | outside == set(document.split("\n\n"))
    share = sum(map(len, held_out)) / len(document)
    assert 0.01 < share < 0.03
    assert clean.split(document) == (held_in, held_out)


def test_capitals_are_screamed_now_and_then() -> None:
    document = prose(2000)
    shouted = clean.with_capitals(document)
    capitals = sum(c.isupper() for c in shouted) / len(shouted)
    assert 0.005 < capitals < 0.04
    assert 'He screamed: "' in shouted
    assert 'She screamed: "' in shouted


def test_documents_survive_the_file(tmp_path: Path) -> None:
    documents = ["one\n\ntwo", "three"]
    path = tmp_path / "text.txt"
    path.write_text(clean.join_documents(documents), encoding="utf-8")
    assert [d.strip("\n") for d in clean.read_documents(path)] == documents
