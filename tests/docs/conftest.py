"""The site, built once for all tests that look at it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

LANGUAGES = ("en", "zh")


def build(language: str, out: Path, *, docs: Path = DOCS) -> subprocess.CompletedProcess[str]:
    """Build one language as ``make docs`` does, warnings as errors."""
    command = [
        sys.executable, "-m", "sphinx", "-b", "html", "-c", str(docs), "-n", "-W", "--keep-going", "-q",
        *(["-t", "zh"] if language == "zh" else []),
        "-d", str(out.parent / f"doctrees-{language}"), str(docs / language), str(out),
    ]  # fmt: skip
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built handbook; processes that test in parallel share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "handbook"
    folder.mkdir(exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "index.html").is_file():
            with ThreadPoolExecutor() as side_by_side:
                builds = side_by_side.map(lambda language: build(language, folder / language), LANGUAGES)
            for language, done in zip(LANGUAGES, builds, strict=True):
                if done.returncode or done.stderr.strip():
                    pytest.fail(f"{language} does not build without warnings:\n{done.stdout}\n{done.stderr}")
            shutil.copyfile(DOCS / "index.html", folder / "index.html")
    return folder
