"""The public names of longshot with their signatures, as stored in `surface.txt`.

`python -m tests.surface` writes them anew; `python -m tests.surface --check`, which `make lint`
runs, and `test_surface.py` compare. A change of the file is a change for users: make it on purpose.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import longshot
import longshot.testing
from longshot.methods import METHODS

FILE = Path(__file__).parent / "surface.txt"
OWN = "longshot."


def described(name: str, what: object) -> Iterator[str]:
    """A function, a class with its public members, or a value, one line each."""
    if inspect.isclass(what):
        yield f"class {name}{signature(what)}"
        for member in sorted({m for c in own_bases(what) for m in vars(c)}):
            if not member.startswith("_"):
                yield from (f"    {line}" for line in described_member(member, what))
    elif callable(what):
        yield f"{name}{signature(what)}"
    else:
        yield f"{name}: {type(what).__name__}"


def own_bases(what: type) -> list[type]:
    """The class and those of its bases that longshot defines."""
    return [base for base in what.__mro__ if base.__module__.startswith(OWN)]


def described_member(name: str, owner: type) -> Iterator[str]:
    member = inspect.getattr_static(owner, name)
    if isinstance(member, classmethod | staticmethod):
        yield f"{type(member).__name__} {name}{signature(member.__func__)}"
    elif inspect.isfunction(member):
        yield f"{name}{signature(member)}"
    elif isinstance(member, property) or hasattr(member, "func"):  # a cached property
        getter = member.fget if isinstance(member, property) else member.func
        yield f"{name}: {inspect.signature(getter).return_annotation}"
    elif name not in getattr(owner, "__dataclass_fields__", {}):  # those stand in the signature
        yield name


def is_protocol(what: type) -> bool:
    return bool(getattr(what, "_is_protocol", False))


def signature(what: object) -> str:
    """As it is written, where there is one of the package's own."""
    if inspect.isclass(what) and (what.__init__ is object.__init__ or is_protocol(what)):
        return ""
    try:
        found = str(inspect.signature(what))  # type: ignore[arg-type]
    except ValueError:  # an exception's
        return ""
    return re.sub(r"<function .*? at 0x[0-9a-f]+>", "<function>", found)


def surface(module: ModuleType = longshot) -> str:
    """All lines: the package's names, the public check of methods, each method's settings."""
    lines = [
        line for name in sorted(module.__all__) for line in described(name, getattr(module, name))
    ]
    lines += described("testing.check_method", longshot.testing.check_method)
    ours = {n: made for n, made in METHODS.items() if made.__module__.startswith(OWN)}
    lines += [f"method {name}{signature(made)}" for name, made in sorted(ours.items())]
    return "\n".join(lines) + "\n"


def difference() -> str:
    """What changed since the file was written; empty where nothing did."""
    then, now = FILE.read_text().splitlines(), surface().splitlines()
    return "\n".join(difflib.unified_diff(then, now, "stored", "now", lineterm="", n=0))


if __name__ == "__main__":
    if "--check" not in sys.argv:
        FILE.write_text(surface())
    elif changed := difference():
        sys.exit(f"{changed}\nThe public surface changed. On purpose? python -m tests.surface")
