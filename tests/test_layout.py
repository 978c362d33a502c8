"""Imports point one way. The order is the design's: what stands later may use what stands earlier.

Read from the source, so that an import inside a function or behind TYPE_CHECKING counts too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = "longshot"
ORDER = (
    "version",
    "errors",
    "files",
    "names",
    "quantities",
    "threads",
    "allocator",
    "shown",
    "bar",
    "work",
    "toml",
    "database",
    "numerics",
    "intervals",
    "models",
    "inputs",
    "events",
    "evaluate",
    "estimate",
    "look",
    "methods",
    "truth",
    "study",
    "report",
    "engines",  # handed to a study by the two below, never imported by what it runs
    "api",
    "testing",
    "",  # longshot itself, which re-exports the public names
    "cli",
    "__main__",
)
OUTSIDE = ("training", "tests", "benchmarks")


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every module that may be imported, with its line; `from a import b` counts as a.b too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = node.level - 1 if is_package else node.level
                parts = module.split(".")
                base = ".".join([*parts[: len(parts) - up], *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def unit(module: str) -> str:
    """The part of the layout that a module belongs to; names of longshot itself are its own."""
    first = module.split(".")[1] if "." in module else ""
    return first if first in ORDER else ""


def violations(source: Path) -> list[str]:
    """Every import under `source` that the order forbids, as one line each."""
    found = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        if len(parts) > 1 and parts[1] not in (*ORDER, "__init__"):
            found.append(f"{module}: {parts[1]} has no place in the order")
            continue
        for line, target in imports(ast.parse(path.read_text()), module, is_package):
            root = target.split(".")[0]
            if root in OUTSIDE:
                found.append(f"{module}:{line} imports {target}, which users do not have")
            elif root == PACKAGE and ORDER.index(unit(target)) > ORDER.index(unit(module)):
                found.append(f"{module}:{line} imports {target}, which stands above it")
    return found


def test_imports_point_one_way() -> None:
    assert (SOURCE / PACKAGE / "models" / "gelu.py").is_file()
    assert violations(SOURCE) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("models/new.py", "from longshot.inputs import ProductInputs"),
        ("models/new.py", "import longshot.inputs.product"),
        ("models/new.py", "from longshot import inputs"),
        ("models/new.py", "from longshot import load_model"),
        ("models/new.py", "import longshot"),
        ("models/new.py", "from ..inputs import product"),
        ("models/__init__.py", "from ..inputs import product"),
        ("errors.py", "from . import numerics"),
        ("numerics.py", "def f():\n    from longshot.models.gelu import GeluTransformer"),
        ("events.py", "if TYPE_CHECKING:\n    from longshot.evaluate import Evaluator"),
        ("study/runner.py", "from longshot.engines.local import Local"),
        ("methods/new.py", "from longshot.engines import local"),
        ("api.py", "from longshot.cli.app import app"),
        ("__init__.py", "from longshot.cli.app import app"),
        ("cli/demo.py", "from training.train import main"),
        ("cli/demo.py", "from tests.toys import toy_model"),
        ("cli/demo.py", "import benchmarks.timing"),
        ("shiny.py", "import torch"),
    ],
)
def test_a_planted_violation_is_seen(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / PACKAGE / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line)
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("methods/new.py", "from longshot.methods.base import register"),
        ("methods/new.py", "from .base import register"),
        ("methods/__init__.py", "from . import base"),
        ("inputs/new.py", "from longshot.models import Model"),
        ("api.py", "from longshot.engines.local import Local"),
        ("__init__.py", "from longshot.api import estimate"),
        ("cli/demo.py", "import longshot"),
        ("models/new.py", "import torch\nfrom longshotlike import cli"),
    ],
)
def test_what_the_order_allows_is_allowed(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / PACKAGE / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line)
    assert violations(tmp_path) == []


def class_names(source: Path) -> list[str]:
    """The names of all classes under `source`, nested ones included."""
    return [
        node.name
        for path in sorted(source.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]


def test_no_two_classes_share_a_name() -> None:
    names = class_names(SOURCE)
    assert len(names) > 100
    assert sorted({name for name in names if names.count(name) > 1}) == []


NOUNS = {"Event", "TokenIn", "Continuation", "Matches", "Inputs", "Product", "ProductInputs"}
HOMES = ("events", "inputs")


def questions_of_kind(source: Path) -> list[str]:
    """Every isinstance of an event or inputs outside the packages that own them."""
    found = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        if len(parts) > 1 and parts[1] in HOMES:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                found += [f"{'.'.join(parts)}:{node.lineno} {name}" for name in asked & NOUNS]
    return found


def test_nothing_asks_of_what_kind_an_event_or_inputs_are(tmp_path: Path) -> None:
    assert questions_of_kind(SOURCE) == []
    (tmp_path / PACKAGE).mkdir()
    (tmp_path / PACKAGE / "api.py").write_text("isinstance(x, str | ProductInputs)\n")
    assert questions_of_kind(tmp_path) == ["longshot.api:1 ProductInputs"]
