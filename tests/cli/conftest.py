from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that should have been refused must not leave a run folder in the repository."""
    monkeypatch.chdir(tmp_path)
