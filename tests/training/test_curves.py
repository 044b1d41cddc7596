from pathlib import Path
from typing import Any

import pytest

from attention_cem.training.curves import draw_curves


@pytest.mark.parametrize(
    ("surrogate", "title"),
    [("slot_mixture", "rob_loss: z leaks at most, nats per value"), ("gated", "rob_loss"), ("none", "rob_loss")],
)
def test_draw_curves__names_both_ends_of_the_leakage_where_there_are_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, surrogate: str, title: str
) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure
    drawn: list[Any] = []
    monkeypatch.setattr(figure, "savefig", lambda self, *_, **__: drawn.append(self))
    rows = [{"epoch": 1, "leakage_share": None, "rob_loss": 2.0}, {"epoch": 2, "leakage_share": 0.3, "rob_loss": 1.0}]
    assert draw_curves(rows, tmp_path / "curves.png", surrogate)
    titles = {axes.get_title(): axes for axes in drawn[0].axes}
    assert title in titles and len(titles) == 4
    (line,) = titles["leakage_share: x leaks at least"].lines
    assert line.get_xydata().tolist() == [[2.0, 0.3]], "what was not measured is not drawn"


@pytest.mark.parametrize(
    ("rows", "titles"),
    [
        ([{"epoch": 1, "rob_loss": None}], ["validation accuracy", "within-class spread of z", "leakage_share"]),
        (
            [{"epoch": 1, "rob_loss": None, "penalty.linear_leakage": 0.2}],
            ["validation accuracy", "penalties of the defences", "within-class spread of z", "leakage_share"],
        ),
    ],
    ids=["nothing", "penalties"],
)
def test_draw_curves__has_no_empty_panel_for_a_surrogate_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], titles: list[str]
) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure
    drawn: list[Any] = []
    monkeypatch.setattr(figure, "savefig", lambda self, *_, **__: drawn.append(self))
    assert draw_curves(rows, tmp_path / "curves.png", "none")
    found = [axes.get_title() for axes in drawn[0].axes]
    assert [each.partition(":")[0] for each in found] == titles
    if "penalties of the defences" in titles:
        (line,) = drawn[0].axes[1].lines
        assert line.get_label() == "linear_leakage" and line.get_xydata().tolist() == [[1.0, 0.2]]
