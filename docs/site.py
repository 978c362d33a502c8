"""The documents as a site: `make docs` runs this, then mkdocs on what it gathered in build/docs.

README and docs/ as they are, the notebooks with their outputs, a page for each command from its
help, and the public names from their docstrings. A link to a file that is no page of the site
becomes its text; mkdocs checks the others.
"""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path

import click
import typer

import longshot
from longshot.cli import main  # noqa: F401 - puts the commands on the app
from longshot.cli.app import app

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "docs"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def gather() -> None:
    """All pages into build/docs."""
    shutil.rmtree(OUT, ignore_errors=True)
    shutil.copytree(ROOT / "docs", OUT, ignore=shutil.ignore_patterns("*.py", "*.xz", "*.tex"))
    (OUT / "index.md").write_text((ROOT / "README.md").read_text().replace("](docs/", "]("))
    shutil.copy(ROOT / "CHANGELOG.md", OUT / "changelog.md")
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        (OUT / f"{path.stem}.md").write_text(notebook(path))
    (OUT / "commands.md").write_text(commands())
    (OUT / "api.md").write_text(api())
    for page in OUT.rglob("*.md"):
        page.write_text(LINK.sub(partial(kept, page), page.read_text()))


def kept(page: Path, found: re.Match[str]) -> str:
    """A link as it is, or its text where it leads out of the site."""
    target = found[3].split("#")[0]
    is_ours = not target or target.startswith(("http:", "https:"))
    return found[0] if is_ours or (page.parent / target).is_file() else found[2]


def notebook(path: Path) -> str:
    """A notebook's text, code and printed outputs."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            text = output.get("text") or output.get("data", {}).get("text/plain", [])
            parts += [f"```\n{''.join(text).rstrip()}\n```"] if text else []
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """Every command's help."""
    group = typer.main.get_command(app)
    parts = ["# Commands\n"]
    todo = [("longshot", group)]
    for name, command in todo:
        context = click.Context(command, info_name=name)  # type: ignore[arg-type]
        words = (command.help or "").replace("[bold]", "`").replace("[/]", "`")
        rows = [
            f"| `{' '.join((*p.opts, *p.secondary_opts))}` | {getattr(p, 'help', '') or ''} |"
            for p in command.get_params(context)  # type: ignore[arg-type]
        ]
        table = ["| option | what it is |", "|---|---|", *rows] if rows else []
        parts += [f"## {name}\n", words, "", *table, ""]
        todo += [(f"{name} {n}", c) for n, c in sorted(getattr(command, "commands", {}).items())]
    return "\n".join(parts)


def api() -> str:
    """The public names, each from its docstring."""
    names = [name for name in longshot.__all__ if not name.startswith("_") and name != "METHODS"]
    homes = [f"{getattr(longshot, name).__module__}.{name}" for name in names]
    options = "    options:\n      show_source: false\n      heading_level: 2\n"
    return "# Python\n\n" + "\n".join(f"::: {home}\n{options}" for home in homes)


if __name__ == "__main__":
    gather()
