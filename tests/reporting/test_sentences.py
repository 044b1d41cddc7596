"""Every sentence the program writes into its files is known in Chinese."""

from __future__ import annotations

from importlib import resources

import pytest

from attention_cem.attacks import CurvePoint
from attention_cem.attacks.receipts import kept_start_reason, probe_verdict, tail_verdict
from attention_cem.auditing.budgets import SCREENING_NOTE
from attention_cem.auditing.calibration import _judged
from attention_cem.auditing.effort import effort_verdict
from attention_cem.auditing.verdicts import headline
from attention_cem.reporting.sentences import in_chinese
from attention_cem.studies.verdicts import compare_at
from attention_cem.surrogates import SelfDeceptionAlarm


def _alarms() -> list[str]:
    alarm = SelfDeceptionAlarm(window=1)
    alarm.update({"rob_loss": 1.0, "intra_mse": 0.1})
    return alarm.update(
        {
            "rob_loss": 0.1,
            "intra_mse": 0.1,
            "shutoff_share": 1.0,
            "soft_gate_mean": 0.0,
            "snr_gate_mean": 1.0,
            "dead_slots": 2.0,
            "effective_samples": 1.0,
            "active_classes": 0.0,
        }
    )


def _headline_notes() -> list[str]:
    figures = {"mse": 0.1, "ci95": [0, 1], "psnr": 10, "ssim": 0, "images": 5}
    entries = [{"name": "a", "status": "passed", **figures}, {"name": "b", "status": "under-trained", **figures}]
    better = [entries[0], {**entries[1], "mse": 0.05}]
    found = (headline(entries, ["a"]), headline(better, ["a"]), headline(entries, []))
    return [str(each["note"]) for each in found if each is not None]


def _efforts() -> list[str]:
    falling = [CurvePoint(1.0, 1, 0.02), CurvePoint(2.0, 2, 0.01)]
    flat = [CurvePoint(1.0, 1, 0.02), CurvePoint(2.0, 2, 0.02)]
    return [
        effort_verdict(curves, may_settle=settle).reason
        for curves, settle in (([falling], True), ([flat], True), ([flat], False), ([], True))
    ]


def _verdicts() -> list[str]:
    first = {seed: [(0.8, 0.02 + seed / 1e4), (0.9, 0.01)] for seed in range(3)}
    second = {seed: [(0.8, 0.03 + seed / 1e4), (0.9, 0.02)] for seed in range(3)}
    one, two = {0: first[0]}, {seed: first[seed] for seed in (0, 1)}
    pairs = ((first, second), (second, first), (first, first), (one, {0: second[0]}), (one, second), (two, second))
    return [compare_at(a, b, 0.85).text for a, b in pairs] + [compare_at(first, second, 0.99).text]


TUNED = "weight of the total variation 0.01, 120 steps"
NOT_PROBED = "not probed: whether more training would help is not known"
NOT_CONVERGED = "the inverter it starts from had not converged: "
BY_CHANCE = ", which so few images may by chance"
SENTENCES = [
    *_alarms(),
    probe_verdict(0.02, 0.01, 10)[1],
    tail_verdict([0.08, 0.02])[1],
    *(_judged(unseen, psnr, 0.1, constant, 0.1).reason for unseen in (True, False) for psnr in (10.0, 40.0)
      for constant in (0.05, 0.1, 0.2)),
    f"{kept_start_reason('inverter')}; {tail_verdict([0.08, 0.08])[1]}",
    f"{tail_verdict([0.08, 0.08])[1]}; {TUNED}",
    f"{kept_start_reason('inverter')}; {tail_verdict([0.08, 0.08])[1]}; {TUNED}",
    f"stuck: no step lowered the validation MSE of the mean image; {TUNED.replace('0.01', '1e-05')}",
    f"{NOT_CONVERGED}{probe_verdict(0.02, 0.01, 10)[1]}",
    f"{kept_start_reason('inverter')}; {NOT_CONVERGED}{NOT_PROBED}",
    f"{NOT_CONVERGED}stuck: validation MSE 0.08123, the mean image alone gives 0.07001",
    "gan_inverter: kept its start",
    "the run is not finished: these are the weights of epoch 2",
    *(_judged(unseen, 10.0, 0.1, 0.05, 0.1).reason + BY_CHANCE for unseen in (True, False)),
    _judged(True, 40.0, 0.0, 0.05, 0.1).reason + BY_CHANCE,
    "a bound needs two test images or more, there is one",
    *_headline_notes(),
    *_efforts(),
    *_verdicts(),
    SCREENING_NOTE,
    "the screening budget computes no bounds",
    "16 releases of each image are seen; what they tell together is bounded for Gaussian noise only, with nothing "
    "random before it",
    "of 16 releases of each image together",
]  # fmt: skip


@pytest.mark.parametrize("sentence", sorted(set(SENTENCES)))
def test_in_chinese__knows_the_sentence_and_keeps_its_figures(sentence: str) -> None:
    chinese = in_chinese(sentence)
    assert chinese is not None
    assert any("\u4e00" <= character <= "\u9fff" for character in chinese)
    assert "{" not in chinese


def test_in_chinese__unknown_is_none() -> None:
    assert in_chinese("<b>something else</b>") is None


def test_in_chinese__figures_and_both_parts_are_there() -> None:
    assert (
        in_chinese(f"{NOT_PROBED}; {TUNED}") == "未检验：是否继续训练会有帮助尚不清楚；全变差的权重为 0.01，共 120 步"
    )
    assert in_chinese(f"{NOT_CONVERGED}something else") is None
    assert in_chinese(f"something else{BY_CHANCE}") is None


@pytest.mark.parametrize(
    ("file", "written"),
    [
        ("attacks/optimisation.py", "; weight of the total variation {weight:g}, {steps} steps"),
        ("attacks/optimisation.py", "stuck: no step lowered the validation MSE of the mean image"),
        ("attacks/gan.py", NOT_CONVERGED),
        ("attacks/inverter_training.py", NOT_PROBED),
        ("auditing/record.py", "the run is not finished: these are the weights of epoch {about.get('epoch')}"),
        ("auditing/calibration.py", BY_CHANCE),
        ("auditing/bounds.py", "a bound needs two test images or more, there is one"),
    ],
)
def test_sentences__are_still_worded_as_the_program_writes_them(file: str, written: str) -> None:
    assert written in (resources.files("attention_cem") / file).read_text(encoding="utf-8")
