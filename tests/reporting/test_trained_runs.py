"""Pages about runs that were really trained."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from attention_cem.attacks import ClassMeanAttack
from attention_cem.auditing import Budget, audit_run
from attention_cem.reporting import read_sources, write_report
from attention_cem.reporting.run_section import class_names
from attention_cem.reporting.slot_shares import mean_of_halves, slot_shares
from attention_cem.reporting.words import WORDS
from attention_cem.training import Observer, TrainingInterrupted, train
from tests.training.helpers import tiny_config, with_surrogate

QUICK = Budget("tiny", (("class_mean", ClassMeanAttack()),), fisher_images=4)


class StopInSecondEpoch(Observer):
    def step(self, epoch: int, batch: int) -> None:
        if (epoch, batch) == (2, 2):
            os.kill(os.getpid(), 2)


def stored_shares(run: Path) -> torch.Tensor:
    newest = sorted((run / "checkpoints").glob("step-*.safetensors"))[-1]
    return load_file(newest)["surrogate.slot_share"]


@pytest.mark.parametrize("cross_fit", [False, True])
def test_slot_shares__one_row_a_class_with_and_without_cross_fit(tmp_path: Path, cross_fit: bool) -> None:
    # broke: with cross_fit 4 classes had 9 rows, and the names stood at other rows
    settings = with_surrogate("slot_mixture") | {"surrogate__arguments__cross_fit": cross_fit}
    train(tiny_config(tmp_path / "run", **settings))
    (view,), _ = read_sources([tmp_path / "run"])
    stored, shown = stored_shares(tmp_path / "run"), torch.tensor(view.slot_shares)
    assert shown.shape == (4, 2)
    torch.testing.assert_close(shown.sum(1), torch.ones(4), atol=1e-4, rtol=0)
    if cross_fit:
        assert stored.shape == (10, 2)
        for row, halves in zip(shown, stored[:8].split(2), strict=True):
            assert row.max() == pytest.approx(float(halves.max(1).values.mean()))
            assert row.argmax() == halves[0].argmax()
    else:
        assert torch.equal(shown, stored[:4])


def test_page__has_a_row_for_each_class_with_cross_fit(tmp_path: Path) -> None:
    settings = with_surrogate("slot_mixture") | {"surrogate__arguments__cross_fit": True}
    train(tiny_config(tmp_path / "run", **settings))
    page = write_report([tmp_path / "run"], tmp_path / "page.html", figures=tmp_path / "figures").read_text()
    (view,), _ = read_sources([tmp_path / "run"])
    names = class_names(view)
    assert len(names) == 4
    tips = re.findall(r'class="cell mark".*?data-tip="(.*?), #\d+: .*?"', page)
    assert tips == [name for name in names for _ in range(2)]
    assert (tmp_path / "figures" / "1-run-slots.png").is_file()


def test_mean_of_halves__other_slots_in_each_half_do_not_look_even() -> None:
    halves = torch.tensor([[[0.0, 1.0, 0.0], [0.9, 0.0, 0.1]]])
    shown = mean_of_halves(halves)
    assert shown.argmax() == 1 and float(shown.max()) == pytest.approx(0.95)


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("label", [torch.zeros(()), torch.zeros(0), torch.zeros(1), torch.zeros(7)])
def test_slot_shares__odd_shapes_give_no_rows_or_some_but_no_error(
    tmp_path: Path, rows: int, label: torch.Tensor
) -> None:
    stored = {"surrogate.slot_share": torch.ones(rows, 2), "surrogate.memory.label": label}
    save_file(stored, str(tmp_path / "best.safetensors"))
    assert len(slot_shares(tmp_path)) <= rows


def test_report__audit_of_other_weights_than_the_best_is_said_at_the_top(tmp_path: Path) -> None:
    # broke: train, stop, audit, resume, report showed the old figures for the new weights
    run, page = tmp_path / "run", tmp_path / "page.html"
    with pytest.raises(TrainingInterrupted):
        train(tiny_config(run, train__epochs=6), observer=StopInSecondEpoch())
    audit_run(run, budget=QUICK, device="cpu")
    english, chinese = WORDS["other_weights"]
    before = write_report([run], page).read_text()
    assert english not in before.replace("&#39;", "'") and chinese not in before
    train(tiny_config(run, train__epochs=6, run__resume=True))
    after = write_report([run], page).read_text()
    (alert,) = re.findall(r'<div class="bad" role="alert">.*?</div>', after)
    assert english in alert.replace("&#39;", "'") and chinese in alert
    audit_run(run, budget=QUICK, device="cpu")
    assert chinese not in write_report([run], page).read_text()


def test_report__audit_without_best_weights_to_compare_with_says_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(tiny_config(run))
    audit_run(run, budget=QUICK, device="cpu")
    for content in (b"damaged", None):
        best = run / "checkpoints" / "best.safetensors"
        best.unlink() if content is None else best.write_bytes(content)
        (view,), _ = read_sources([run])
        assert not view.audit_is_of_other_weights
