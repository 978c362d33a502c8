"""Studies as files: what is read, and that every mistake is one sentence with its key and line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from longshot.errors import LongshotError
from longshot.methods import settings_of
from longshot.study import Spec, parse_spec, preset, read_spec
from longshot.study.spec import PRESETS
from tests.study.studies import SMALL, small


def test_a_spec_is_read() -> None:
    spec = small()
    assert spec.models == ["mini-1l"]
    assert spec.targets.count == 3
    assert spec.methods["itgis"].is_tuned
    assert not spec.methods["qld"].is_tuned
    assert settings_of(spec.make_method("mhis", 0.7))["temperature"] == 0.7
    assert settings_of(spec.make_method("mhis", 0.7))["chains"] == 4


def test_a_label_may_stand_for_another_method_on_some_cells() -> None:
    spec = parse_spec(SMALL + '[methods.long]\nmethod = "naive"\nbudget = 9\ninputs = ["hex"]\n')
    assert spec.make_method("long", None).name == "naive"
    assert spec.covers("long", "mini-1l", "hex")
    assert not spec.covers("long", "mini-1l", "camel")


def test_a_list_of_budgets_is_a_label_for_each() -> None:
    spec = parse_spec(SMALL.replace("budget = 96", "budget = [96, 24, 48]"))
    own = {label: entry for label, entry in spec.methods.items() if label.startswith("mhis")}
    assert {label: entry.budget for label, entry in own.items()} == {
        "mhis": 96, "mhis-24": 24, "mhis-48": 48,
    }  # fmt: skip
    assert {spec.method_name(label) for label in own} == {"mhis"}
    assert all(entry.settings == spec.methods["mhis"].settings for entry in own.values())


@pytest.mark.parametrize("name", sorted(path.stem for path in PRESETS.glob("*.toml")))
def test_presets_are_valid(name: str) -> None:
    assert preset(name).name == name


def test_the_demo_compares_methods_at_one_budget() -> None:
    """As the sentence that it ends with says."""
    assert {entry.budget for entry in preset("demo").methods.values()} == {2048}


def test_the_papers_preset_has_the_papers_numbers() -> None:
    spec = preset("paper")
    assert spec.known_temperature("itgis", "gelu-4l", "hex") == 5.0
    assert spec.known_temperature("mhis", "gelu-2l", "english") == 2.24
    assert spec.tuning is None
    assert spec.methods["mhis"].budget == 32 * (2**10 + 2**11)
    assert (spec.targets.count, spec.targets.low, spec.targets.high) == (256, 1e-9, 1e-5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "small"', "", "line 1, name: is missing"),
        ('name = "small"', "name = 3", "line 2, name: should be a valid string"),
        ('name = "small"', 'name = "a/b"', "line 2, name: "),
        ('["mini-1l"]', "[]", "line 3, models: "),
        ('["camel", "hex"]', '["hex", "hex"]', "line 4, inputs: names the same thing twice"),
        ("count = 3", "count = 0", "line 7, targets.count: "),
        ("count = 3", "high = nan", "line 7, targets.high: "),
        ("count = 3", "low = 0.5", "line 7, targets.low: 0.5 is above high, 0.0001"),
        ("[tuning]", "[tunning]", "tunning: is no key"),
        ("[0.5, 1.0]", "[0.5, -1.0]", "line 9, tuning.temperatures.1: "),
        ("[0.5, 1.0]", "[0.5, 0.5]", "line 9, tuning.temperatures: names the same thing twice"),
        ("[methods.gld]", "[methods.gdl]", "methods.gdl: There is no method named 'gdl'; did you"),
        ("chains = 4", "chains = 4.5", "methods.mhis.chains: should be a valid integer"),
        ("chains = 4", "chain = 4", "methods.mhis.chain: .* did you mean 'chains'"),
        ("chains = 4", "chains = -4", "methods.mhis: mhis: chains must be positive"),
        ("chains = 4", 'method = "mihs"', "methods.mhis.method: .* did you mean 'mhis'"),
        ("chains = 4", 'inputs = ["caps"]', "methods.mhis.inputs: 'caps' is not among the study"),
        ("budget = 96", 'budget = "96"', "methods.mhis.budget: should be a valid integer"),
        ("budget = 96", "budget = 0", "methods.mhis.budget: "),
        ("budget = 96", "budget = 10000000000000000000", "methods.mhis.budget: "),
        ("budget = 96", "budget = []", "methods.mhis.budget: is a number of calls, or a list"),
        ("budget = 96", "budget = [9, 9]", "methods.mhis.budget: is a number of calls, or a list"),
        ("budget = 96", "budget = [9, true]", "methods.mhis.budget: is a number of calls, or a"),
        ("budget = 96", "budget = [0, 9]", "methods.mhis-0.budget: "),
        ("budget = 96", "budget = [9, 96]\n[methods.mhis-9]\nbudget = 9", "mhis-9: is what a bud"),
        ("budget = 96", "", "methods.mhis.budget: is missing"),
        ('"tuned"', '"tune"', "methods.itgis.temperature: should be a valid number"),
        ("at_once = 2", "at_once = true", "line 5, at_once: should be a valid integer"),
        ("at_once = 2", "[temperatures.itgsi.x]", "did you mean 'itgis'"),
        ("at_once = 2", "at_once = ", "not valid TOML"),
    ],
)
def test_mistakes_are_refused_with_key_and_line(old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(LongshotError, match=message) as caught:
        parse_spec(SMALL.replace(old, new, 1))
    assert "\n" not in str(caught.value).split("not valid TOML")[0]


def test_tuned_without_a_sweep_is_refused_but_known_temperatures_serve() -> None:
    start, end = SMALL.index("[tuning]"), SMALL.index("[methods.naive]")
    without = SMALL[:start] + SMALL[end:]
    with pytest.raises(LongshotError, match=r"methods.itgis.temperature: .* no \[tuning\]"):
        parse_spec(without)
    known = "".join(
        f"[temperatures.{method}.mini-1l]\ncamel = 0.5\nhex = 1\n" for method in ("itgis", "mhis")
    )
    assert parse_spec(without + known).known_temperature("mhis", "mini-1l", "hex") == 1


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(LongshotError, match="No such file"):
        read_spec(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(LongshotError, match="not UTF-8"):
        read_spec(tmp_path / "latin.toml")
    with pytest.raises(LongshotError, match="did you mean 'mini'"):
        preset("mimi")


PIECES = [
    "[",
    "]",
    '"',
    "=",
    "\n",
    "-1",
    "1e999",
    "nan",
    "true",
    "{",
    "}",
    "[[",
    ".",
    "#",
    "0x",
    "é",
]
PIECES += [
    ".",
    "#",
    "0x",
    "é",
    "budget",
    "temperature",
    "methods",
    '"tuned"',
    "10" * 12,
    "\\",
    "'",
    "''",
    ",",
    "[]",
]


def mutated(source: str, luck: random.Random) -> str:
    """A few slips of the keyboard: letters lost, doubled or moved, lines lost or swapped."""
    text = source
    for _ in range(luck.randint(1, 4)):
        at = luck.randrange(len(text))
        match luck.randrange(6):
            case 0:
                text = text[:at] + text[at + luck.randint(1, 12) :]
            case 1:
                text = text[:at] + luck.choice(PIECES) + text[at:]
            case 2:
                end = at + luck.randint(1, 8)
                text = text[:at] + luck.choice(PIECES) + text[end:]
            case 3:
                lines = text.split("\n")
                luck.shuffle(lines)
                text = "\n".join(lines)
            case 4:
                lines = text.split("\n")
                del lines[luck.randrange(len(lines))]
                text = "\n".join(lines)
            case _:
                text = text[:at] + chr(luck.randrange(1, 0x2FF)) + text[at + 1 :]
        text = text or "\n"
    return text


def test_ten_thousand_mutations_are_refused_or_valid() -> None:
    """Never a traceback; what is valid survives being written down and read back."""
    luck, sources = random.Random(11), [p.read_text() for p in sorted(PRESETS.glob("*.toml"))]
    valid = 0
    for _ in range(10_000):
        source = mutated(luck.choice([SMALL, *sources]), luck)
        try:
            spec = parse_spec(source)
        except LongshotError:
            continue
        else:
            valid += 1
            read_back = Spec.model_validate_json(spec.model_dump_json())
            assert read_back.model_dump() == spec.model_dump()
            for label in spec.methods:
                spec.make_method(label, 1.0)
    assert 500 < valid < 9500
