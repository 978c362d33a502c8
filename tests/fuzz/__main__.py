"""`python -m tests.fuzz --minutes 5 --seed 0`: spoil files of every kind and read them.

Each worker is a process with a limit on memory, watched by this one: a case that takes ten seconds
or ends its worker is a finding, as is any exception but a `LongshotError`, a sealed file that reads
otherwise than it was written, and a gigabyte of memory. Findings are kept in `--keep`, one for each
place in the code, with what was done so far: run again with the same folder, it goes on. Those
worth keeping for ever go to `tests/fuzz/corpus`.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from longshot.files import write_whole
from tests.fuzz.kinds import KINDS
from tests.fuzz.worker import SECONDS, work

CONTEXT = multiprocessing.get_context("spawn")


class Watched:
    """One worker and the case that it is at."""

    def __init__(self, number: int, options: argparse.Namespace, folder: Path) -> None:
        self.number, self.options, self.folder = number, options, folder
        self.process = None
        self.next = number

    def start(self) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        arguments = (theirs, str(self.folder), self.options.seed, self.next, self.options.workers,
                     self.options.kinds)  # fmt: skip
        self.process = CONTEXT.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.since, self.spent = time.monotonic() + 60, 0.0  # to begin

    def tell(self) -> list[dict]:
        """What the worker has said since; a worker that says nothing is a finding."""
        said = []
        try:
            while self.pipe.poll():
                said.append(self.pipe.recv())
                self.next = said[-1]["case"] + self.options.workers
                self.since = time.monotonic()
        except (EOFError, OSError):
            said.append(self.ended("died"))
        waited = time.monotonic() - self.since
        if waited > 30 * SECONDS or (waited > SECONDS and self.busy() > SECONDS):
            said.append(self.ended("hang"))
        if said:
            self.spent += self.busy()
        return said

    def busy(self) -> float:
        """Processor seconds since it last said something: the machine may be busy with others."""
        try:
            times = Path(f"/proc/{self.process.pid}/stat").read_text().split(")")[1].split()
        except OSError:
            return 0.0
        return sum(map(int, times[11:13])) / os.sysconf("SC_CLK_TCK") - self.spent

    def ended(self, how: str) -> dict:
        self.process.kill()
        self.process.join()
        case = self.next
        names = self.options.kinds or list(KINDS)
        kind = names[case % len(names)]
        self.next += self.options.workers
        self.start()
        return {"case": case, "outcome": how, "kind": kind, "what": f"{how}: {kind}",
                "megabytes": 0}  # fmt: skip


class Progress:
    """What was done so far, in a file of the folder that findings go to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.path = options.keep / "progress.json"
        self.of = [options.seed, options.workers, options.kinds]
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.largest, self.findings = 0.0, set[str]()
        self.next = list(range(options.workers))
        found = json.loads(self.path.read_text()) if self.path.exists() else {}
        if found.get("of") == self.of:
            self.next, self.largest = found["next"], found["largest"]
            self.counts.update({(kind, came): n for kind, came, n in found["counts"]})
            self.findings = set(found["findings"])

    @property
    def done(self) -> int:
        return self.counts.total()

    def write(self, workers: list[Watched]) -> None:
        counts = [[*key, n] for key, n in sorted(self.counts.items())]
        found = {"of": self.of, "next": [worker.next for worker in workers], "counts": counts,
                 "largest": self.largest, "findings": sorted(self.findings)}  # fmt: skip
        write_whole(self.path, json.dumps(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--cases", type=int, default=10**9, help="Stop after that many.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kinds", nargs="*", default=[])
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"))
    options = parser.parse_args()
    progress = Progress(options)
    counts, findings = progress.counts, progress.findings
    end, saved = time.monotonic() + 60 * options.minutes, time.monotonic()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a disk takes most of the time
    with tempfile.TemporaryDirectory(dir=memory) as place:
        workers = [Watched(i, options, Path(place) / str(i)) for i in range(options.workers)]
        for worker, first in zip(workers, progress.next, strict=True):
            worker.next = first
            worker.start()
        while time.monotonic() < end and progress.done < options.cases:
            time.sleep(0.05)
            for worker in workers:
                for told in worker.tell():
                    counts[told["kind"], told["outcome"]] += 1
                    progress.largest = max(progress.largest, told["megabytes"])
                    if told["outcome"] not in ("refused", "the same", "read"):
                        if told["what"] not in findings:
                            print(json.dumps(told), flush=True)
                            _keep(told, worker.folder, options.keep)
                        findings.add(told["what"])
            if time.monotonic() - saved > 5:
                progress.write(workers)
                saved = time.monotonic()
        progress.write(workers)
        for worker in workers:
            worker.process.kill()
            worker.process.join()
    for kind in sorted({kind for kind, _ in counts}):
        parts = {outcome: n for (of, outcome), n in sorted(counts.items()) if of == kind}
        print(f"{kind:14} {sum(parts.values()):7,}  {parts}")
    most = f"at most {progress.largest:.0f} MB"
    print(f"{progress.done:,} files, {len(findings)} findings, {most}")
    return 1 if findings else 0


def _keep(told: dict, folder: Path, keep: Path) -> None:
    kept = folder / f"kept-{told['case']}"
    source = kept if kept.is_dir() else folder / "spoilt" / told["kind"]  # of a hang
    if source.is_dir():
        shutil.copytree(source, keep / f"{told['kind']}-{told['case']}", dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
