"""A run that was stored: its rows beside the truth, without any model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longshot.errors import LongshotError, needs, visible
from longshot.estimate import Estimate
from longshot.files import parse_json
from longshot.names import preset_names
from longshot.shown import Shown
from longshot.study.exported import COSTS, holds_rows, read_rows
from longshot.study.store import Chosen, Row, RunStore, Stage, Target, Tuned

if TYPE_CHECKING:
    from pandas import DataFrame

FILE = "run.sqlite"


@dataclass(frozen=True)
class Run(Shown):
    """The rows, targets and temperatures of one study."""

    path: Path
    study: Mapping[str, Any]
    """The study's spec as plain values."""
    chosen: Mapping[tuple[Stage, str, str], Chosen]
    rows: tuple[Row, ...]
    tuned: Mapping[tuple[str, str, str], Tuned]
    finished: str = ""
    """When its last row was committed, as ISO 8601."""
    made_by: str = ""
    """The version of longshot that committed it."""

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {len(self.cells)} cells, {len(self.rows)} rows, {self.path})"

    @property
    def command(self) -> str:
        """What makes such a run."""
        study = f"--preset {self.name}" if self.name in preset_names() else f"{self.name}.toml"
        return f"longshot run {study}"

    @property
    def name(self) -> str:
        return str(self.study["name"])

    @property
    def cells(self) -> list[tuple[str, str]]:
        """Models and inputs whose targets were chosen, in the order of the study."""
        pairs = [(m, i) for m in self.study["models"] for i in self.study["inputs"]]
        return [pair for pair in pairs if ("run", *pair) in self.chosen]

    @property
    def methods(self) -> list[str]:
        """The labels that have rows, in the order of the study."""
        found = {row.key.method for row in self.rows}
        return [label for label in self.study["methods"] if label in found]

    def method_name(self, label: str) -> str:
        """The method that a label stands for."""
        return str(self.study["methods"][label]["method"] or label)

    def estimates(self, model: str, inputs: str, label: str) -> list[tuple[Target, Estimate]]:
        """A cell's targets that a method has answered, each with its answer."""
        return self._answers.get((model, inputs, label), [])

    @cached_property
    def _answers(self) -> dict[tuple[str, str, str], list[tuple[Target, Estimate]]]:
        found: dict[tuple[str, str, str], list[tuple[Target, Estimate]]] = {}
        for row in self.rows:
            if row.estimate is not None:
                pair = (self._targets[*row.key[1:3], row.key.token], row.estimate)
                found.setdefault(row.key[1:4], []).append(pair)
        return found

    @cached_property
    def _targets(self) -> dict[tuple[str, str, int], Target]:
        return {
            (model, inputs, target.token): target
            for (stage, model, inputs), chosen in self.chosen.items()
            if stage == "run"
            for target in chosen.targets
        }

    @property
    def failures(self) -> list[Row]:
        return [row for row in self.rows if row.error is not None]

    @property
    def in_order(self) -> list[Row]:
        """The rows in the order of the study, where `rows` has that of their keys."""
        orders = [self.study[name] for name in ("models", "inputs", "methods")]
        places = [{name: place for place, name in enumerate(order)} for order in orders]

        def place(row: Row) -> list[int]:
            names = zip(places, row.key[1:4], strict=True)
            return [*(known.get(name, len(known)) for known, name in names), row.key.token]

        return sorted(self.rows, key=place)

    def records(self) -> Iterator[dict[str, Any]]:
        """One flat dictionary for each row: what was asked, the truth and the answer.

        They come in the order of the study, and `load_run` reads them back from a file.
        """
        for row in self.in_order:
            key, answer = row.key, row.estimate
            target = self._targets[key.model, key.inputs, key.token]
            record: dict[str, Any] = {
                "model": key.model,
                "inputs": key.inputs,
                "method": key.method,
                "token": key.token,
                "text": target.text,
                "truth": target.probability,
                "truth_error": target.standard_error,
                "error": row.error,
            }
            if answer is not None:
                record |= estimate_record(answer)
            yield record

    def to_pandas(self) -> DataFrame:
        """All rows as one table."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise needs("to_pandas", "pandas", "notebook") from error
        return DataFrame(list(self.records()))

    def witnesses(self) -> Iterator[dict[str, Any]]:
        """Every input that produced its target, as plain dictionaries."""
        for row in self.rows:
            for witness in row.estimate.witnesses if row.estimate else ():
                names = {name: getattr(row.key, name) for name in ("model", "inputs", "method")}
                yield {**names, "target": row.key.token, **asdict(witness)}


def estimate_record(answer: Estimate) -> dict[str, Any]:
    """What a table says of an answer."""
    low, high = answer.interval
    return {
        "probability": answer.probability,
        "log_probability": answer.log_probability,
        "standard_error": answer.standard_error,
        "low": low,
        "high": high,
        "no_interval": answer.no_interval,
        "hits": answer.hits,
        "effective_sample_size": answer.effective_sample_size,
        "pareto_k": answer.pareto_k,
        "method_name": answer.method,
        "settings": dict(answer.settings),
        "statistics": dict(answer.statistics),
        "temperature": answer.settings.get("temperature"),
        "budget": answer.budget,
        "seed": answer.seed,
        **asdict(answer.cost + answer.shared_cost),
        **{f"shared_{name}": getattr(answer.shared_cost, name) for name in COSTS},
        "warnings": list(answer.warnings),
        "witness": answer.witnesses[0].text if answer.witnesses else None,
    }


def load_run(path: str | Path) -> Run:
    """A run from its folder, from its file, or from its rows as `longshot rows` prints them."""
    path = Path(path).expanduser()
    file = path / FILE if path.is_dir() else path
    return _whole(Run(path=file, **read_rows(file)) if holds_rows(file) else _stored(file))


def _stored(file: Path) -> Run:
    with RunStore(file) as store:
        study = store.fact("study")
        if study is None:
            raise LongshotError(f"{file} was begun but holds no study; run it again.")
        return Run(
            path=file,
            study=read_study(study, file),
            chosen=store.all_chosen(),
            rows=tuple(store.rows("run")),
            tuned=store.tuned(),
            **store.last_commit(),
        )


def _whole(run: Run) -> Run:
    """The run, if its rows are of its targets and a label's of one method."""
    if any((*row.key[1:3], row.key.token) not in run._targets for row in run.rows):
        raise LongshotError(
            f"The run {run.path} is damaged: it has rows of what is no target of it."
        )
    if any(len({e.method for _, e in answers}) > 1 for answers in run._answers.values()):
        raise LongshotError(f"The run {run.path} is damaged: a label has rows of several methods.")
    return run


def read_study(text: str, where: Path) -> dict[str, Any]:
    """The study of a run, if what is read from it later is there."""
    study = parse_json(text, f"The study in {where}")
    lists = [study.get(name) for name in ("models", "inputs")]
    methods = study.get("methods")
    names = [study.get("name"), *(n for each in lists if isinstance(each, list) for n in each)]
    entries = list(methods.values()) if isinstance(methods, dict) else [None]
    names += methods if isinstance(methods, dict) else []
    known = all(isinstance(entry, dict) and "method" in entry for entry in entries)
    printed = all(isinstance(name, str) and name == visible(name) for name in names)
    if not known or not printed or not all(isinstance(each, list) for each in lists):
        raise LongshotError(f"The run {where} is damaged: it holds no study that can be read.")
    return study


def finite(value: Any) -> Any:
    """Plain values with None for every number that JSON has no word for."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
