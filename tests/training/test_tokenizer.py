"""The check passes on the shipped tokenizer, and fails when something is missing."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from training import count, tokenise, tokenizer
from training.files import PACKAGE

SHIPPED = PACKAGE / "models" / "zoo" / "tokenizer.json"


@pytest.fixture(scope="module")
def shipped() -> Tokenizer:
    return Tokenizer.from_file(str(SHIPPED))


def test_shipped_tokenizer_serves_every_distribution(shipped: Tokenizer) -> None:
    assert tokenizer.check(shipped) == []


@pytest.mark.parametrize("token", ["ĠQ", "She", "Ġif"])
def test_a_missing_token_is_found(token: str) -> None:
    model = json.loads(SHIPPED.read_text(encoding="utf-8"))
    merges = model["model"]["merges"]
    model["model"]["merges"] = [m for m in merges if "".join(m) != token]
    assert len(model["model"]["merges"]) < len(merges)
    broken = Tokenizer.from_str(json.dumps(model))
    text = token.replace("Ġ", " ")
    assert f"{text!r} is not one token" in tokenizer.check(broken)


def test_a_small_tokenizer_lacks_much_and_splits_digits() -> None:
    small = tokenizer.train(iter(["He said: 12 times 345 if she " * 50]), vocab_size=300)
    lacks = tokenizer.check(small)
    assert any("not 4096" in sentence for sentence in lacks)
    assert any(sentence.startswith("camel-case") for sentence in lacks)
    assert not any("digits" in sentence for sentence in lacks)
    assert small.token_to_id("<|EOS|>") == 0


def test_text_survives_encoding_and_documents_end(shipped: Tokenizer) -> None:
    documents = ["¿Qué pasa?\n\n    x = 3.14159\t# π", 'He screamed: "NO!"']
    stream = tokenise.encode(shipped, documents)
    begin, end = tokenizer.begin_and_end(shipped)
    ends = np.flatnonzero(stream == end)
    assert len(ends) == 2
    assert ends[-1] == stream.size - 1
    assert shipped.decode(stream[: ends[0]].tolist()) == documents[0]
    counts = count.count(stream, shipped.get_vocab_size(), begin, end)
    assert counts.sum() == stream.size + 2
    assert counts[begin] == counts[end] == 2
