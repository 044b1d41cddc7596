from __future__ import annotations

import os
from pathlib import Path

import pytest

from attention_cem.training.file_lock import in_work, is_abandoned
from attention_cem.training.files import new_folder


def test_new_folder__has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "above" / "target"
    with new_folder(target) as building:
        (building / "inner").mkdir()
        (building / "inner" / "a.txt").write_text("whole")
        assert not target.exists() and building.parent == target.parent
    assert (target / "inner" / "a.txt").read_text() == "whole"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_new_folder__a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "target") as building:
            (building / "a.txt").write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_new_folder__what_a_killed_process_left_is_removed_and_what_another_is_at_is_not(tmp_path: Path) -> None:
    names = (".target.1{}", ".target.2{}", ".target.3{}", ".target.b.1{}", ".target.2023")
    killed, at_work, just_begun, of_another, of_a_user = (
        tmp_path / name.format(".unfinished-folder") for name in names
    )
    for folder in (killed, at_work, just_begun, of_another, of_a_user):
        folder.mkdir()
        (folder / "half.bin").write_bytes(b"half")
        if folder != just_begun:
            os.utime(folder, (0, 0))
    with in_work(at_work), new_folder(tmp_path / "target"):
        pass
    assert set(tmp_path.iterdir()) == {tmp_path / "target", at_work, just_begun, of_another, of_a_user}


def test_new_folder__is_in_work_until_it_has_its_name(tmp_path: Path) -> None:
    with new_folder(tmp_path / "target") as building:
        os.utime(building, (0, 0))
        assert not is_abandoned(building)
    os.utime(tmp_path / "target", (0, 0))
    assert is_abandoned(tmp_path / "target") and not is_abandoned(tmp_path / "gone")


def test_new_folder__one_that_was_made_in_the_meantime_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "target"

    def too_late() -> None:
        with new_folder(target):
            target.mkdir()
            (target / "theirs.txt").write_text("theirs")

    with pytest.raises(OSError, match="target"):
        too_late()
    assert [file.name for file in target.iterdir()] == ["theirs.txt"] and list(tmp_path.iterdir()) == [target]
