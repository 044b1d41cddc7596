"""Which process is meant, and whether it still lives: answered only for processes of the same machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """A name for this process that no later process on this machine has.

    >>> process_is_gone(this_process())
    False
    """
    return {"machine": _machine(), "pid": os.getpid(), "started": _start_time(os.getpid())}


def process_is_gone(process: Any) -> bool:
    """True only if the process surely ended: it is one of this machine's, and not there any more.

    >>> process_is_gone({**this_process(), "started": "never"}), process_is_gone({"machine": "elsewhere"})
    (True, False)
    """
    if not isinstance(process, dict) or process.get("machine") != _machine():
        return False
    pid, started = process.get("pid"), process.get("started")
    if not isinstance(pid, int) or started is None:
        return False
    return _start_time(pid) != started


def _machine() -> str:
    """Host, boot and process-number space: two containers of one computer do not see each other's processes."""
    boot = _text(Path("/proc/sys/kernel/random/boot_id"))
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()} {boot} {space}"


def _start_time(pid: int) -> str | None:
    """Clock ticks at which the process started; None where it is not there, is a zombie, or cannot be told."""
    # The second field, the program's name, may hold blanks and brackets: count from the last bracket.
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
