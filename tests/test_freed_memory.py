"""Programs keep what they free; what is kept is handed out again without being asked for."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys, torch
if sys.argv[1] == "keep":
    from attention_cem.freed_memory import keep_freed_memory
    assert keep_freed_memory({})
torch.set_num_threads(1)
def step():
    kept = [torch.zeros(4 << 20).add_(1) for _ in range(4)]  # 64 MiB
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", _FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_keep_freed_memory__large_blocks_are_not_asked_for_again():
    given_back, kept = _faults("give back"), _faults("keep")
    # 5 steps of 64 MiB in pages of 4 KiB are 81,920 first touches; fewer where the system hands out larger pages.
    assert given_back > 100
    assert kept < given_back / 10
