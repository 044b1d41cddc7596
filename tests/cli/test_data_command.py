from pathlib import Path

import pytest

from attention_cem.cli.main import main
from attention_cem.data import known_data


def test_data_list__names_every_set_and_how_to_get_the_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "list", "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for name in known_data():
        assert f"\n{name}: " in f"\n{printed}"
    assert "drawn by the program" in printed and "not found. " in printed


def test_data_list__a_root_that_is_no_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # broke: with a mistyped root every set was "not found. download ..."
    assert main(["data", "list", "--root", str(tmp_path / "dta")]) == 0
    assert (
        capsys.readouterr().err == f"attention-cem data: warning: the data folder {tmp_path / 'dta'} is not a folder\n"
    )
