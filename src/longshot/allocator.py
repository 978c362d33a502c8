"""glibc's malloc, told to keep what is freed.

A pass over a small model makes and frees some hundred tensors of about a megabyte. Left to itself
glibc gives each back to the system when it is freed and takes it again, zeroed page by page: a
third of the time and more. Told once, it keeps up to `KEPT` bytes at the top of its heap, which is
never more than what was in use at once.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

KEPT = 2**28
LARGE = 2**25  # bytes of a piece that is not the heap's but mapped alone, as glibc's own rule ends
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
TUNABLES = "glibc.malloc."


@cache
def keep_freed_memory() -> bool:
    """Whether malloc was told so: not where it is another's, or where the environment tells it."""
    told = any(name.startswith("MALLOC_") for name in os.environ)
    if told or TUNABLES in os.environ.get("GLIBC_TUNABLES", "") or sys.platform != "linux":
        return False
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    if tell is None:
        return False
    return bool(tell(MMAP_THRESHOLD, LARGE) and tell(TRIM_THRESHOLD, KEPT))
