"""Both kinds of truth are the exact answer: by enumeration first, then within their own error."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cell
from longshot.evaluate import activations
from longshot.inputs import ProductInputs, Tree
from longshot.models import Model
from longshot.truth import Truth, run_span
from longshot.truth.sampling import plain_tally, prefix_masses
from longshot.truth.tally import KINDS, Kind, Span, Stream, Tally
from tests.truth.toys import FIXED, SHAPES, all_tokens, exact_probabilities, toy_cell


def summed_over_prefixes(cell: Cell) -> Tensor:
    """Σ over all prefixes of p(prefix)·m(prefix), with m from the real step."""
    tree = Tree(cell.model, cell.inputs)
    before = cell.inputs.positions[: tree.prefix_length]
    prefixes = all_tokens(before)
    weight = ProductInputs("prefix", before).log_prob(prefixes).exp() if before else torch.ones(1)
    total = torch.zeros(cell.model.vocab_size, dtype=torch.float64)
    for rows, p in zip(prefixes.split(tree.batch), weight.split(tree.batch), strict=True):
        mass, _ = prefix_masses(tree, rows)
        total += p.double() @ mass
    return total


@pytest.mark.parametrize("shape", SHAPES)
def test_conditional_is_unbiased_to_the_last_digit(shape: str) -> None:
    cell = toy_cell(shape, dtype=torch.float64)
    exact = exact_probabilities(cell)
    assert int((exact > 0).sum()) > 1
    assert torch.allclose(summed_over_prefixes(cell), exact, rtol=0, atol=1e-10)


def test_without_the_leaves_weights_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: every leaf counted alike."""
    cell = toy_cell(dtype=torch.float64)
    leaf = Tree(cell.model, cell.inputs).leaf
    monkeypatch.setitem(leaf.__dict__, "probabilities", torch.full_like(leaf.log_probs, 1 / 7))
    assert not torch.allclose(summed_over_prefixes(cell), exact_probabilities(cell), atol=1e-3)


def test_plain_samples_count_every_input_once() -> None:
    cell = toy_cell(dtype=torch.float64)
    tokens = all_tokens(cell.inputs.positions)
    counts = plain_tally(cell.model, tokens).total
    logits = cell.model.network.activation(cell.model.embed(tokens)) @ cell.model.unembedding
    winner = (logits + cell.model.unembedding_bias).argmax(1)
    assert torch.equal(counts, winner.bincount(minlength=12).double())


def truth_of(cell: Cell, kind: Kind, units: int) -> Truth:
    shards = [run_span(cell, Span(Stream(kind, 5, half), 0, units)) for half in (0, 1)]
    return Truth.from_shards(cell.key, shards)


@pytest.mark.parametrize("kind", KINDS)
def test_shards_agree_with_the_exact_answer_within_their_own_error(kind: Kind) -> None:
    """The largest of 12 z-scores passes 5 with probability 7e-6."""
    cell = toy_cell()
    exact = exact_probabilities(toy_cell(dtype=torch.float64))
    truth = truth_of(cell, kind, 20)
    seen = truth.probability > 0
    z = (truth.probability - exact)[seen] / truth.standard_error[seen]
    assert int(seen.sum()) > 4
    assert float(z.abs().max()) < 5
    assert float(truth.probability.sum()) == pytest.approx(1, abs=1e-12)
    assert (truth.standard_error[~seen] == torch.inf).all()
    assert truth.halves[0].samples == truth.halves[1].samples
    assert truth.halves[0].samples[kind] > 0
    assert not torch.equal(truth.halves[0].probability, truth.halves[1].probability)


@pytest.mark.parametrize("kind", KINDS)
def test_the_standard_error_is_the_spread_of_the_answers(kind: Kind) -> None:
    """Over 60 replicates a ratio of variances within 0.6 … 1.7 fails with probability 1e-3."""
    cell = toy_cell()
    runs = [run_span(cell, Span(Stream(kind, seed, 0), 0, 1)) for seed in range(60)]
    truths = [Truth(cell.key, {kind: run.tally}) for run in runs]
    common = exact_probabilities(cell) > 0.05
    claimed = torch.stack([t.standard_error for t in truths])[:, common].square().mean(0)
    spread = torch.stack([t.probability for t in truths])[:, common].var(0)
    assert int(common.sum()) >= 2
    assert 0.6 < float((spread / claimed).mean()) < 1.7


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_depends_on_its_name_alone(kind: Kind) -> None:
    stream = Stream(kind, 3, 1)
    cell = toy_cell()
    before = torch.get_rng_state()
    whole = run_span(cell, Span(stream, 0, 4)).tally
    assert torch.equal(torch.get_rng_state(), before)
    fresh = pickle.loads(pickle.dumps(cell))
    again = run_span(fresh, Span(stream, 0, 4)).tally
    assert torch.equal(whole.total, again.total)
    assert torch.equal(whole.squares, again.squares)
    parts = run_span(fresh, Span(stream, 0, 1)).tally + run_span(fresh, Span(stream, 1, 4)).tally
    assert torch.allclose(whole.total, parts.total, rtol=1e-14)
    assert (whole.samples, whole.leaves) == (parts.samples, parts.leaves)
    for other in (Stream(kind, 4, 1), Stream(kind, 3, 0)):
        assert not torch.equal(run_span(fresh, Span(other, 0, 4)).tally.total, whole.total)


def test_leaves_beyond_one_chunk_and_prefixes_short_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longshot.inputs.tree.LEAVES", 20)
    cell = toy_cell("two after the leaf", dtype=torch.float64)
    tree = Tree(cell.model, cell.inputs)
    assert tree.chunk < tree.leaf.size
    assert torch.allclose(summed_over_prefixes(cell), exact_probabilities(cell), atol=1e-10)
    prefixes = all_tokens(cell.inputs.positions[: tree.prefix_length])[:3]
    whole, _ = prefix_masses(tree, prefixes)
    single, _ = prefix_masses(tree, prefixes[2:])
    assert torch.equal(whole[2:], single)


def test_a_tie_has_no_winner_and_no_mass() -> None:
    cell = toy_cell()
    network = cell.model.network
    network.unembedding.zero_()  # type: ignore[operator]
    network.unembedding_bias.zero_()  # type: ignore[union-attr]
    for kind in KINDS:
        tally = run_span(cell, Span(Stream(kind, 0, 0), 0, 1)).tally
        assert float(tally.total.sum()) == 0
        assert tally.near_ties == tally.leaves > 0


def test_what_cannot_be_enumerated_is_said_in_a_sentence() -> None:
    cell = toy_cell()
    with pytest.raises(LongshotError, match="nothing to enumerate"):
        Tree(cell.model, ProductInputs("still", [FIXED(0), FIXED(1)]))

    class Plain:
        embedding, unembedding = cell.model.embedding, cell.model.unembedding
        unembedding_bias, activation = cell.model.unembedding_bias, cell.model.network.activation
        macs = cell.model.network.macs
        backward_macs = cell.model.network.backward_macs

    plain = Model("plain", Plain(), cell.model.tokenizer, 8)
    with pytest.raises(LongshotError, match="plain has no prefix cache"):
        Tree(plain, cell.inputs)
    assert plain_tally(plain, cell.inputs.sample(9, torch.Generator())).total.sum() == 9
    assert activations(plain, all_tokens(cell.inputs.positions)).shape[1] == 8


def test_an_empty_tally_is_zero() -> None:
    tally = run_span(toy_cell(), Span(Stream("brute", 0, 0), 0, 1)).tally
    assert torch.equal((tally + Tally.empty(12)).total, tally.total)
