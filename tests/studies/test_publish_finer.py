"""The MSE ratio without the slowest waves: how much of a gain is more than brightness and large shapes."""

import json
from pathlib import Path
from typing import Any

import pytest
from studies.publish import publish
from studies.publish_questions import FINER

from tests.studies.publishing import MAIN, fill, page, repository, summary

SHARE = {"sound": 0.2}
OTHERS_SHARE = 0.4


def with_waves(root: Path, left_out: str = "") -> dict[str, Any]:
    """What is published where of ours a fifth of the error is in finer waves, of others two fifths."""
    for file in fill(root, "main-cifar10"):
        result = json.loads(file.read_text(encoding="utf-8"))
        finer = SHARE.get(result["method"], OTHERS_SHARE) * result["mse"]
        result["waves"] = {"0-3": result["mse"] - finer, "4-7": 0.7 * finer, "8-15": 0.3 * finer}
        if result["method"] == left_out:
            del result["waves"]
        file.write_text(json.dumps(result), encoding="utf-8")
    publish(root)
    found: dict[str, Any] = summary(root)["comparisons"]["cifar10"]
    return found


def test_finer__is_read_from_the_same_runs_as_the_whole(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    found = with_waves(root)["sound_vs_kmeans_best"]
    assert found["finer_gain"] == pytest.approx(found["mse_gain"] * SHARE["sound"] / OTHERS_SHARE)
    assert found["finer_gain"] < 1 < found["mse_gain"], "a gain in the slowest waves alone, and said to be"
    for name, chinese in (("README.md", False), ("README.zh.md", True)):
        told = (root / name).read_text(encoding="utf-8")
        assert f"| {found['finer_gain']:.2f}× |" in told and FINER[chinese] in told
    assert FINER[False] in page(root, "README")


def test_finer__is_not_told_where_some_run_does_not_say_in_which_waves_its_error_is(tmp_path: Path) -> None:
    root = repository(tmp_path, MAIN)
    found = with_waves(root, left_out="sound")
    assert found["sound_vs_kmeans_best"]["finer_gain"] is None
    assert FINER[False] not in (root / "README.md").read_text(encoding="utf-8")
