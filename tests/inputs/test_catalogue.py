from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from longshot.errors import LongshotError
from longshot.inputs import CATALOGUE, Counts, ProductInputs, build, load_counts
from longshot.inputs.corpus import RandomHexadecimal
from longshot.models import Tokenizer
from tests.inputs.chi_square import FALSE_ALARM, p_value, two_sample_p_value
from tests.toys import toy_tokenizer

RANDOM_POSITIONS = {
    "hex": 32,
    "camel": 32,
    "colon": 32,
    "if": 32,
    "caps": 17,  # He or She, then 16
    "english": 25,  # the first word, then 24
    "spanish": 24,
    "icl": 10,  # nine words and the letter asked for
}
LENGTHS = {
    "hex": 33,
    "camel": 33,
    "colon": 34,
    "if": 34,
    "caps": 21,
    "english": 26,
    "spanish": 25,
    "icl": 30,
}


@pytest.mark.parametrize("name", CATALOGUE)
def test_lengths_and_random_positions_are_the_papers(
    name: str, eight: dict[str, ProductInputs], shipped: Tokenizer
) -> None:
    inputs = eight[name]
    assert len(inputs.free_positions) == RANDOM_POSITIONS[name]
    assert inputs.length == LENGTHS[name]
    assert inputs.fixed_token(0) == shipped.bos


@pytest.mark.parametrize("name", CATALOGUE)
def test_probabilities_sum_to_one(name: str, eight: dict[str, ProductInputs]) -> None:
    for distribution in eight[name].positions:
        assert abs(math.fsum(distribution.probabilities.tolist()) - 1) < 1e-12


@pytest.mark.parametrize("name", CATALOGUE)
def test_log_prob_is_the_product_of_the_table_entries(
    name: str, eight: dict[str, ProductInputs], generator: torch.Generator
) -> None:
    inputs = eight[name]
    tokens = inputs.sample(200, generator)
    tables = [
        dict(zip(d.support.tolist(), d.probabilities.tolist(), strict=True))
        for d in inputs.positions
    ]
    products = [
        math.prod(table[token] for table, token in zip(tables, row, strict=True))
        for row in tokens.tolist()
    ]
    assert inputs.log_prob(tokens).exp().tolist() == pytest.approx(products, rel=1e-10)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_million_draws_follow_the_tables(
    name: str, eight: dict[str, ProductInputs], generator: torch.Generator
) -> None:
    for distribution, _ in eight[name].groups:
        drawn = torch.bincount(distribution.sample(10**6, generator), minlength=distribution.size)
        assert p_value(drawn, distribution.probabilities) > FALSE_ALARM


def texts(inputs: ProductInputs, position: int, tokenizer: Tokenizer) -> list[str | None]:
    return [tokenizer.texts[token] for token in inputs.positions[position].support.tolist()]


def test_camel_leaves_out_pythons_constants(
    eight: dict[str, ProductInputs], shipped: Tokenizer, counts: Counts
) -> None:
    words = texts(eight["camel"], 1, shipped)
    assert "Error" in words
    assert not {"None", "True", "False"} & set(words)
    none = shipped.single("None")
    assert counts.of("python")[none] > 0  # it would be there otherwise


def test_colon_and_if_keep_the_most_frequent_tokens(
    eight: dict[str, ProductInputs], shipped: Tokenizer, counts: Counts
) -> None:
    code = eight["colon"].positions[1]
    python = counts.of("python")
    assert code.size == 1024
    rest = python.clone()
    rest[code.support] = 0
    assert python[code.support].min() >= rest.max()
    torch.testing.assert_close(
        code.probabilities, python[code.support] / python[code.support].sum().double()
    )
    assert eight["colon"].fixed_token(33) == shipped.single(":")
    assert eight["if"].fixed_token(1) == shipped.single(" if")
    assert eight["if"].positions[2].support.tolist() == code.support.tolist()


def test_caps_begins_with_he_or_she(eight: dict[str, ProductInputs], shipped: Tokenizer) -> None:
    inputs = eight["caps"]
    assert sorted(map(str, texts(inputs, 1, shipped))) == ["He", "She"]
    assert inputs.positions[1].probabilities.tolist() == [0.5, 0.5]
    assert shipped.decode([inputs.fixed_token(i) or 0 for i in (2, 3, 4)]) == ' screamed: "'


def test_english_words_are_spaced_except_the_first(
    eight: dict[str, ProductInputs], shipped: Tokenizer
) -> None:
    first, later = texts(eight["english"], 1, shipped), texts(eight["english"], 2, shipped)
    assert all(text and text.isalpha() for text in first)
    assert {",", ".", " the"} <= set(later)
    assert ":" not in later
    assert all(text and (text[0] == " " or text in ",.!?;") for text in later)


def test_icl_spells_arctheory(
    eight: dict[str, ProductInputs], shipped: Tokenizer, generator: torch.Generator
) -> None:
    inputs = eight["icl"]
    for row in inputs.sample(20, generator).tolist():
        words = shipped.decode(row).removeprefix("<|BOS|>").split(" ")
        assert words[::3] == [*"ARCTHEORY", words[-2]]
        assert words[1::3] == ["for"] * 10
        for letter, word in zip("ARCTHEORY", words[2::3], strict=True):
            assert word[0].upper() == letter
            assert word.isalpha()
            assert len(word) >= 4
    query = inputs.positions[28]
    assert query.size == 26
    assert query.probabilities.tolist() == pytest.approx([1 / 26] * 26)
    assert inputs.positions[6] is inputs.positions[24]  # both R


def hexadecimal_counts(tokenizer: Tokenizer, seed: int) -> torch.Tensor:
    """Counts in another random string of 3·2^17 digits."""
    (text,) = RandomHexadecimal(seed).documents(1)
    tokens = [t for line in text.split("\n")[:96] for t in tokenizer.encode(line)]
    return torch.bincount(torch.tensor(tokens), minlength=tokenizer.vocab_size)


def test_hex_has_the_frequencies_of_a_long_random_string(
    eight: dict[str, ProductInputs], shipped: Tokenizer, counts: Counts
) -> None:
    support = eight["hex"].positions[1].support
    table = counts.of("hexadecimal")[support]
    torch.testing.assert_close(
        eight["hex"].positions[1].probabilities, table / table.sum().double()
    )
    simulated = hexadecimal_counts(shipped, seed=1)
    assert int(simulated[support].sum()) == int(simulated.sum())
    assert two_sample_p_value(table, simulated[support]) > FALSE_ALARM


def test_hex_is_not_sixteen_to_minus_the_length(
    eight: dict[str, ProductInputs], shipped: Tokenizer
) -> None:
    """The negative control: the law that a longest-match reader might expect is ruled out."""
    support = eight["hex"].positions[1].support
    naive = torch.tensor([16.0 ** -len(str(shipped.texts[t])) for t in support.tolist()]).double()
    simulated = hexadecimal_counts(shipped, seed=1)[support]
    assert p_value(simulated, naive / naive.sum()) < FALSE_ALARM


def test_a_tokenizer_without_the_letters_says_which() -> None:
    tokenizer = toy_tokenizer(60)
    with pytest.raises(LongshotError, match=r"'caps'.*need 'He' as one token.*'H' \+ 'e'"):
        build("caps", tokenizer, load_counts(tokenizer))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("camel", r"'camel'.*class 'camel-case'.*occurs in the python text"),
        ("icl", r"'icl'.*class 'long-words'.*beginning with A.*english text"),
    ],
)
def test_an_empty_support_says_which_rule(name: str, said: str, tmp_path: Path) -> None:
    tokenizer = toy_tokenizer(60)
    (tmp_path / "text.txt").write_text("abc")
    with pytest.raises(LongshotError, match=said):
        build(name, tokenizer, load_counts(tokenizer, tmp_path / "text.txt"))


def test_frequencies_that_are_not_there_are_asked_for() -> None:
    tokenizer = toy_tokenizer(60)
    with pytest.raises(LongshotError, match=r"frequencies of spanish.*--corpus spanish=FILE"):
        build("spanish", tokenizer, load_counts(tokenizer))


def test_an_unknown_name_gets_the_nearest(shipped: Tokenizer, counts: Counts) -> None:
    with pytest.raises(LongshotError, match="did you mean 'camel'"):
        build("camle", shipped, counts)
