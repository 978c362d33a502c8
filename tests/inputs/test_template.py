from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longshot.errors import LongshotError
from longshot.inputs import Counts, Inputs, ProductInputs, load_counts, read_template
from longshot.inputs.template import parse_template
from longshot.models import Tokenizer
from longshot.models.checkpoints import ZOO

TEMPLATE = """\
[inputs]
name = "bank-transfer"
text = "Transfer {amount} dollars to {name} now{end}"
[slots.amount]
choices = { " ten" = 3, " two" = 1 }            # weighted strings
[slots.name]
tokens = "starts-with-space-letters"            # a named token class
weights = "english"                             # a frequency table
repeat = 2
[slots.end]
choices = [".", "!", "?"]
"""


SHIPPED = Tokenizer.from_file(ZOO / "tokenizer.json")
COUNTS = load_counts(SHIPPED)


def parse(source: str) -> ProductInputs:
    return parse_template(source, "my.toml", SHIPPED, COUNTS)


def parse_text(text: str, slots: str = "") -> ProductInputs:
    return parse(f"[inputs]\nname = 'x'\ntext = '''{text}'''\n{slots}")


def fixed_text(inputs: ProductInputs) -> str:
    tokens = [inputs.fixed_token(i) for i in range(1, inputs.length)]
    return SHIPPED.decode([token for token in tokens if token is not None])


def test_the_example(generator: torch.Generator) -> None:
    inputs = parse(TEMPLATE)
    assert inputs.name == "bank-transfer"
    assert inputs.fixed_token(0) == SHIPPED.bos
    amount, name, end = (group.distribution for group in inputs.groups)
    assert [len(group.positions) for group in inputs.groups] == [1, 2, 1]
    by_text = dict(zip(amount.support.tolist(), amount.probabilities.tolist(), strict=True))
    assert by_text[SHIPPED.single(" ten")] == pytest.approx(0.75)
    assert end.probabilities.tolist() == pytest.approx([1 / 3] * 3)
    english = COUNTS.of("english")[name.support].double()
    torch.testing.assert_close(name.probabilities, english / english.sum())
    for row in inputs.sample(20, generator).tolist():
        words = SHIPPED.decode(row).removeprefix("<|BOS|>").split(" ")
        assert [words[0], *words[2:4]] == ["Transfer", "dollars", "to"]
        assert words[1] in ("ten", "two")
        assert len(words) == 7
        assert words[6] in ("now.", "now!", "now?")


def test_a_class_without_weights_is_uniform() -> None:
    inputs = parse_text("{x}", "[slots.x]\ntokens = 'hexadecimal'")
    assert inputs.positions[1].probabilities.tolist() == pytest.approx([1 / 53] * 53)


def texts(inputs: Inputs, n: int = 200) -> set[str]:
    drawn = inputs.sample(n, torch.Generator().manual_seed(0)).tolist()
    rows = ([token for token in row if token >= 0] for row in drawn)
    return {SHIPPED.decode(row).removeprefix("<|BOS|>") for row in rows}


def test_a_slot_named_twice_has_the_same_value_both_times() -> None:
    inputs = parse_text(
        "{x} and {x}{y}", "[slots.x]\nchoices = [' a', 'b']\n[slots.y]\nchoices = ['.', '!']"
    )
    assert texts(inputs) == {" a and  a.", " a and  a!", "b and b.", "b and b!"}
    assert inputs.count == 4


def test_repetitions_of_a_slot_are_independent() -> None:
    inputs = parse_text("{x}", "[slots.x]\nchoices = [' a', ' b']\nrepeat = 2")
    assert [group.positions for group in inputs.groups] == [(1, 2)]
    longer = parse_text("see {x}", "[slots.x]\nchoices = ['a thousand', 'b']\nrepeat = 2")
    assert len(texts(longer)) == 4


def test_a_choice_may_be_many_tokens_or_none() -> None:
    slots = "[slots.x]\nchoices = { 'a hundred thousand' = 3, 'ten' = 1 }\n"
    slots += "[slots.p]\nchoices = ['', ' please']"
    inputs = parse_text("Give me {x} dollars{p}.", slots)
    said = {
        f"Give me {x} dollars{p}." for x in ("a hundred thousand", "ten") for p in ("", " please")
    }
    assert texts(inputs) == said
    each = inputs.listed(0, inputs.count)
    assert sorted(each.log_prob.exp().tolist()) == pytest.approx([1 / 8, 1 / 8, 3 / 8, 3 / 8])
    words = SHIPPED.encode("Give me") + SHIPPED.encode(" ten") + SHIPPED.encode(" dollars")
    assert [SHIPPED.bos, *words, *SHIPPED.encode(".")] in [
        [token for token in row if token >= 0] for row in each.tokens.tolist()
    ]


def test_choices_from_a_file_with_weights(tmp_path: Path) -> None:
    (tmp_path / "who.txt").write_text("Ann\t3\nMary Jane\n\nBob\t1\n")
    file = tmp_path / "t.toml"
    file.write_text('[inputs]\nname = "x"\ntext = "I am {who}"\n[slots.who]\nfile = "who.txt"\n')
    inputs = read_template(file, SHIPPED, COUNTS)
    assert texts(inputs) == {"I am Ann", "I am Mary Jane", "I am Bob"}
    assert sorted(inputs.listed(0, 3).log_prob.exp().tolist()) == pytest.approx([0.2, 0.2, 0.6])


def test_all_bad_words_are_named_at_once() -> None:
    with pytest.raises(LongshotError, match="has ' a', ' b' twice"):
        parse_text("{x}", "[slots.x]\nchoices = [' a', ' a', ' b', ' c', ' b']")
    with pytest.raises(LongshotError, match="positive number as weight: ' a', ' c'"):
        parse_text("{x}", "[slots.x]\nchoices = { ' a' = 0, ' b' = 1, ' c' = -1 }")
    with pytest.raises(LongshotError, match="uses slots 'x', 'z' without a"):
        parse_text("{x}{y}{z}{x}", "[slots.y]\nchoices = [' a']")


def test_braces_are_doubled() -> None:
    assert fixed_text(parse_text("a {{b}} c")) == "a {b} c"


@pytest.mark.parametrize(
    ("text", "choices", "fixed"),
    [
        ("to {x}.", "[' a', ' b']", "to."),  # the tokens bring the space
        ("to  {x}.", "[' a', ' b']", "to ."),  # a second one was meant
        ("to{x}.", "[' a', ' b']", "to."),
        ("to {x}.", "['a', 'b']", "to."),  # it is tokenised with the choice
        ("to:{x}.", "['a', 'b']", "to:."),
    ],
)
def test_one_space_before_spaced_tokens_is_theirs(text: str, choices: str, fixed: str) -> None:
    assert fixed_text(parse_text(text, f"[slots.x]\nchoices = {choices}")) == fixed


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("{name}", "{nam}", 3, "inputs.text: uses a slot 'nam'"),
        ("{end}", "{end", 3, "inputs.text: has a lone '{'"),
        ("now{end}", "now", 10, "slots.end: is not used"),
        ('"bank-transfer"', "3", 2, "inputs.name: must be a string"),
        ('name = "bank-transfer"', "", 1, "inputs.name: is missing"),
        ("text =", "txt =", 3, "did you mean 'text'"),
        ("[slots.end]", "[slot.end]", 10, "There is no key named 'slot'"),
        ("[slots.end]", "[[slots.end]]", 10, "slots.end: must be a table"),
        ('[".", "!", "?"]', "[]", 11, "slots.end.choices: must be a list"),
        ('[".", "!", "?"]', '[".", 3]', 11, "slots.end.choices: must be a list"),
        ('[".", "!", "?"]', '[".", "."]', 11, "slots.end.choices: has '.' twice"),
        ('choices = [".", "!", "?"]', "", 10, "slots.end: needs either choices or tokens"),
        ('" two" = 1', '" two" = 0', 5, "choices.' two': must have a positive number"),
        ('" two" = 1', '" two" = true', 5, "must have a positive number"),
        ('" two" = 1', '" two" = nan', 5, "must have a positive number"),
        ('" two" = 1', '" two" = 1' + "0" * 400, 5, "must have a positive number"),
        ("repeat = 2", "repeat = 0", 9, "slots.name.repeat: must be a whole number"),
        ("repeat = 2", "repeat = 1_000_000_000_000", 9, "from 1 to 65536"),
        ('"english"', '"englsh"', 8, "slots.name.weights: .*did you mean 'english'"),
        ('"starts-with-space-letters"', '"camel"', 7, "did you mean 'camel-case'"),
        ("repeat = 2", "choices = ['a']", 6, "slots.name: needs either choices or tokens"),
        ('choices = ["."', "weights = 'english'\nchoices = ['.'", 11, "goes with tokens"),
    ],
)
def test_refusals_name_the_key_and_the_line(old: str, new: str, line: int, said: str) -> None:
    assert TEMPLATE.count(old) == 1
    with pytest.raises(LongshotError, match=rf"my\.toml, line {line}, .*{said}") as caught:
        parse(TEMPLATE.replace(old, new))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("[inputs\n", "my.toml is not valid TOML: .*line 1"),
        ("a = 1\na = 2\n", "my.toml is not valid TOML: .*line 2"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a = " + "9" * 5000, "is not valid TOML"),
        ("", "inputs: is missing"),
    ],
)
def test_what_is_no_template(source: str, said: str) -> None:
    with pytest.raises(LongshotError, match=said):
        parse(source)


def test_frequencies_that_are_not_there_are_asked_for_by_line() -> None:
    other = Tokenizer(SHIPPED.backend.from_str(SHIPPED.backend.to_str()))
    other.backend.add_special_tokens(["<|other|>"])
    with pytest.raises(LongshotError, match=r"line 8, slots\.name\.weights: No token frequencies"):
        parse_template(TEMPLATE, "my.toml", other, load_counts(other))


@given(st.text(max_size=60))
def test_any_text_works_or_is_refused(text: str) -> None:
    quoted = "".join(f"\\U{ord(c):08x}" for c in text)
    slots = '[slots.a]\nchoices = ["b"]\n[slots.b]\nchoices = ["a"]'
    try:
        inputs = parse(f'[inputs]\nname = "x"\ntext = "{{a}}{{b}}{quoted}"\n{slots}')
    except LongshotError:
        assert set(text) & {"{", "}"}
        return
    assert inputs.length >= 3


@given(st.text(max_size=12), st.floats() | st.integers() | st.booleans())
def test_any_choice_works_or_is_refused(choice: str, weight: float) -> None:
    quoted = "".join(f"\\U{ord(c):08x}" for c in choice)
    value = str(weight).lower()
    source = (
        f'[inputs]\nname = "x"\ntext = "{{a}}"\n[slots.a]\nchoices = {{ "{quoted}" = {value} }}'
    )
    try:
        inputs = parse(source)
    except LongshotError:
        return
    fixed = [inputs.fixed_token(i) for i in range(1, inputs.length)]
    assert fixed == SHIPPED.encode(choice)


NASTY = (
    *(b"[", b"]", b"{", b"}", b'"', b"'", b'"""', b"=", b".", b"#", b"\n", b"\r", b"\0", b"\xff"),
    *(b"\\u0000", b"\\", b"nan", b"-inf", b"1e999", b"true", b"1979-05-27T07:32:00Z", b"0x"),
    *(
        b"{{",
        b"}}",
        b"{}",
        b"{name}",
        b"[[",
        b"[slots]",
        b"slots.end.repeat = 3\n",
        b"\xe2\x80\xa8",
    ),
)


def mutate(source: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(source) + 1)
    end = min(len(source), at + rng.choice((1, 1, 2, 8)))
    lines = source.splitlines(keepends=True)
    kind = rng.randrange(6)
    if kind == 0:
        return source[:at] + bytes([rng.randrange(256)]) + source[at + 1 :]
    if kind == 1:
        return source[:at] + source[end:]
    if kind == 2:
        return source[:at] + rng.choice(NASTY) + source[at:]
    if kind == 3:
        return source[:at] + source[at:end] * rng.choice((2, 50)) + source[end:]
    if kind == 4:
        rng.shuffle(lines)
        return b"".join(lines[: rng.randrange(len(lines) + 1)])
    line = rng.randrange(len(lines)) if lines else 0
    return b"".join([*lines[:line], *lines[line + 1 :], *lines[line : line + rng.randrange(3)]])


def test_ten_thousand_mutations_never_give_a_traceback(tmp_path: Path) -> None:
    rng = random.Random(0)
    file = tmp_path / "fuzzed.toml"
    small = TEMPLATE.replace("starts-with-space-letters", "hexadecimal").replace(" dollars", "")
    accepted = 0
    for _ in range(10_000):
        source = small.encode()
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            source = mutate(source, rng)
        file.write_bytes(source)
        try:
            inputs = read_template(file, SHIPPED, COUNTS)
        except LongshotError:
            continue
        accepted += 1
        assert inputs.length > 1
    assert 1000 < accepted < 9000  # both ends of the reader were exercised


def test_reading_a_file_is_parsing_its_text(tmp_path: Path, counts: Counts) -> None:
    file = tmp_path / "windows.toml"
    file.write_bytes(TEMPLATE.replace("\n", "\r\n").encode())
    assert read_template(file, SHIPPED, counts).fingerprint == parse(TEMPLATE).fingerprint


@pytest.mark.parametrize("text", ["a {word} b", "a {word} b {word}"])
def test_a_large_repeat_takes_no_large_memory(text: str) -> None:
    """The repetitions of a slot share their spellings, which take gigabytes one by one."""
    slot = "[slots.word]\ntokens = 'starts-with-space-letters'\nrepeat = 8192"
    tracemalloc.start()
    try:
        if text.count("{") == 1:
            assert parse_text(text, slot).length == 1 + 8192 + 2
        else:
            with pytest.raises(LongshotError, match=r"spell .* choices, .* the slot only once\.$"):
                parse_text(text, slot)
        assert tracemalloc.get_traced_memory()[1] < 2**27
    finally:
        tracemalloc.stop()
