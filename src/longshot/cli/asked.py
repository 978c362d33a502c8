"""What `longshot estimate` is asked about: options of the command line made an event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longshot.errors import LongshotError, unknown_name

if TYPE_CHECKING:
    from longshot.events import EventLike

WITHIN = 8  # tokens of an output that are read, unless told
KINDS = "--target, --continuation, --matches and --judge-prompt"
LABELS = {"true": True, "bad": True, "1": True, "false": False, "good": False, "0": False}


@dataclass(frozen=True)
class Asked:
    """The options that say what counts as the rare output, as they were given."""

    target: Sequence[str] = ()
    continuation: str | None = None
    matches: str | None = None
    judge_prompt: str | None = None
    within: int | None = None
    climb: Sequence[str] = ()
    temperature: float | None = None
    judge: str | None = None
    judge_examples: str | None = None
    judge_chat: bool = False

    def check(self) -> None:
        """Refuse what does not go together, before anything is loaded."""
        given = sum(map(bool, (self.target, self.continuation, self.matches, self.judge_prompt)))
        if given != 1:
            what = "only one of" if given else 'a target, for example --target " but", or one of'
            kinds = KINDS if given else KINDS.removeprefix("--target, ")
            raise LongshotError(f"Name {what} {kinds}.")
        if not self.matches and self.climb:
            raise LongshotError("--climb belongs to --matches.")
        if not self.matches and not self.judge_prompt and self.within is not None:
            raise LongshotError("--within belongs to --matches and --judge-prompt.")
        alone = {"--judge": self.judge, "--judge-examples": self.judge_examples}
        alone["--judge-chat"] = "yes" if self.judge_chat else None
        if not self.judge_prompt and any(alone.values()):
            named = " and ".join(name for name, value in alone.items() if value)
            raise LongshotError(
                f"A judge needs a prompt beside {named}: "
                '--judge-prompt "Is this rude? {output} Answer YES or NO:".'
            )

    def event(self) -> EventLike:
        """The event itself, sampled where there is a temperature."""
        from longshot.evaluate import Judged, Sampled
        from longshot.events import Continuation, Matches

        within = WITHIN if self.within is None else self.within
        wanted: EventLike
        if self.continuation:
            wanted = Continuation(self.continuation)
        elif self.matches:
            wanted = Matches(self.matches, within, self.climb)
        elif self.judge_prompt:
            prompt = _text(self.judge_prompt)
            wanted = Judged(
                [("user", prompt)] if self.judge_chat else prompt,
                within,
                self.judge,
                examples=() if self.judge_examples is None else read_examples(self.judge_examples),
            )
        else:
            wanted = [int(t[1:]) if t[:1] == "#" and t[1:].isdigit() else t for t in self.target]
        return wanted if self.temperature is None else Sampled(wanted, self.temperature)


def _text(given: str) -> str:
    """A prompt as it stands, or that of a file."""
    from longshot.files import read_text

    return read_text("judge's prompt", Path(given)) if given.endswith(".txt") else given


def read_examples(name: str) -> list[tuple[str, bool]]:
    """The columns `text` and `bad` of a table, .jsonl, .csv or .parquet."""
    from longshot.inputs.rows import TABLES, read_table

    if not name.endswith(TABLES):
        raise LongshotError(f"The judge's examples are a table, {', '.join(TABLES)}, not {name}.")
    rows = list(read_table(Path(name).expanduser()))
    if not rows:
        raise LongshotError(f"{name} is empty: there is no example in it.")
    for row in rows:
        for column in ("text", "bad"):
            if column not in row:
                raise LongshotError(f"{name}: {unknown_name('column', column, map(str, row))}")
        if not isinstance(row["text"], str):
            raise LongshotError(f"{name}: the column 'text' has {row['text']!r}, no text.")
    return [(row["text"], _label(name, row["bad"])) for row in rows]


def _label(name: str, value: Any) -> bool:
    known = LABELS.get(str(value).strip().lower())
    if known is None:
        raise LongshotError(f"{name}: the column 'bad' has {value!r}, neither true nor false.")
    return known
