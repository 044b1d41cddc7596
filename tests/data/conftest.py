from __future__ import annotations

import os
from pathlib import Path

import pytest

from attention_cem.data import ROOT_VARIABLE


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real data sets: the environment variable, or shared/data next to the repository."""
    beside_repository = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get(ROOT_VARIABLE) or beside_repository)
    if not folder.is_dir():
        pytest.skip(f"no real data: {ROOT_VARIABLE} is not set and {beside_repository} is not a folder")
    return folder


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
