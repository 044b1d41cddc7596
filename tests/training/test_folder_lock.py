import subprocess
import sys
import time
from pathlib import Path

import pytest

from attention_cem.training import ConfigError
from attention_cem.training.folder_lock import alone_in

HOLD = """
import sys, time
from pathlib import Path
from attention_cem.training.folder_lock import alone_in
with alone_in(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_alone_in__a_second_process_is_refused_in_words(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        with pytest.raises(ConfigError, match="another process is training in"), alone_in(tmp_path, patience=0.3):
            pass
    finally:
        process.kill()
        process.wait()


def test_alone_in__the_lock_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.kill()
    process.wait()
    began = time.monotonic()
    with alone_in(tmp_path):
        assert time.monotonic() - began < 2


def test_alone_in__waits_for_one_that_is_about_to_end(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.terminate()
    with alone_in(tmp_path, patience=10):
        pass
    process.wait()
