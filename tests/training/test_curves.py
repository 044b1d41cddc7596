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
