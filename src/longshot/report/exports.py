"""Results in the formats of other tools: pandas, ArviZ, Inspect, and lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longshot.errors import LongshotError, needs
from longshot.estimate import Estimate, Problem
from longshot.files import write_whole
from longshot.study import Run
from longshot.study.results import estimate_record, finite

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import DataTree

SCHEMA = Path(__file__).parent / "schemas" / "estimate.json"
"""The JSON schema of what `longshot estimate --json` prints."""


def estimate_json(problem: Problem, answer: Estimate) -> dict[str, Any]:
    """An answer for machines, null where there is no number; `SCHEMA` says what it holds."""
    model, spent = problem.model, answer.cost + answer.shared_cost
    plain: dict[str, Any] = {
        "model": model.name,
        "inputs": problem.inputs.name,
        "event": answer.event,
        "target": problem.event.show(model),
        "probability": answer.probability,
        "log_probability": answer.log_probability,
        "interval": list(answer.interval),
        "interval_kind": answer.interval_kind,
        "no_interval": answer.no_interval,
        "standard_error": answer.standard_error,
        "method": answer.method,
        "settings": dict(answer.settings),
        "budget": answer.budget,
        "seed": answer.seed,
        "samples": answer.samples,
        "hits": answer.hits,
        "effective_sample_size": answer.effective_sample_size,
        "witnesses": [asdict(witness) for witness in answer.witnesses],
        "statistics": dict(answer.statistics),
        "warnings": list(answer.warnings),
        "explanation": answer.explanation or None,
        "cost": asdict(spent),
    }
    found: dict[str, Any] = finite(plain)
    return found


def to_pandas(answers: Iterable[Estimate]) -> DataFrame:
    """Estimates as one table, with the columns of `Run.to_pandas`."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise needs("to_pandas", "pandas", "notebook") from error
    return DataFrame([{"event": a.event, **estimate_record(a)} for a in answers])


def to_arviz(source: Estimate | Mapping[str, Any]) -> DataTree:
    """Chains as an ArviZ DataTree: those of `MHIS.chains`, or the rounds of an answer.

    A mapping holds an array of (chain, step) for each name. The rounds of an answer by splitting
    or `auto` are one chain of its running log probability.
    """
    try:
        from arviz_base import from_dict
    except ImportError as error:
        raise needs("to_arviz", "arviz-base", "notebook") from error
    if isinstance(source, Estimate):
        if not source.trace:
            raise LongshotError(f"An answer by {source.method} has no rounds to export.")
        rounds = source.trace
        source = {
            "log_probability": [[r.log_probability for r in rounds]],
            "forwards": [[float(r.forwards) for r in rounds]],
        }
    import numpy as np

    return from_dict({"posterior": {name: np.asarray(x) for name, x in source.items()}})


def to_inspect(run: Run, path: str | Path) -> Path:
    """A run as an Inspect log, which `inspect view` opens.

    Each estimate is a sample: the truth its target, the witnesses its output, the probability its
    score.
    """
    try:
        from inspect_ai.log import (
            EvalConfig,
            EvalDataset,
            EvalLog,
            EvalSample,
            EvalSpec,
            EvalStats,
            write_eval_log,
        )
        from inspect_ai.model import ModelOutput
        from inspect_ai.scorer import Score
    except ImportError as error:
        raise needs("to_inspect", "inspect_ai", "notebook") from error
    samples = []
    for number, (row, record) in enumerate(zip(run.in_order, run.records(), strict=True), start=1):
        answer = row.estimate
        texts = [witness.text for witness in answer.witnesses] if answer else []
        asked = (
            f"{record['model']} after {record['inputs']}: {record['text']} by {record['method']}"
        )
        said = "no hit" if not answer or not answer.probability else f"{answer.probability:.3g}"
        samples.append(
            EvalSample(
                id=number,
                epoch=1,
                input=asked,
                target=f"{record['truth']:.3g}",
                output=ModelOutput.from_content(record["model"], "\n\n".join(texts) or said),
                scores={
                    "probability": Score(
                        value=answer.probability if answer else "failed",
                        answer=said,
                        explanation=row.error or record.get("no_interval") or "",
                    )
                },
                total_time=record.get("seconds"),
                metadata=finite(record) | {"witnesses": texts},
            )
        )
    made = run.finished or datetime.now(UTC).isoformat()
    spec = EvalSpec(
        created=made,
        task=run.name,
        dataset=EvalDataset(name=run.name, samples=len(samples)),
        model="longshot",
        config=EvalConfig(),
    )
    place = Path(path).expanduser()
    when = EvalStats(started_at=made, completed_at=made)  # a run knows when it ended, no more
    log = EvalLog(status="success", eval=spec, stats=when, samples=samples)
    write_eval_log(log, str(place))
    return place


def write_witnesses(records: Iterable[Mapping[str, Any]], path: Path) -> Path:
    """Witnesses as JSON lines: `prompt`, the input that does it, and what it is a witness of."""
    lines = [
        json.dumps({"prompt": record["text"], **finite(dict(record))}, ensure_ascii=False)
        for record in records
    ]
    write_whole(path, "".join(f"{line}\n" for line in lines))
    return path


def read_witnesses(path: Path) -> list[dict[str, Any]]:
    """The same, read back."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
