"""What a release must agree on: one version, one name that can be installed."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import longshot

ROOT = Path(__file__).parents[1]


def test_one_version_everywhere() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited
    assert cited[1] == longshot.__version__
    assert longshot.__version__ in (ROOT / "CHANGELOG.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["version"]["path"] == "src/longshot/version.py"
    assert project["project"]["name"] == "longshot-lm"


def test_nothing_tells_to_install_another_program() -> None:
    """On the registry, longshot is somebody else's."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True
    )
    wrong = re.compile(r"pip install '?longshot(?!-lm)|['`]longshot\[")
    found = []
    for name in listed.stdout.strip("\0").split("\0"):
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".ipynb", ".txt", "") and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [name for _ in wrong.findall(text) if path != Path(__file__)]
    assert found == []
