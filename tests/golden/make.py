"""The estimates of five methods on three cells, written to `rows.json`.

`python -m tests.golden.make` writes them anew; `test_golden.py` compares. A change of the rows is a
change of behaviour: make it on purpose, and say which rows changed and why.
"""

from __future__ import annotations

import json
from pathlib import Path

import longshot as ls

FILE = Path(__file__).parent / "rows.json"
CELLS = {
    ("mini-1l", "hex"): (15, 26, 306, 1596),
    ("mini-2l", "camel"): (868, 2172, 1796, 2332),
    ("mini-4l", "if"): (41, 299, 302, 624),
}
"""Four targets each: two that are seen, of 1e-3 … 1e-1, and two of 1e-5 … 1e-3 that are not."""
METHODS = {
    "naive": (2**10, {}),
    "conditional": (2**11, {}),
    "itgis": (2**10, {"temperature": 0.67, "score": "logit"}),
    "qld": (2**10, {}),
    "gld": (2**10, {}),
}


def rows() -> dict[str, list[dict[str, object]]]:
    """Every estimate as plain values, its seconds left out."""
    found = {}
    for (model_name, inputs_name), targets in CELLS.items():
        model = ls.load_model(model_name)
        inputs = ls.load_inputs(inputs_name, model)
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
