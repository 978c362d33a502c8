"""The notebooks in `examples/` run, end in what their text says, and carry their outputs."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def printed(path: Path, folder: Path) -> str:
    """All that a notebook prints when it is run in a kernel of its own."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    outputs = (out for cell in notebook.cells for out in cell.get("outputs", []))
    return "".join(out.get("text", "") for out in outputs)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.filterwarnings("ignore")  # of the kernel's own machinery
def test_a_first_estimate_ends_as_its_text_says(tmp_path: Path) -> None:
    """Targets are not sampled, most near the truth by ITGIS, and a factor of ten off by QLD."""
    said = printed(EXAMPLES / "first-estimate.ipynb", tmp_path)
    assert "inside the interval: True" in said
    rows = re.findall(r"'  +(\S+) +(\S+) +(\S+) +(\S+)$", said, re.M)
    assert len(rows) == 8
    truth, plain, itgis, qld = zip(*(map(float, row) for row in rows), strict=True)
    assert sum(q == 0 for q in plain) >= 7
    assert sum(p / 5 < q < 5 * p for p, q in zip(truth, itgis, strict=True)) >= 5
    assert sum(not p / 9 < q < 9 * p for p, q in zip(truth, qld, strict=True)) >= 5


@pytest.mark.filterwarnings("ignore")
def test_a_method_of_ones_own_ends_as_its_text_says(tmp_path: Path) -> None:
    """Where the tilt is too cold ITGIS loses what `defensive` keeps, within four errors."""
    said = printed(EXAMPLES / "your-own-method.ipynb", tmp_path)
    found = {
        (temperature, method): (float(share), float(error))
        for temperature, method, share, error in re.findall(
            r"T = (\S+) +(\w+): (\S+) ± (\S+) of it", said
        )
    }
    assert len(found) == 4
    for (temperature, method), (share, error) in found.items():
        is_right = abs(share - 1) < 4 * error
        assert is_right == ((temperature, method) != ("0.05", "itgis"))
    missed = {m: int(share) for m, share in re.findall(r"(\w+): .* operations, (\d+)% of", said)}
    assert missed["itgis"] < missed["defensive"] < missed["naive"]


def test_both_are_there_with_their_outputs() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first-estimate", "your-own-method"]
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        assert all(
            cell.outputs or "print" not in cell.source for cell in cells if "outputs" in cell
        )
