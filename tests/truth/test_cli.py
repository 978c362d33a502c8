"""`longshot truth`, from making to the table in the docs, on a toy behind the shipped tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from longshot.cli import truth  # noqa: F401
from longshot.cli.app import app
from longshot.errors import LongshotError
from longshot.models.checkpoints import ZOO
from longshot.truth.store import Store
from longshot.truth.tables import default_store
from tests.checkpoint_files import write_config_and_weights
from tests.toys import toy_network


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_config_and_weights(folder, toy_network(layers=1, vocab=4096, context=40))
    shutil.copy(ZOO / "tokenizer.json", folder)
    return folder


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["truth", *map(str, arguments)])
    if isinstance(result.exception, LongshotError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def make(model: Path, store: Path, *more: object) -> str:
    return run("make", "--model", model, "--inputs", "icl,hex", "--store", store, *more)


def test_make_show_export_import_merge_and_table(model: Path, tmp_path: Path) -> None:
    store, again = tmp_path / "store.sqlite", tmp_path / "again.sqlite"
    goal = ("--until", "4000 leaves", "--shard", "2000")
    printed = make(model, store, *goal)
    assert "tokens seen in 1e-7:1e-4" in printed
    summaries = json.loads(run("show", store, "--json"))
    assert {row["inputs"] for row in summaries} == {"hex", "icl"}
    assert all(row["leaves"] >= 4000 for row in summaries)
    assert "0 leaves in" in make(model, store, *goal)
    tables = tmp_path / "tables"
    run("export", "--store", store, "--to", tables)
    assert {path.name for path in tables.iterdir()} == {
        "tiny-hex.safetensors",
        "tiny-icl.safetensors",
    }
    for table in tables.iterdir():
        run("import", table, "--store", again)
    assert json.loads(run("show", again, "--json")) == json.loads(run("show", tables, "--json"))
    assert "0 leaves in" in make(model, again, *goal)
    other = tmp_path / "other.sqlite"
    make(model, other, *goal, "--seed", 1)
    assert "0 were there already" in run("merge", again, other)
    assert all(r["leaves"] >= 8000 for r in json.loads(run("show", again, "--json")))
    assert run("table", again).count("| tiny |") == 2
    assert "tiny" in run("show", again)


def test_the_papers_file_is_imported(model: Path, tmp_path: Path) -> None:
    counts = torch.zeros(4096, dtype=torch.int64)
    counts[7] = 2**32
    file = tmp_path / "frequencies32-hex.pt"
    torch.save(counts, file)
    store = tmp_path / "store.sqlite"
    run("import", file, "--model", model, "--store", store)
    (row,) = json.loads(run("show", store, "--json"))
    assert (row["samples"], row["inputs"]) == ({"brute": 2**32}, "hex")
    with pytest.raises(LongshotError, match="--model M"):
        run("import", file, "--store", store)


def test_the_papers_file_is_imported_under_a_foreign_tokenizer(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frequencies are not shipped: they are counted in a corpus, which can be named."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    foreign = shutil.copytree(model, tmp_path / "foreign") / "tokenizer.json"
    foreign.write_text(foreign.read_text().replace('"<|BOS|>"', '"<s>"'))
    code = tmp_path / "code.py"
    code.write_text("class ErrorName: pass\nclass NameError: pass")
    counts = torch.zeros(4096, dtype=torch.int64)
    counts[7] = 2**32
    file, store = tmp_path / "frequencies32-camel.pt", tmp_path / "store.sqlite"
    torch.save(counts, file)
    arguments = ("import", file, "--model", foreign.parent, "--store", store)
    with pytest.raises(LongshotError, match="corpus"):
        run(*arguments)
    run(*arguments, "--corpus", f"python={code}")
    (row,) = json.loads(run("show", store, "--json"))
    assert (row["samples"], row["inputs"]) == ({"brute": 2**32}, "camel")


def test_mistakes_are_sentences(model: Path, tmp_path: Path) -> None:
    store = tmp_path / "s"
    for more, reason in (
        ((), "Say when to stop"),
        (("--until", "many"), "no number of leaves"),
        (("--until", "2**14 samples"), "counts leaves, not samples"),
        (("--minutes", "1", "--range", "x"), "no range"),
        (("--minutes", "1", "--kind", "brut"), "did you mean 'brute'"),
        (("--minutes", "1", "--engine", "rai"), "did you mean 'ray'"),
        (("--minutes", "1", "--workers", "0"), "at least one worker"),
    ):
        with pytest.raises(LongshotError, match=reason):
            make(model, store, *more)
    with pytest.raises(LongshotError, match="no distribution of inputs named 'hexx'"):
        run("make", "--model", model, "--inputs", "hexx", "--minutes", "1", "--store", store)
    with pytest.raises(LongshotError, match="There is no truth at"):
        run("show", tmp_path / "absent")
    with pytest.raises(LongshotError, match="There is no file"):
        run("import", tmp_path / "absent.safetensors")
    with pytest.raises(LongshotError, match="no truth store at"):
        run("export", "--store", tmp_path / "absent")


def test_a_small_goal_makes_no_large_shard(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was made stands beside what ships."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = default_store()
    run("make", "--model", model, "--inputs", "hex", "--until", "2**12 leaves")
    (row,) = json.loads(run("show", store, "--json"))
    assert 2**12 <= row["leaves"] < 2**13
    shown = json.loads(run("show", "--json"))
    assert row in shown
    assert len(shown) == 24 + 1


def test_an_interruption_says_how_to_go_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("longshot.truth.make.make_truth", interrupt)
    arguments = ["truth", "make", "--model", model, "--inputs", "hex", "--minutes", 1]
    result = CliRunner().invoke(app, [*map(str, arguments), "--store", str(tmp_path / "s")])
    assert result.exit_code == 130
    assert "the same command goes on" in result.output


def test_other_weights_cannot_continue_a_store(model: Path, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    goal = ("--until", "1000 leaves", "--shard", "500")
    make(model, store, *goal)
    other = tmp_path / "tiny"
    write_config_and_weights(other, toy_network(1, layers=1, vocab=4096, context=40))
    shutil.copy(ZOO / "tokenizer.json", other)
    with Store(store) as before:
        spans = [before.spans(cell) for cell in before.cells()]
    with pytest.raises(LongshotError, match="different version of the model tiny"):
        make(other, store, *goal)
    with Store(store) as after:
        assert [after.spans(cell) for cell in after.cells()] == spans
