"""`python -m tests.faults.kills --count 200 --keep FILE`: processes killed while they work.

Cases are numbered and seeded; those told in FILE are not run again.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import torch

from tests.faults.kills.trial import VICTIMS, Killed, cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("kills.jsonl"))
    parser.add_argument("--victims", nargs="*", choices=VICTIMS, default=VICTIMS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = options.keep.read_text().splitlines() if options.keep.exists() else []
    told = {one["number"]: one for one in map(json.loads, kept) if one["seed"] == options.seed}
    with tempfile.TemporaryDirectory() as place, options.keep.open("a") as keep:
        killed = None
        for case in itertools.islice(cases(), options.first, options.first + options.count):
            if case.number in told or case.victim not in options.victims:
                continue
            killed = killed or Killed(Path(place))
            since = time.monotonic()
            came = killed.outcome(case, options.seed)
            seconds = round(time.monotonic() - since, 1)
            one = {**asdict(case), "seed": options.seed, "came": came, "seconds": seconds}
            told[case.number] = one
            print(json.dumps(one), file=keep, flush=True)
            print(f"{case.number} {case.work}, {case.victim}, {case.moment}: {came}", flush=True)
    counts = collections.Counter((one["victim"], one["came"]) for one in told.values())
    for (victim, came), count in sorted(counts.items()):
        print(f"{victim:13} {count:4}  {came}")
    wrong = [one for one in told.values() if one["came"] not in ("killed", "done before")]
    print(f"{len(told)} kills, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
