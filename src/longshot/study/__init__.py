"""Which estimator to believe, on which inputs, at what cost: the experiment as a whole."""

from longshot.study.progress import StudyStatus
from longshot.study.results import Run, load_run
from longshot.study.runner import run_study
from longshot.study.spec import Spec, parse_spec, preset, read_spec
from longshot.study.store import Stage

__all__ = [
    "Run",
    "Spec",
    "Stage",
    "StudyStatus",
    "load_run",
    "parse_spec",
    "preset",
    "read_spec",
    "run_study",
]
