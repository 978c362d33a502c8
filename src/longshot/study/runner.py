"""A study from its spec to its rows: choose targets, tune, estimate; stop anywhere and go on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from longshot.errors import LongshotError
from longshot.inputs import load_inputs
from longshot.models import load_model
from longshot.study.batches import Finished, StudyBatch, StudyCell, Worker, versions
from longshot.study.progress import StudyStatus
from longshot.study.results import FILE, read_study
from longshot.study.spec import Selection, Spec
from longshot.study.store import Chosen, Row, RunStore, Stage, Target
from longshot.study.tuning import pick_temperature
from longshot.truth import load_truth, pick_certified, pick_targets
from longshot.work import Engine

STAGES: tuple[Stage, ...] = ("tune", "run")


OnProgress = Callable[[StudyStatus], None]


def run_study(
    spec: Spec,
    folder: Path,
    engine: Engine,
    *,
    only: str = "",
    stages: Sequence[Stage] = STAGES,
    truth: Path | None = None,
    on_progress: OnProgress = lambda status: None,
) -> StudyStatus:
    """Add to the run in `folder` what of the study it does not hold yet.

    Targets are chosen by the shipped truth and what `longshot truth make` has made, or by the table
    or store `truth`.
    """
    selection = Selection.parse(only, spec)
    with _alone(folder), RunStore(folder / FILE, create=True) as store:
        _same_study(store, spec)
        cells = _load_cells(spec, store, selection, truth)
        study = _Study(spec, store, cells, selection, truth)
        study.choose_targets("run")  # first whatever the stage: tuning takes what they leave
        study.choose_targets("tune")
        first = study.tuning() + (study.methods(tuned=False) if "run" in stages else [])
        second = study.methods(tuned=True) if "run" in stages else []
        status = StudyStatus()
        for batch, left in zip([*first, *second], study.left([*first, *second]), strict=True):
            status.planned(batch, len(left.tokens))
        on_progress(status)
        study.run(study.left(first), engine, status, on_progress)
        study.pick_temperatures()
        todo = study.with_temperatures(study.left(second), status)
        study.run(list(todo), engine, status, on_progress)
        return status


@dataclass
class _Study:
    """The plan and the store of one run."""

    spec: Spec
    store: RunStore
    cells: list[StudyCell]
    selection: Selection
    truth: Path | None
    targets: dict[tuple[Stage, int], Chosen] = field(default_factory=dict)

    def choose_targets(self, stage: Stage) -> None:
        """Once for a run: they stay when the truth grows later."""
        for number, cell in enumerate(self.cells):
            chosen = self.store.chosen(stage, *cell.names)
            if chosen is None:
                if stage == "tune" and not self._swept(cell):
                    continue
                chosen = self._choose(stage, cell)
                self.store.choose(stage, *cell.names, chosen)
            self.targets[stage, number] = chosen

    def _choose(self, stage: Stage, cell: StudyCell) -> Chosen:
        wanted = self.spec.targets if stage == "run" else self.spec.tuning
        assert wanted is not None
        truth = load_truth(cell.model, cell.inputs, self.truth)
        other = self.store.chosen("tune" if stage == "run" else "run", *cell.names)
        taken = {target.token for target in other.targets} if other else set()
        bounds, count = (wanted.low, wanted.high), wanted.count
        while True:  # those that are taken make room for the next of the same random order
            if wanted.certified:
                picked = pick_certified(truth, *bounds, count, self.spec.seed)
            else:
                picked = pick_targets(truth, *bounds, count, self.spec.seed, wanted.relative_error)
            free = [token for token in picked.tokens if token not in taken]
            if len(free) >= wanted.count or count >= picked.qualified:
                break
            count += wanted.count - len(free)
        probability, error = picked.judge.probability, picked.judge.standard_error
        targets = tuple(
            Target(
                token,
                cell.model.tokenizer.show(token),
                float(probability[token]),
                float(error[token]),
            )
            for token in free
        )
        return Chosen(targets, picked.qualified, str(truth))

    def _swept(self, cell: StudyCell) -> list[str]:
        """The labels whose temperature has to be found on a cell."""
        return [
            label
            for label, entry in self.spec.methods.items()
            if entry.is_tuned
            and self._covers(label, cell)
            and self.spec.known_temperature(label, *cell.names) is None
        ]

    def _covers(self, label: str, cell: StudyCell) -> bool:
        return self.selection.has("method", label) and self.spec.covers(label, *cell.names)

    def tuning(self) -> list[StudyBatch]:
        """Every temperature of the sweep on every cell that needs one."""
        return [
            self._batch(number, "tune", label, self.spec.tuning.budget, temperature)
            for number, cell in enumerate(self.cells)
            for label in self._swept(cell)
            if self.spec.tuning is not None
            for temperature in self.spec.tuning.temperatures
        ]

    def methods(self, *, tuned: bool) -> list[StudyBatch]:
        """Every method on every cell, those with or those without a temperature to tune."""
        return [
            self._batch(number, "run", label, entry.budget, 0.0)
            for number, cell in enumerate(self.cells)
            for label, entry in self.spec.methods.items()
            if entry.is_tuned is tuned and self._covers(label, cell)
        ]

    def _batch(self, cell: int, stage: Stage, label: str, budget: int, tried: float) -> StudyBatch:
        method = self.spec.make_method(label, tried or 1.0)
        tokens = tuple(
            target.token
            for target in self.targets[stage, cell].targets
            if self.selection.has("token", str(target.token))
        )
        return StudyBatch(cell, stage, label, method, budget, self.spec.seed, tried, tokens)

    def left(self, batches: Iterable[StudyBatch]) -> list[StudyBatch]:
        """What of each batch the store does not hold."""
        done = self.store.done()
        return [batch.without(done, self.cells[batch.cell]) for batch in batches]

    def run(
        self,
        batches: Iterable[StudyBatch],
        engine: Engine,
        status: StudyStatus,
        on_progress: OnProgress,
    ) -> None:
        pieces = [piece for batch in batches for piece in batch.pieces(self.spec.at_once)]
        finished: Finished
        for finished in engine.map(Worker(tuple(self.cells)), pieces) if pieces else ():
            self.store.add(finished.rows, finished.versions)
            status.finished(finished.batch, finished.rows, finished.seconds)
            on_progress(status)

    def pick_temperatures(self) -> None:
        """From the finished curves; one with a gap is left for the next time."""
        known, rows = self.store.tuned(), self.store.rows("tune")
        for number, cell in enumerate(self.cells):
            for label in self._swept(cell):
                name = (*cell.names, label)
                if name in known or self.spec.tuning is None:
                    continue
                targets = self.targets["tune", number].targets
                own = [row for row in rows if row.key[1:4] == name]
                sweep = self.spec.tuning.temperatures
                if sum(row.estimate is not None for row in own) == len(targets) * len(sweep):
                    self.store.set_tuned(*name, pick_temperature(own, targets, sweep))

    def with_temperatures(
        self, batches: Iterable[StudyBatch], status: StudyStatus
    ) -> Iterator[StudyBatch]:
        """Tuned batches with their temperatures; one without becomes rows that say so."""
        tuned = self.store.tuned()
        for batch in batches:
            cell = self.cells[batch.cell]
            known = self.spec.known_temperature(batch.label, *cell.names)
            if known is None and (*cell.names, batch.label) in tuned:
                known = tuned[*cell.names, batch.label].temperature
            if known is not None:
                method = self.spec.make_method(batch.label, known)
                yield replace(batch, method=method)
            elif batch.tokens:
                why = "its temperature was not tuned: part of the sweep failed"
                rows = [Row(key, error=why) for key in batch.keys(cell)]
                self.store.add(rows, versions())
                status.finished(batch, rows, 0.0)


def _load_cells(
    spec: Spec, store: RunStore, selection: Selection, truth: Path | None
) -> list[StudyCell]:
    """The selected cells, all of them before anything runs."""
    cells = []
    for name in (name for name in spec.models if selection.has("model", name)):
        with spec.errors_at("models"):
            model = load_model(name)
        for inputs_name in (name for name in spec.inputs if selection.has("inputs", name)):
            with spec.errors_at("inputs"):
                place = spec.beside(inputs_name)
                inputs = load_inputs(place, model, spec.corpus)
                if store.chosen("run", name, inputs_name) is None:  # or it has its targets
                    load_truth(model, inputs, truth, asked=(name, place))
            cell = StudyCell(model, inputs, (name, inputs_name))
            store.claim(*cell.names, cell.fingerprints)
            cells.append(cell)
    return cells


def _same_study(store: RunStore, spec: Spec) -> None:
    """A run holds one study; only what changes no row may change on resuming.

    It may be run in parts, and grow: no row knows of other models, inputs or methods.
    """
    study = json.loads(spec.model_dump_json(exclude={"at_once"}))
    text = store.fact("study")
    found = study if text is None else read_study(text, store.path)
    together = {
        **study,
        "models": list(dict.fromkeys([*study["models"], *found["models"]])),
        "inputs": list(dict.fromkeys([*study["inputs"], *found["inputs"]])),
        "methods": {**study["methods"], **found["methods"]},
    }
    parts = ("models", "inputs", "methods")
    if {**together, **{name: found[name] for name in parts}} != found or any(
        together["methods"][label] != entry for label, entry in study["methods"].items()
    ):
        raise LongshotError(
            f"{store.path.parent} holds another study, or this one before it was changed; "
            "choose another folder."
        )
    if text is None or any(len(together[name]) > len(found[name]) for name in parts):
        store.set_fact("study", json.dumps(together))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No two processes on one run: SQLite's lock goes with the process that holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = sqlite3.connect(folder / "lock", timeout=0, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise LongshotError(f"Another process is running the study in {folder}.") from error
        raise LongshotError(f"The folder {folder} cannot be used: {error}.") from error
    except OSError as error:
        raise LongshotError(f"The folder {folder} cannot be used: {error.strerror}.") from error
    try:
        yield
    finally:
        lock.close()
