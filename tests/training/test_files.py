from __future__ import annotations

import os
from pathlib import Path

import pytest

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


def test_new_folder__what_a_killed_process_of_the_same_number_left_is_not_taken_over(tmp_path: Path) -> None:
    leftover = tmp_path / f".target.{os.getpid()}"
    leftover.mkdir()
    (leftover / "old.txt").write_text("old")
    with new_folder(tmp_path / "target"):
        pass
    assert list((tmp_path / "target").iterdir()) == [] and not leftover.exists()


def test_new_folder__one_that_was_made_in_the_meantime_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "target"

    def too_late() -> None:
        with new_folder(target):
            target.mkdir()
            (target / "theirs.txt").write_text("theirs")

    with pytest.raises(OSError, match="target"):
        too_late()
    assert [file.name for file in target.iterdir()] == ["theirs.txt"] and list(tmp_path.iterdir()) == [target]
