"""Tables, the choice of targets, the noise floor, and the paper's published counts."""

from __future__ import annotations

import contextlib
import io
import urllib.error
from email.message import Message
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longshot.errors import LongshotError
from longshot.estimate import CellKey
from longshot.inputs import ProductInputs
from longshot.truth import Truth, load_truth, noise_floor, pick_targets
from longshot.truth import paper as papers
from longshot.truth.shards import run_span
from longshot.truth.store import Store
from longshot.truth.summary import markdown, summarise, truths_at
from longshot.truth.tables import making_command, read_table, table_path, write_table
from longshot.truth.tally import Shard, Span, Stream, Tally
from tests.truth.toys import toy_cell


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("longshot.truth.tables.SHIPPED", tmp_path / "tables")


def toy_shards() -> list[Shard]:
    spans = [(0, 0, 2), (0, 2, 3), (1, 0, 3), (1, 5, 6)]
    return [
        run_span(toy_cell(), Span(Stream("conditional", 0, half), start, stop))
        for half, start, stop in spans
    ]


def test_a_table_gives_the_same_truth_as_its_shards(tmp_path: Path) -> None:
    cell, shards = toy_cell().key, toy_shards()
    path = table_path(cell, tmp_path)
    write_table(path, cell, shards, making_command(cell, shards))
    found, pieces, _ = read_table(path)
    assert found == cell
    assert len(pieces) == 3
    a, b = Truth.from_shards(cell, shards), Truth.from_shards(cell, pieces)
    assert torch.allclose(a.probability, b.probability, rtol=1e-14)
    assert torch.allclose(a.standard_error, b.standard_error, rtol=1e-9)
    assert (a.samples, a.leaves) == (b.samples, b.leaves)
    assert a.halves[1].samples == b.halves[1].samples
    assert not list(tmp_path.glob("*.unfinished"))


def test_plain_counts_survive_a_table_too(tmp_path: Path) -> None:
    cell = toy_cell().key
    shard = run_span(toy_cell(), Span(Stream("brute", 0, 0), 0, 2))
    write_table(tmp_path / "t.safetensors", cell, [shard], "")
    _, (piece,), _ = read_table(tmp_path / "t.safetensors")
    assert torch.equal(piece.tally.total, shard.tally.total)
    assert torch.equal(piece.tally.squares, shard.tally.squares)


def test_truth_is_loaded_from_a_table_or_a_store(tmp_path: Path) -> None:
    cell, shards = toy_cell(), toy_shards()
    name = cell.key
    with pytest.raises(LongshotError, match=r"truth make --model toy-1 --inputs FILE.toml --until"):
        load_truth(cell.model, cell.inputs)
    hexadecimal = ProductInputs("hex", cell.inputs.positions)
    with pytest.raises(LongshotError, match="truth make --model toy-1 --inputs hex --until"):
        load_truth(cell.model, hexadecimal)
    with pytest.raises(LongshotError, match=r"--model hf:x --inputs ../my.toml --until"):
        load_truth(cell.model, cell.inputs, asked=("hf:x", "../my.toml"))
    for absent in (tmp_path / "absent", str(tmp_path / "absent")):
        with pytest.raises(LongshotError, match="no table or store of truth"):
            load_truth(cell.model, cell.inputs, absent)
    with Store(tmp_path / "data" / "longshot" / "truth.sqlite", create=True) as store:
        store.add(name, shards[0])
    assert load_truth(cell.model, cell.inputs).leaves == shards[0].tally.leaves
    write_table(table_path(name, tmp_path / "tables"), name, shards, "")
    whole = sum(s.tally.leaves for s in shards)
    assert load_truth(cell.model, cell.inputs).leaves == whole
    path = str(table_path(name, tmp_path / "tables"))
    assert load_truth(cell.model, cell.inputs, path).leaves == whole
    other = toy_cell("two after the leaf", name="other")
    with pytest.raises(LongshotError, match="There is no truth of toy-1 on other"):
        load_truth(other.model, other.inputs)


def test_truth_of_another_model_or_other_frequencies_is_refused(tmp_path: Path) -> None:
    name = toy_cell().key
    path = tmp_path / "tables" / "toy-1-toy.safetensors"
    for change in ({"model_fingerprint": "0" * 16}, {"inputs_fingerprint": "0" * 16}):
        write_table(path, name._replace(**change), toy_shards(), "")
        with pytest.raises(LongshotError, match="different version of the"):
            load_truth(toy_cell().model, toy_cell().inputs)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 3000), st.binary(min_size=1, max_size=8))
def test_a_damaged_table_is_refused_or_harmless(tmp_path: Path, at: int, damage: bytes) -> None:
    path = tmp_path / "t.safetensors"
    write_table(path, CellKey("toy", "m", "i", "f", 12), toy_shards()[:1], "make")
    whole = path.read_bytes()
    path.write_bytes(whole[: at % len(whole)] + damage)
    with pytest.raises(LongshotError, match=r"t\.safetensors"):
        read_table(path)
    path.write_bytes((whole[: at % len(whole)] + damage + whole)[: len(whole)])
    with contextlib.suppress(LongshotError):
        read_table(path)


def made_truth(p: list[float], relative_error: list[float], n: int = 10**6) -> Truth:
    """Two equal halves with these probabilities and relative errors."""
    mean, error = torch.tensor([p, relative_error], dtype=torch.float64)
    variance = (mean * error).square() * n
    tally = Tally(n, n, 0, mean * n, (variance + mean.square()) * n)
    cell = CellKey("m", "1", "i", "2", len(p))
    half = Truth(cell, {"conditional": tally})
    return Truth(cell, {"conditional": tally + tally}, (half, half))


def test_targets_are_chosen_on_one_half_and_judged_on_the_other() -> None:
    truth = made_truth([1e-6, 1e-5, 1e-7, 1e-3, 0, 4e-7], [0.1, 0.05, 0.3, 0.01, 0, 0.2])
    everything = pick_targets(truth, 1e-7, 1e-4, 64)
    assert everything.tokens == (0, 1, 5)
    assert everything.qualified == 3
    assert everything.judge is truth.halves[1]
    two = pick_targets(truth, 1e-7, 1e-4, 2, seed=1)
    assert len(two.tokens) == 2
    assert two.qualified == 3
    assert two == pick_targets(truth, 1e-7, 1e-4, 2, seed=1)
    assert len({pick_targets(truth, 1e-7, 1e-4, 2, seed=s).tokens for s in range(20)}) == 3


def test_choosing_and_judging_on_the_same_half_would_flatter() -> None:
    """Of many equally rare tokens, those that the chooser overrates are not what the judge sees."""
    g = torch.Generator().manual_seed(0)
    cell, n = CellKey("m", "1", "i", "2", 4000), 10**6
    halves = []
    for _ in range(2):
        counts = torch.poisson(torch.full((4000,), 16.0, dtype=torch.float64), generator=g)
        halves.append(Truth(cell, {"brute": Tally(n, n, 0, counts, counts)}))
    truth = Truth(cell, {}, tuple(halves))
    targets = pick_targets(truth, 2.2e-5, 1, 4000)
    chosen = list(targets.tokens)
    assert targets.qualified > 100
    assert float(halves[0].probability[chosen].mean()) > 2.2e-5
    assert abs(float(targets.judge.probability[chosen].mean()) - 1.6e-5) < 1.5e-6


def test_the_noise_floor_is_what_a_perfect_estimate_loses() -> None:
    """−log of a ratio that is nearly normal loses its variance; Itakura-Saito half of it."""
    error = 0.1
    truth = made_truth([1e-5, 1e-6], [error, error])
    floor = noise_floor(truth.halves[1], [0, 1])
    g = torch.Generator().manual_seed(1)
    ratio = 1 / (1 + error * torch.randn(200_000, generator=g, dtype=torch.float64))
    assert floor.squared_log == pytest.approx(float(ratio.log().square().mean()), rel=0.05)
    assert floor.itakura_saito == pytest.approx(
        float((1 / ratio + ratio.log() - 1).mean()), rel=0.05
    )


def test_targets_need_two_halves_and_a_range() -> None:
    half = made_truth([0.5, 0.5], [0.1, 0.1]).halves[0]
    with pytest.raises(LongshotError, match="no two halves"):
        pick_targets(half, 0, 1, 5)
    with pytest.raises(LongshotError, match="No probability lies between"):
        pick_targets(made_truth([0.5, 0.5], [0.1, 0.1]), 1, 0, 5)
    for count in (0, -1):
        with pytest.raises(LongshotError, match=f"one target must be asked for, not {count}"):
            pick_targets(made_truth([0.5, 0.5], [0.1, 0.1]), 0, 1, count)
    assert pick_targets(made_truth([0.5, 0.5], [0.1, 0.1]), 0, 1e-9, 5).qualified == 0


def test_a_summary_says_what_is_known(tmp_path: Path) -> None:
    cell = toy_cell().key
    write_table(tmp_path / "tables" / "t.safetensors", cell, toy_shards(), "")
    (truth,) = truths_at(tmp_path / "tables")
    summary = summarise(truth, 0, 1)
    assert summary.seen == summary.in_range > 3
    assert summary.qualified > 0
    assert summary.noise_floor is not None
    assert markdown([summary]).count("\n") == 2
    nothing = summarise(made_truth([1.0, 0.0], [0.1, 0]), 1e-7, 1e-4)
    assert nothing.noise_floor is None
    assert "–" in markdown([nothing])


# --- the paper's counts


def paper_file(folder: Path, counts: list[int], name: str = "frequencies10-indent.pt") -> Path:
    torch.save(torch.tensor(counts), folder / name)
    return folder / name


COLON = CellKey("gelu-1l", "1", "colon", "2", 4)


def test_the_papers_counts_become_two_independent_halves(tmp_path: Path) -> None:
    path = paper_file(tmp_path, [1000, 20, 4, 0])
    shards = papers.import_paper(path, COLON)
    truth = Truth.from_shards(COLON, shards)
    assert truth.samples == {"brute": 1024}
    assert truth.tallies["brute"].total.tolist() == [1000, 20, 4, 0]
    assert 0.4 < truth.halves[0].leaves / 1024 < 0.6
    p = truth.probability
    expected = (p * (1 - p) / 1023).sqrt()[:3]
    assert torch.allclose(truth.standard_error[:3], expected)
    with Store(tmp_path / "s", create=True) as store:
        for shard in shards:
            store.add(COLON, shard)
        with pytest.raises(LongshotError, match="counted twice"):
            store.add(COLON, shards[0])


def test_the_real_size_is_read_exactly(tmp_path: Path) -> None:
    path = paper_file(tmp_path, [2**32 - 8, 5, 3, 0], "frequencies32-ifelse.pt")
    truth = Truth.from_shards(COLON, papers.import_paper(path, COLON._replace(inputs="if")))
    assert truth.samples == {"brute": 2**32}
    assert truth.tallies["brute"].total.tolist() == [2**32 - 8, 5, 3, 0]


def test_files_that_are_not_the_papers_are_refused(tmp_path: Path) -> None:
    torch.save({"counts": torch.ones(4)}, tmp_path / "frequencies2-caps.pt")
    torch.save(torch.ones(4), tmp_path / "frequencies3-caps.pt")
    torch.save(torch.ones(1, dtype=torch.int64).expand(4), tmp_path / "frequencies5-caps.pt")
    torch.save(print, tmp_path / "frequencies4-caps.pt")
    (tmp_path / "frequencies6-caps.pt").write_bytes(b"PK nonsense")
    for name, reason in (
        ("frequencies2-caps.pt", "one integer for each token"),
        ("frequencies3-caps.pt", "one integer for each token"),
        ("frequencies5-caps.pt", "."),
        ("frequencies4-caps.pt", "tensors alone"),
        ("frequencies6-caps.pt", "not saved by a torch of today"),
        ("frequencies7-caps.pt", "There is no file"),
        ("counts.pt", "not named like"),
    ):
        with pytest.raises(LongshotError, match=reason):
            papers.import_paper(tmp_path / name, COLON._replace(inputs="caps"))
    for counts, reason in (([1000, 20, 5, 0], "sum to 1025"), ([1024], "counts 1 tokens")):
        with pytest.raises(LongshotError, match=reason):
            papers.import_paper(paper_file(tmp_path, counts), COLON)
    with pytest.raises(LongshotError, match="about 'colon', not 'hex'"):
        papers.import_paper(paper_file(tmp_path, [1024]), COLON._replace(inputs="hex"))


def test_the_bucket_is_asked_by_the_authors_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    content = paper_file(tmp_path, [2**32, 0, 0, 0], "frequencies32-indent.pt").read_bytes()

    def urlopen(url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        return io.BytesIO(content)

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    shards = papers.import_from_bucket("gelu-1l", COLON)
    assert sum(shard.tally.samples for shard in shards) == 2**32
    assert asked[0].endswith("/lpe/ground-truth/gelu-1l/frequencies32-indent.pt")

    def fails(url: str, timeout: float) -> io.BytesIO:
        raise urllib.error.HTTPError(url, 404, "Not Found", Message(), None)

    monkeypatch.setattr("urllib.request.urlopen", fails)
    with pytest.raises(LongshotError, match=r"could not be fetched.*Not Found"):
        papers.import_from_bucket("gelu-1l", COLON)
