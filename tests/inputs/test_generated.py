"""Inputs that a model writes: their law by enumeration, their redraws, and what is refused."""

from __future__ import annotations

import itertools
import math
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import longshot as ls
from longshot.inputs import NOTHING, Listed
from longshot.testing import toy_model
from tests.inputs.chi_square import FALSE_ALARM
from tests.inputs.laws import Table, worst_redraw
from tests.models.hf_models import hf_model, hf_tokenizer
from tests.test_enumeration import without_memory

VOCAB, DRAWS = 5, 8000
WRITER = toy_model(4, vocab=VOCAB, context=10, dtype=torch.float64)
WRITER.embedding.mul_(3)  # tokens matter more than positions, as in a trained model
KINDS = {
    "plain": {},
    "cold": {"temperature": 0.6},
    "nucleus": {"top_p": 0.7},
    "around": {"before": [0, 3], "after": [2, 4], "temperature": 1.5},
}


LAWS: dict[str, Listed] = {}


class Listable(ls.GeneratedInputs):
    """The same inputs with a list of all of them, made by plain passes and plain sums."""

    @cache  # noqa: B019
    def next(self, text: tuple[int, ...]) -> Tensor:
        v = WRITER.network.activation(WRITER.embed(torch.tensor([[*self.prompt, *text]])))[0]
        q = ((v @ WRITER.unembedding + WRITER.unembedding_bias) / self.temperature).softmax(0)
        kept, held = torch.zeros_like(q), 0.0
        for token in q.argsort(descending=True).tolist():
            if held < self.top_p:
                kept[token], held = q[token], held + float(q[token])
        return kept / kept.sum()

    def everything(self) -> dict[tuple[int, ...], float]:
        """Token 0 is special: it ends a text."""
        law: dict[tuple[int, ...], float] = {}
        for n in range(self.tokens + 1):
            for text in itertools.product(range(1, VOCAB), repeat=n):
                p = 1.0
                for i, token in enumerate(text):
                    p *= float(self.next(text[:i])[token])
                if n < self.tokens:
                    p *= float(self.next(text)[0])
                law[text] = p
        return law

    @property
    def count(self) -> int:
        return sum((VOCAB - 1) ** n for n in range(self.tokens + 1))

    def listed(self, start: int, stop: int) -> Listed:
        if self.name in LAWS:
            return LAWS[self.name]
        law = self.everything()
        rows = [[*self.before, *text, *self.after] for text in law]
        tokens = torch.tensor([row + [-1] * (self.length - len(row)) for row in rows])
        log_prob = torch.tensor(list(law.values()), dtype=torch.float64).log()
        return LAWS.setdefault(self.name, Listed(tokens, log_prob))


class Careless(Listable):
    """A control: what is redrawn forgets what stands before it."""

    def redraw(
        self, tokens: Tensor, generator: torch.Generator, start: int = 0, share: float = 1.0
    ) -> Tensor:
        fresh = self.sample(len(tokens), generator)
        ended = (tokens[:, :start] < 0).any(1, keepdim=True)
        mixed = torch.cat([tokens[:, :start], fresh[:, start:]], 1)
        gap = (mixed[:, start - 1 : start] >= 0) & (mixed[:, start:] >= 0).any(1, keepdim=True)
        return torch.where(ended | ~gap, tokens, mixed)


class Accepting(Listable):
    """A control: a single token is taken whatever stands behind it."""

    def _one_token(
        self, text: Tensor, first: int, where: Tensor, u: Tensor, luck: Tensor
    ) -> Tensor:
        return super()._one_token(text, first, where, u, torch.zeros_like(luck))


def make(kind: str, cls: type[Listable] = Listable, **more: object) -> Listable:
    return cls(kind, WRITER, [0, 1], 3, **(KINDS[kind] | more))


@pytest.mark.parametrize("kind", KINDS)
def test_the_law(kind: str, generator: torch.Generator) -> None:
    inputs = make(kind)
    table = Table(inputs)
    assert float(table.probability.sum()) == pytest.approx(1)
    torch.testing.assert_close(inputs.log_prob(table.tokens).exp(), table.probability)
    assert table.fit(inputs.sample(DRAWS, generator)) > FALSE_ALARM
    wrong = torch.tensor([[0, 1, *[2] * (inputs.length - 2)]])
    if kind == "around":
        assert inputs.log_prob(wrong).tolist() == [-torch.inf]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("start", "share"), [(0, 1.0), (3, 1.0), (0, 0.3), (3, 0.6)])
def test_a_redraw_leaves_the_law_as_it_is(kind: str, start: int, share: float) -> None:
    assert worst_redraw(make(kind), start, share, DRAWS) > FALSE_ALARM


def test_a_biased_redraw_is_found() -> None:
    assert worst_redraw(make("plain", Careless), 3, 1.0, DRAWS) < FALSE_ALARM
    assert worst_redraw(make("plain", Accepting), 0, 0.3, DRAWS) < FALSE_ALARM


def test_single_tokens_change_in_the_middle() -> None:
    inputs, generator = make("plain"), torch.Generator().manual_seed(0)
    before = inputs.sample(2000, generator)
    after = inputs.redraw(before, generator, 0, 0.3)
    changed = (before != after)[:, 2:]
    assert bool((changed[:, 0] & ~changed[:, 1:].any(1)).any())


def test_a_network_without_memory_writes_the_same() -> None:
    inputs = make("nucleus")
    plain = ls.GeneratedInputs("plain", without_memory(WRITER), [0, 1], 3, top_p=0.7)
    one, other = (i.sample(300, torch.Generator().manual_seed(3)) for i in (inputs, plain))
    assert torch.equal(one, other)


def test_texts_do_not_depend_on_their_neighbours() -> None:
    inputs = make("plain")
    uniform = torch.rand(150, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    text, cut = torch.full((150, 3), NOTHING), torch.zeros(150, dtype=torch.int64)
    together = inputs._suffix(text, cut, uniform)
    alone = torch.cat([inputs._suffix(text[:1], cut[:1], row[None]) for row in uniform])
    assert torch.equal(together, alone)


def test_estimates_on_what_a_model_writes() -> None:
    """Naive against the list, for the writer itself as the model that reads."""
    inputs = make("around")
    tokens, log_prob = inputs.listed(0, inputs.count)
    output = []
    for row in tokens:
        v = WRITER.network.activation(WRITER.embed(row[row >= 0][None]))[0]
        output.append(int((v @ WRITER.unembedding + WRITER.unembedding_bias).argmax()))
    for token in set(output):
        truth = float(log_prob[torch.tensor(output) == token].exp().sum())
        answers = [
            ls.estimate(WRITER, inputs, token, method="naive", budget=1500, seed=seed)
            for seed in range(5)
        ]
        held = [a.interval[0] <= truth <= a.interval[1] for a in answers if a.interval]
        assert sum(held) >= 4
        for witness in answers[0].witnesses:
            assert witness.log_prob == pytest.approx(float(log_prob[_row(tokens, witness)]))


def _row(tokens: Tensor, witness: ls.Witness) -> int:
    padded = [*witness.tokens, *[-1] * (tokens.shape[1] - len(witness.tokens))]
    return tokens.tolist().index(padded)


@pytest.mark.parametrize("method", ["conditional", "itgis", "mhis"])
def test_a_method_that_needs_a_product_says_so(method: str) -> None:
    with pytest.raises(ls.LongshotError, match=f"{method} needs inputs whose tokens are indep"):
        ls.estimate(WRITER, make("plain"), 3, method=method, budget=200)


def test_a_writer_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "questions.toml"
    file.write_text(
        '[inputs]\nname = "questions"\ntext = "Q:{written}\\nA:"\n'
        '[generated]\nprompt = "def"\ntokens = 4\nmodel = "mini-1l"\ntop_p = 0.9\n'
    )
    model = ls.load_model("mini-2l")
    inputs = ls.load_inputs(file, model)
    assert (inputs.writer.name, inputs.name) == ("mini-1l", "questions")
    rows = inputs.sample(5, torch.Generator().manual_seed(0)).tolist()
    for row in rows:
        text = model.tokenizer.decode([token for token in row if token >= 0])
        assert text.startswith("<|BOS|>Q:")
        assert text.endswith("\nA:")
    assert inputs.log_prob(torch.tensor(rows)).isfinite().all()
    itself = ls.generated(model, "def", tokens=4)
    assert itself.writer is model
    assert itself.fingerprint != inputs.fingerprint


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("top_p = 0.9", "top_p = 0", "top_p lies above 0 and is at most 1, which 0 is not"),
        ("top_p = 0.9", "top_p = 1.5", "top_p lies above 0"),
        ("top_p = 0.9", "temperature = 0", "temperature must be positive"),
        ("top_p = 0.9", "topp = 1", "did you mean 'top_p'"),
        ("tokens = 4", "tokens = 0", "one token or more"),
        ("tokens = 4", "tokens = 'x'", "tokens: must be of the type int"),
        ("tokens = 4", "", "generated.tokens: is missing"),
        ("tokens = 4", "tokens = 4000", "reads 64 tokens|reads .* tokens, not the 4002"),
        ("{written}", "", "has {written} in it, once"),
    ],
)
def test_mistakes_are_one_sentence(old: str, new: str, said: str, tmp_path: Path) -> None:
    source = (
        '[inputs]\nname = "questions"\ntext = "Q:{written}\\nA:"\n'
        '[generated]\nprompt = "def"\ntokens = 4\ntop_p = 0.9\n'
    )
    (tmp_path / "q.toml").write_text(source.replace(old, new))
    with pytest.raises(ls.LongshotError, match=said) as caught:
        ls.load_inputs(tmp_path / "q.toml", "mini-1l")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("top_p", [0, -0.1, 1.01, math.inf, math.nan])
def test_a_top_p_beyond_its_range_is_refused(top_p: float) -> None:
    with pytest.raises(ls.LongshotError, match=f"above 0 and is at most 1, which {top_p} is not"):
        ls.generated("mini-1l", "def", tokens=4, top_p=top_p)


def test_a_writer_with_another_tokenizer_is_refused() -> None:
    other = ls.load_model(hf_model("Llama"), tokenizer=hf_tokenizer())
    with pytest.raises(ls.LongshotError, match="has another tokenizer than mini-1l"):
        ls.generated("mini-1l", "def", tokens=4, writer=other)
    inputs = ls.generated(other, "a", tokens=2)
    with pytest.raises(ls.LongshotError, match="has another tokenizer than mini-1l"):
        ls.estimate("mini-1l", inputs, " the", method="naive", budget=10)
