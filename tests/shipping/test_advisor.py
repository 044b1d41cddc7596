"""The advisor: figures that can be checked by hand, a recommendation that follows its own rule."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from attention_cem.attacks import ClassMeanAttack, InverterAttack, TrainingPlan
from attention_cem.auditing import Budget
from attention_cem.data import synthetic_images
from attention_cem.shipping.advice_files import table, write_advice
from attention_cem.shipping.advisor import (
    Advice,
    CutReport,
    advise,
    attack_figure,
    candidate_cuts,
    macs,
    milliseconds,
    recommend,
)
from attention_cem.splitting import Bottleneck, Cut, get_backbone, list_cuts


def report(cut, accuracy, mse, *, macs=1000, ms=1.0):
    return CutReport(cut, (8, 4, 4), 512, 10, macs, 10, ms, accuracy, mse, "", 1.0)


def test_recommend__takes_the_hardest_to_invert_of_those_accurate_enough():
    reports = [report("shallow", 0.90, 0.01), report("middle", 0.895, 0.03), report("deep", 0.80, 0.06)]
    chosen, reason = recommend(reports, 0.02)
    assert chosen == "middle"
    assert "2 of 3 cuts" in reason and "88.0%" in reason and "MSE 0.0300" in reason


def test_recommend__level_cuts_go_to_the_cheapest_client():
    reports = [report("cheap", 0.9, 0.0301, macs=10), report("dear", 0.9, 0.0305, macs=99)]
    chosen, reason = recommend(reports, 0.02)
    assert chosen == "cheap" and "level with 1 other" in reason


def test_recommend__obeys_the_time_allowed():
    reports = [report("slow", 0.95, 0.09, ms=9.0), report("quick", 0.90, 0.02, ms=1.0)]
    assert recommend(reports, 0.02, most_client_ms=2.0)[0] == "quick"
    with pytest.raises(ValueError, match="the quickest takes 1.00 ms"):
        recommend(reports, 0.02, most_client_ms=0.5)


def test_macs__equal_those_counted_by_hand():
    client = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2))
    # Output 16×16 from 3·3·3 values for each of 8 channels; then 7×7 from 3·3·8 for each of 4.
    assert macs(client, (3, 16, 16)) == 16 * 16 * 8 * 27 + 7 * 7 * 4 * 72
    assert milliseconds(client, (3, 16, 16)) > 0


@pytest.mark.parametrize("name", ["resnet20", "tiny_cnn", "vgg11_bn", "vit_small"])
def test_candidate_cuts__are_few_distinct_and_ordered_by_depth(name):
    model = get_backbone(name).build(10, (3, 32, 32))
    known = list_cuts(model, torch.zeros(2, 3, 32, 32))
    chosen = candidate_cuts(known, 5)
    sizes = [cut.client_parameters for cut in chosen]
    assert 3 <= len(chosen) <= 5
    assert sizes == sorted(sizes) and len(set(sizes)) == len(sizes)


def test_candidate_cuts__one_is_the_middle():
    cuts = [Cut(str(n), (4,), 10**n) for n in range(1, 6)]
    assert [cut.name for cut in candidate_cuts(cuts, 1)] == ["3"]


def test_attack_figure__without_a_headline_is_the_smallest_error_with_a_note():
    record = {"headline": None, "attacks": [{"mse": 0.3}, {"mse": 0.1}]}
    assert attack_figure(record) == (0.1, "no attack was calibrated; a thorough audit may differ")
    assert attack_figure({"headline": {"mse": 0.2, "note": None}, "attacks": []}) == (0.2, "")


@pytest.fixture(scope="module")
def data():
    return synthetic_images(num_classes=3, num_train=96, num_test=48, size=16)


def test_advise__clients_that_are_all_too_slow_are_refused_before_training(data, tmp_path):
    # broke: every cut was trained and attacked, and then all figures were thrown away
    model = get_backbone("tiny_cnn").build(3, (3, 16, 16))
    with pytest.raises(ValueError, match=r"no cut has a client within 1e-06 ms; the quickest takes"):
        advise(model, data, tmp_path / "work", cuts=["features.3", "features.7"], most_client_ms=1e-6)
    assert not (tmp_path / "work").exists()


def test_advise__measures_every_cut_and_writes_table_file_and_picture(data, tmp_path):
    torch.manual_seed(0)
    model = get_backbone("tiny_cnn").build(3, (3, 16, 16))
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    inverter = InverterAttack(TrainingPlan(epochs=1, least_steps=2, probe=False), width=8, blocks=0)
    budget = Budget(
        "tiny",
        (("class_mean", ClassMeanAttack()), ("inverter", inverter)),
        calibration_images=32,
        bound_images=32,
        fisher_images=2,
        membership_epochs=1,
    )
    cuts = ["features.3", "features.7"]
    told = []
    advice = advise(
        model,
        data,
        tmp_path / "work",
        cuts=cuts,
        epochs=1,
        bottleneck=Bottleneck(2),
        budget=budget,
        progress=told.append,
    )
    assert [each.cut for each in advice.reports] == cuts and advice.recommended in cuts
    assert told == ["cut 1 of 2: features.3", "cut 2 of 2: features.7"]
    shallow, deep = advice.reports
    assert shallow.z_shape == (2, 8, 8) and shallow.z_bytes == 2 * 8 * 8 * 4
    assert deep.client_macs > shallow.client_macs and deep.client_parameters > shallow.client_parameters
    assert all(each.attack_mse > 0 and each.class_radius > 0 and 0 <= each.accuracy <= 1 for each in advice.reports)
    for key, value in model.state_dict().items():
        assert torch.equal(value, weights[key]), key
    write_advice(advice, tmp_path)
    assert json.loads((tmp_path / "advice.json").read_text())["recommended"] == advice.recommended
    assert (tmp_path / "advice.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="is not empty"):
        advise(model, data, tmp_path / "work", cuts=cuts)


def test_table__marks_the_recommended_cut():
    advice = Advice((report("one", 0.9, 0.01), report("two", 0.9, 0.05)), "two", "Because.")
    lines = table(advice).splitlines()
    assert lines[0].split()[:3] == ["cut", "z", "bytes"]
    assert lines[1].startswith("  one") and lines[2].startswith("→ two")
    assert lines[-1] == "Recommended: two. Because."


def test_write_advice__a_picture_that_fails_leaves_the_old_one_whole(tmp_path, monkeypatch):
    # broke: drawn straight into the file, so that a full disk left half a picture
    advice = Advice((report("one", 0.9, 0.01),), "one", "Because.")
    write_advice(advice, tmp_path)
    whole = (tmp_path / "advice.png").read_bytes()

    def half(self, target, **options):
        target.write(b"half") if hasattr(target, "write") else target.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    with pytest.raises(OSError, match="no space"):
        write_advice(advice, tmp_path)
    assert (tmp_path / "advice.png").read_bytes() == whole and len(list(tmp_path.iterdir())) == 2


def test_advise__unknown_layer_and_strange_settings_are_refused(data, tmp_path):
    model = get_backbone("tiny_cnn").build(3, (3, 16, 16))
    with pytest.raises(ValueError, match="features.99"):
        advise(model, data, tmp_path / "a", cuts=["features.99"])
    with pytest.raises(ValueError, match="sigma ≥ 0"):
        advise(model, data, tmp_path / "b", sigma=-1)
    with pytest.raises(ValueError, match="no cut to choose from"):
        advise(model, data, tmp_path / "c", cuts=[])
    assert not list(tmp_path.iterdir())


def test_advise__an_unknown_layer_is_refused_before_the_first_cut_is_trained(data, tmp_path):
    model, told = get_backbone("tiny_cnn").build(3, (3, 16, 16)), []
    with pytest.raises(ValueError, match="features.99"):
        advise(model, data, tmp_path / "a", cuts=["features.7", "features.99"], progress=told.append)
    assert not told and not (tmp_path / "a").exists()
