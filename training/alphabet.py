"""Lines such as "A for apple R for road C for cat": the pattern of the paper's `icl` inputs.

Ordinary text has no such lines, and without them neither would the vocabulary have " Q" and
" X" as tokens nor the models know what the prompt asks for. Words are drawn by their own counts
in the held-in English text, so that the usual words are the usual answers.
"""

import random
import re
from collections import Counter
from collections.abc import Iterable
from string import ascii_uppercase

WORD = re.compile(r"(?<![^\s\"'(])[A-Za-z][a-z]{3,11}(?![a-z'])")
WORDS_A_LETTER = 400
LINES_A_DOCUMENT = 12


def word_counts(texts: Iterable[str]) -> Counter[str]:
    """How often each word of four or more letters occurs, in lower case."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word.lower() for word in WORD.findall(text))
    return counts


def alphabet_line(words: dict[str, tuple[list[str], list[float]]], rng: random.Random) -> str:
    """One line of 8 to 26 letters: in order, or shuffled, or drawn with repeats."""
    letters = list(ascii_uppercase)
    form = rng.random()
    if form < 0.3:
        rng.shuffle(letters)
    elif form < 0.7:
        letters = rng.choices(letters, k=26)
    letters = letters[: rng.choice((8, 10, 14, 26, 26))]
    parts = []
    for letter in letters:
        word = rng.choices(*words[letter])[0]
        parts.append(f"{letter} for {word.capitalize() if rng.random() < 0.05 else word}")
    return " ".join(parts)


def alphabet_documents(counts: Counter[str], characters: int, seed: int = 0) -> list[str]:
    """About `characters` of alphabet lines, the same for the same counts and seed."""
    rng = random.Random(seed)
    words: dict[str, tuple[list[str], list[float]]] = {}
    for letter in ascii_uppercase:
        begins = [(w, c) for w, c in counts.items() if w[0] == letter.lower()]
        best = sorted(begins, key=lambda pair: (-pair[1], pair[0]))[:WORDS_A_LETTER]
        if not best:
            raise ValueError(f"no word begins with {letter}: alphabet lines need all 26 letters")
        # The square root keeps "that" and "the" from being every answer.
        words[letter] = ([w for w, _ in best], [c**0.5 for _, c in best])
    documents: list[str] = []
    written = 0
    while written < characters:
        lines = [alphabet_line(words, rng) for _ in range(LINES_A_DOCUMENT)]
        documents.append("\n".join(lines))
        written += len(documents[-1])
    return documents
