"""The shared tokenizer: byte-level BPE of exactly 4096 tokens, every digit on its own.

`python -m training.tokenizer --work WORK` trains it on the held-in mix and writes
WORK/tokenizer.json; `check` holds it to what the eight input distributions need.
"""

import argparse
import re
import string
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from training import clean
from training.files import DEFAULT_WORK, finished
from training.sources import LANGUAGES, MIX, Language

VOCAB_SIZE = 4096
SPECIAL_TOKENS = ("<|EOS|>", "<|BOS|>", "<|PAD|>")
CHARACTERS = 75_000_000  # of the mix; Spanish, the scarcest, is then read about once

# Plain text of this size gives 114 camel-case tokens and 5 words in Y: what is short is repeated.
SCARCE: dict[Language, tuple[tuple[re.Pattern[str], str, int], ...]] = {
    "english": ((re.compile(r"\b[Yy][a-z]{3,}\b"), " ", 12),),
    "python": ((re.compile(r"(?<![A-Z])[A-Z][a-z]{2,}"), ".", 2),),
    "spanish": (),
}

REQUIRED_TOKENS = (
    *(f" {letter}" for letter in string.ascii_uppercase),
    *("A", "He", "She", " for", " if", ":"),
)
REQUIRED_COUNTS = {"camel-case": 150, "capitals": 60}
REQUIRED_WORDS_A_LETTER = 10
WORD_LETTERS = "ARCTHEOY"  # the letters of ARCTHEORY


def held_in_sample(text: Path, language: Language, characters: int) -> Iterator[str]:
    """Held-in parts of a language, evenly spaced through its sources, or all more than once."""
    parts = [
        part
        for path in sorted((text / language).glob("*.txt"))
        for document in clean.read_documents(path)
        for part in clean.split(document)[0]
    ]
    total = sum(len(part) for part in parts)
    owed = 0.0
    for part in parts:
        owed += characters / total
        for _ in range(int(owed)):
            yield part
        owed -= int(owed)


def mixed_text(text: Path) -> Iterator[str]:
    """The mix that every language's share of the vocabulary is decided by."""
    for language in LANGUAGES:
        for part in held_in_sample(text, language, int(MIX[language] * CHARACTERS)):
            yield part
            yield from scarce(part, language)


def scarce(part: str, language: Language) -> Iterator[str]:
    """The words of `part` that need more weight than the text gives them, on their own."""
    for pattern, joint, times in SCARCE[language]:
        words = pattern.findall(part)
        if words:
            yield (joint + joint.join(words)) * times


def train(texts: Iterator[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """A byte-level BPE tokenizer of `vocab_size` tokens, the special ones among them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def begin_and_end(tokenizer: Tokenizer) -> tuple[int, int]:
    """The ids of BOS and EOS."""
    begin, end = tokenizer.token_to_id("<|BOS|>"), tokenizer.token_to_id("<|EOS|>")
    if begin is None or end is None:
        raise ValueError("the tokenizer has no <|BOS|> or no <|EOS|>")
    return begin, end


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """The text of every ordinary token."""
    size = tokenizer.get_vocab_size()
    special = {tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}
    return [tokenizer.decode([token]) for token in range(size) if token not in special]


def counts(tokenizer: Tokenizer) -> dict[str, int]:
    """How many tokens serve each distribution."""
    texts = vocabulary(tokenizer)
    found = {
        "camel-case": sum(bool(re.fullmatch(r"[A-Z][a-z]+", t)) for t in texts),
        "capitals": sum(bool(re.fullmatch(r"[A-Z,.?!:;]{2,}", t)) for t in texts),
        "hexadecimal": sum(bool(re.fullmatch(r"[0-9a-f]+", t)) for t in texts),
        "spaced words and punctuation": sum(
            bool(re.fullmatch(r" [A-Za-z,.?!:;]+|[,.!?;]", t)) for t in texts
        ),
        "indentation": sum(bool(re.fullmatch(r" {2,}|\n+ *", t)) for t in texts),
    }
    for letter in string.ascii_uppercase:
        words = rf" [{letter}{letter.lower()}][A-Za-z]{{3,}}"
        found[f"words in {letter}"] = sum(bool(re.fullmatch(words, t)) for t in texts)
    return found


def check(tokenizer: Tokenizer, vocab_size: int = VOCAB_SIZE) -> list[str]:
    """What the tokenizer lacks, one sentence each; empty when it serves every distribution."""
    lacks = []
    if tokenizer.get_vocab_size() != vocab_size:
        lacks.append(f"the vocabulary has {tokenizer.get_vocab_size()} tokens, not {vocab_size}")
    for token in SPECIAL_TOKENS:
        if tokenizer.token_to_id(token) is None:
            lacks.append(f"no special token {token}")
    for text in REQUIRED_TOKENS:
        if len(tokenizer.encode(text, add_special_tokens=False).ids) != 1:
            lacks.append(f"{text!r} is not one token")
    if len(tokenizer.encode("2718", add_special_tokens=False).ids) != 4:
        lacks.append("digits are not split one by one")
    found = counts(tokenizer)
    needed = REQUIRED_COUNTS | {
        f"words in {letter}": REQUIRED_WORDS_A_LETTER for letter in WORD_LETTERS
    }
    for name, least in needed.items():
        if found[name] < least:
            lacks.append(f"{name}: {found[name]} tokens, at least {least} are needed")
    return lacks


def main() -> None:
    """Train unless it is done; print what the vocabulary has and lacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    work: Path = parser.parse_args().work.expanduser()
    path = work / "tokenizer.json"
    if not path.exists():
        trained = train(mixed_text(work / "text"))
        with finished(path) as temporary:
            trained.save(str(temporary))
    tokenizer = Tokenizer.from_file(str(path))
    for name, number in counts(tokenizer).items():
        print(f"{name:32} {number:5}")
    lacks = check(tokenizer)
    for sentence in lacks:
        print("LACKS:", sentence)
    raise SystemExit(1 if lacks else 0)


if __name__ == "__main__":
    main()
