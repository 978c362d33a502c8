from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
import torch

from longshot.errors import LongshotError
from longshot.inputs import CATALOGUE, Corpus, load_counts, load_inputs
from longshot.inputs.corpus import HubDataset, TextFile, parse_corpus
from longshot.models import Tokenizer, load_model
from longshot.truth import load_truth
from tests.toys import toy_tokenizer
from training.count import count_hexadecimal

TOY = toy_tokenizer(60)  # 0 is BOS, then a, b, c, …


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def cached() -> set[Path]:
    return set(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.safetensors"))


def test_the_shipped_tokenizer_has_its_tables(shipped: Tokenizer) -> None:
    counts = load_counts(shipped)
    for language, common in {"english": " the", "python": " self", "spanish": " de"}.items():
        table = counts.of(language)
        assert table.shape == (shipped.vocab_size,)
        assert table[shipped.single(common)] > 0.005 * table.sum()


def test_a_file_is_counted_with_its_bos(tmp_path: Path) -> None:
    table = load_counts(TOY, write(tmp_path / "a.txt", "abac")).of("english")
    assert table[:5].tolist() == [1, 2, 1, 1, 0]
    assert table.shape == (60,)


def test_every_document_ends_with_eos(shipped: Tokenizer, tmp_path: Path) -> None:
    files = [write(tmp_path / "a.txt", "one two"), write(tmp_path / "b.txt", "three")]
    table = load_counts(shipped, {"english": files}).of("english")
    ends = [shipped.bos, shipped.backend.token_to_id("<|EOS|>")]
    assert table[ends].tolist() == [2, 2]


def test_a_long_text_is_counted_as_if_in_one_piece(shipped: Tokenizer, tmp_path: Path) -> None:
    text = "def function(argument):\n    return argument + 1\n\n\n" * 500
    table = load_counts(shipped, write(tmp_path / "long.py", text)).of("python")
    whole = torch.bincount(torch.tensor(shipped.encode(text)), minlength=shipped.vocab_size)
    whole[[shipped.bos, 0]] += 1
    assert len(text) > 5 * 2**12
    assert (table - whole).abs().sum() <= 3 * len(text) / 2**12  # one seam every 2^12 characters


def test_a_corpus_takes_the_place_of_the_shipped_table(shipped: Tokenizer, tmp_path: Path) -> None:
    counts = load_counts(shipped, [f"english={write(tmp_path / 'a.txt', ' the the')}"])
    assert int(counts.of("english").sum()) < 10
    assert int(counts.of("python").sum()) > 10**6


def test_counts_are_kept_by_tokenizer_and_contents(tmp_path: Path) -> None:
    file = write(tmp_path / "unique.txt", "cabbage")
    before = cached()
    first = load_counts(TOY, file).of("english")
    (made,) = cached() - before
    moved = file.rename(tmp_path / "moved.txt")
    assert torch.equal(load_counts(TOY, moved).of("spanish"), first)
    assert cached() == before | {made}
    load_counts(toy_tokenizer(61), moved).of("english")
    load_counts(TOY, write(moved, "cabbages")).of("english")
    assert len(cached() - before) == 3


def test_a_damaged_cache_is_counted_again(tmp_path: Path) -> None:
    file = write(tmp_path / "damaged.txt", "deadbeef")
    before = cached()
    first = load_counts(TOY, file).of("english")
    (made,) = cached() - before
    made.write_bytes(made.read_bytes()[:-9])
    assert torch.equal(load_counts(TOY, file).of("english"), first)


def test_a_cache_that_cannot_be_written_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(write(tmp_path / "a file", "")))
    table = load_counts(TOY, write(tmp_path / "a.txt", "aa")).of("english")
    assert int(table[1]) == 2


def test_whose_text_is_whose(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.txt", "a"), write(tmp_path / "b=c.txt", "b")
    assert parse_corpus(None) == {}
    assert set(parse_corpus(a)) == {"english", "python", "spanish"}
    assert parse_corpus([f"python={a}", str(b)]) == {
        "english": (TextFile(b),),
        "python": (TextFile(a),),
        "spanish": (TextFile(b),),
    }
    assert parse_corpus({"spanish": [a, b]}) == {"spanish": (TextFile(a), TextFile(b))}
    assert parse_corpus("hf-dataset:allenai/c4:en")["english"] == (HubDataset("allenai/c4", "en"),)
    assert parse_corpus("paper") == {
        "english": (HubDataset("allenai/c4", "en"),),
        "python": (HubDataset("codeparrot/codeparrot-clean-train", None),),
        "spanish": (HubDataset("allenai/c4", "es"),),
    }


@pytest.mark.parametrize(
    ("corpus", "said"),
    [
        ("nowhere.txt", "no text file 'nowhere.txt'"),
        (["englsh=nowhere.txt"], "no text file 'englsh=nowhere.txt'; .*one of english"),
        ({"englsh": []}, "did you mean 'english'"),
        (".", "no text file '.'"),
    ],
)
def test_a_corpus_that_is_none_is_refused(corpus: Corpus, said: str) -> None:
    with pytest.raises(LongshotError, match=said):
        load_counts(TOY, corpus)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff")
    with pytest.raises(LongshotError, match=r"image\.png cannot be read"):
        load_counts(TOY, tmp_path / "image.png").of("english")


@pytest.mark.skipif(importlib.util.find_spec("datasets") is not None, reason="datasets is here")
def test_a_dataset_without_the_package_says_how_to_get_it() -> None:
    with pytest.raises(LongshotError, match=r"pip install 'longshot-lm\[paper\]'"):
        load_counts(TOY, "paper").of("python")


@pytest.mark.compat
def test_a_dataset_is_read_from_its_last_file_and_cut(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "set"
    folder.mkdir()
    for i, letter in enumerate("abc"):
        rows = [{"text": letter * 2**15}, {"text": letter}]
        lines = "\n".join(json.dumps(row) for row in rows)
        write(folder / f"train-{i}.jsonl", lines)
    table = load_counts(TOY, f"hf-dataset:{folder}").of("english", documents=3)
    assert table[:4].tolist() == [3, 0, 2**14 - 1, 2**14]


@pytest.mark.compat
def test_a_dataset_that_is_nowhere_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(LongshotError, match="could not be read"):
        load_counts(TOY, f"hf-dataset:{tmp_path}/none").of("english")


def test_the_shipped_tables_need_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or truth made on one machine would be refused on another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = load_model("mini-1l")
    for name in CATALOGUE:
        load_truth(model, load_inputs(name, model))  # refuses other frequencies
    assert not list(tmp_path.iterdir())


def test_the_shipped_hexadecimal_counts_are_the_recipes() -> None:
    tokenizer = load_model("mini-1l").tokenizer
    counted = count_hexadecimal(tokenizer.backend)
    assert load_counts(tokenizer).of("hexadecimal").tolist() == counted.tolist()
