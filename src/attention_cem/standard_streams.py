"""Standard output and error as a program needs them: there, and able to take any text."""

from __future__ import annotations

import io
import os
import sys


def prepare_streams() -> None:
    """Have a closed stream swallow what is written, and an open one escape what its encoding lacks.

    Terminals and pipes that are not UTF-8 have no λ, and under UTF-8 a file's name may be no text at all: without this
    the figures of an hour's work end in a UnicodeEncodeError.

    Called by programs that own their process, never by importing the package.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (for as long as the program)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
