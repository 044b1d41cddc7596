"""Keep freed memory for the next step, instead of giving it back to the system and asking for it again.

A step on a CPU frees the same large blocks that the next one needs. glibc gives each back at once, and the system fills
it with zeros before it is handed out again, page by page: 40 % of an inverter's step (``python -m benchmarks.cpu``).
Nothing that is computed changes; the process keeps its peak of memory to its end.

Called by programs that own their process (commands, studies' workers), never by importing the package.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping

# From glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_BLOCKS = 2**30, 2**25
"""Blocks up to this size are kept; older versions of glibc take no more than the second."""
_KEPT = 2**31 - 1
_OWN_CHOICE = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Have this process keep what it frees; whether it does from now on.

    Does nothing where another allocator than glibc's is at work, or the environment already says how it shall behave.

    >>> keep_freed_memory({"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"})
    False
    """
    if any(name in environment for name in _OWN_CHOICE):
        return False
    mallopt = _mallopt()
    if mallopt is None:
        return False
    return any(mallopt(_MMAP_THRESHOLD, size) for size in _LARGEST_BLOCKS) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))


def _mallopt() -> Callable[[int, int], int] | None:
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  # other C libraries have a mallopt that does nothing
        found: Callable[[int, int], int] = library.mallopt
    except (AttributeError, OSError, TypeError):
        return None
    return found
