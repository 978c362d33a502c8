"""Install what was trained into the package: `python -m training.zoo --work WORK`.

Weights and sizes go to src/longshot/models/zoo/NAME/, the shared tokenizer beside them. Models
that are not finished are left out and named.
"""

import argparse
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file
from tokenizers import Tokenizer

from longshot.models.gelu import GeluConfig
from training import tokenizer as vocabulary
from training.files import DEFAULT_WORK, PACKAGE, finished, write_json
from training.train import DEPTHS, mini_config

LARGEST = 4_000_000  # bytes of one model


def config_json(name: str, config: GeluConfig) -> dict[str, Any]:
    """What the loader needs to know beside the weights."""
    depth = {1: "one layer", 2: "two layers", 4: "four layers"}[config.layers]
    return {
        "format": "longshot-gelu",
        "version": 1,
        "name": name,
        **{key: value for key, value in asdict(config).items() if key != "epsilon"},
        "licence": "MIT",
        "description": f"A small transformer of {depth}, trained on English, Python and Spanish "
        "text; see the card in the folder above.",
    }


def copy(source: Path, target: Path) -> None:
    """Copy a file so that a reader never sees half of it."""
    with finished(target) as temporary:
        shutil.copyfile(source, temporary)


def main() -> None:
    """Check the tokenizer and copy what is finished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--to", type=Path, default=PACKAGE / "models" / "zoo")
    arguments = parser.parse_args()
    work: Path = arguments.work.expanduser()
    trained = Tokenizer.from_file(str(work / "tokenizer.json"))
    if lacks := vocabulary.check(trained):
        raise SystemExit("the tokenizer is not fit to ship: " + "; ".join(lacks))
    copy(work / "tokenizer.json", arguments.to / "tokenizer.json")
    for name in DEPTHS:
        weights = work / "models" / name / "model.safetensors"
        if not weights.exists():
            print(f"{name}: not trained yet, left out")
            continue
        if weights.stat().st_size >= LARGEST:
            raise SystemExit(f"{weights} has {weights.stat().st_size} bytes: too large to ship")
        parameters = sum(tensor.size for tensor in load_file(weights).values())
        copy(weights, arguments.to / name / "model.safetensors")
        config = mini_config(name, trained.get_vocab_size())
        write_json(arguments.to / name / "config.json", config_json(name, config))
        print(f"{name}: {parameters} parameters, {weights.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
