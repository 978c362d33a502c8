from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from longshot.toml import key_lines, line_of

SOURCE = '''\
# comment = 1
top = "a = b"   # [no.header]

[inputs]
text = """
name = "in a string"
[slots.fake]
"""
"quoted key" = 1
[ slots . "a.b" ]
choices = [
  "x",
  "y = 1",
]
dotted.key = { inner = 1 }
repeat = 2'''


def test_every_key_is_found_where_it_stands() -> None:
    assert tomllib.loads(SOURCE)
    assert key_lines(SOURCE + "\n") == {
        ("top",): 2,
        ("inputs",): 4,
        ("inputs", "text"): 5,
        ("inputs", "quoted key"): 9,
        ("slots",): 10,
        ("slots", "a.b"): 10,
        ("slots", "a.b", "choices"): 11,
        ("slots", "a.b", "dotted"): 15,
        ("slots", "a.b", "dotted", "key"): 15,
        ("slots", "a.b", "repeat"): 16,
    }


def test_what_has_no_line_of_its_own_gets_that_around_it() -> None:
    assert line_of(SOURCE, ("slots", "a.b", "dotted", "key", "inner")) == 15
    assert line_of(SOURCE, ("slots", "a.b", "missing")) == 10
    assert line_of(SOURCE, ("nowhere",)) == 1


@given(st.text())
def test_no_text_trips_the_scanner(source: str) -> None:
    assert all(line >= 1 for line in key_lines(source).values())
