"""The estimates of five methods on three cells, written to `rows.json`.

`python -m tests.golden.make` writes them anew; `test_golden.py` compares. A change of the rows is a
change of behaviour: make it on purpose, and say which rows changed and why.
"""

from __future__ import annotations

import json
from pathlib import Path

import longshot as ls

FILE = Path(__file__).parent / "rows.json"
CELLS = (("mini-1l", "hex"), ("mini-2l", "camel"), ("mini-4l", "if"))
METHODS = {
    "naive": (2**10, {}),
    "conditional": (2**11, {}),
    "itgis": (2**10, {"temperature": 0.67, "score": "logit"}),
    "qld": (2**10, {}),
    "gld": (2**10, {}),
}
RANGES = ((1e-3, 1e-1), (1e-5, 1e-3))
"""Two targets each: some that are seen and some that are not."""


def rows() -> dict[str, list[dict[str, object]]]:
    """Every estimate as plain values, its seconds left out."""
    found = {}
    for model_name, inputs_name in CELLS:
        model = ls.load_model(model_name)
        inputs = ls.load_inputs(inputs_name, model)
        truth = ls.load_truth(model, inputs)
        targets = [t for r in RANGES for t in ls.pick_targets(truth, *r, 2).tokens]
        for method, (budget, settings) in METHODS.items():
            answers = ls.estimate_many(
                model, inputs, targets, method=method, budget=budget, seed=7, **settings
            )
            plain = [answer.to_dict() for answer in answers]
            for row in plain:
                del row["cost"]["seconds"], row["shared_cost"]["seconds"]
            found[f"{model_name} {inputs_name} {method}"] = plain
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(rows(), indent=1, sort_keys=True) + "\n")
