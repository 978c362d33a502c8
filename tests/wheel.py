"""The README's question, asked of the package that is installed and of nothing beside it.

`make wheel` runs this with the Python of an environment that holds the built wheel alone:
`-I` keeps the working folder and PYTHONPATH out. Processors of different types round differently,
and the walk of splitting differs with them: the README's number must lie in the answer's interval
and within a quarter of the answer.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import longshot


def main(readme: Path) -> None:
    text = readme.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (wanted,) = re.findall(r"^print\(answer.probability\)\s+# (\S+)$", code, re.MULTILINE)
    home = Path(longshot.__file__).parent
    assert "site-packages" in home.parts, f"{home} is not the installed wheel"
    code += "print(*answer.interval)\n"
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-I", "-c", code],
            capture_output=True,
            text=True,
            cwd=folder,
            check=True,
        )
    lines = ran.stdout.splitlines()
    found, (low, high) = float(lines[0]), map(float, lines[-1].split())
    agree = low <= float(wanted) <= high and abs(found / float(wanted) - 1) <= 0.25
    said = f"{found:.3g} ({low:.2g} … {high:.2g})"
    assert agree, f"{said} where the README says {wanted}"
    print(f"longshot {longshot.__version__} from its wheel: {said}; the README says {wanted}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
