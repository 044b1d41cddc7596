"""Whatever stands in the files, the page is written, or the file is refused by name; it never breaks half-way."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attention_cem.reporting import ReportError, write_report
from tests.reporting.folders import HOSTILE, make_run, make_study

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", HOSTILE, "passed", "x" * 2000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "mse", HOSTILE]), inner),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("hostile")
    return {"run": make_run(root / "run"), "study": make_study(root / "study")}


def _paths(tree: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree[:2]) if isinstance(tree, list) else ()
    return [path for key, value in inner for path in [(*here, key), *_paths(value, (*here, key))]]


def _with(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(tree)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("kind", "name"),
    [("run", "audit.json"), ("run", "run.json"), ("run", "metrics.jsonl"), ("study", "comparison.json")],
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_report__any_value_anywhere(folders: dict[str, Path], tmp_path: Path, kind: str, name: str, data: Any) -> None:
    file = folders[kind] / name
    original = file.read_text()
    whole = json.loads(original.splitlines()[-1] if name.endswith("l") else original)
    path = data.draw(st.sampled_from(_paths(whole)))
    try:
        file.write_text(json.dumps(_with(whole, path, data.draw(JSON))))
        with contextlib.suppress(ReportError):
            page = write_report([folders[kind]], tmp_path / "page.html").read_text()
            assert page.count("<script") == 1 and "<img src=x" not in page
    finally:
        file.write_text(original)
