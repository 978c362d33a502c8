"""The README's question, asked of the package that is installed and of nothing beside it.

`make wheel` runs this with the Python of an environment that holds the built wheel alone:
`-I` keeps the working folder and PYTHONPATH out.
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
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-I", "-c", code],
            capture_output=True,
            text=True,
            cwd=folder,
            check=True,
        )
    found = float(ran.stdout.split()[0])
    assert f"{found:.1e}" == f"{float(wanted):.1e}", f"{found} where the README says {wanted}"
    print(f"longshot {longshot.__version__} from its wheel: {found:.3g}, as the README says")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
