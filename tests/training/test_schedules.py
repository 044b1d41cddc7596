import math

import pytest

from attention_cem.training import lambd_weight, lr_factor
from attention_cem.training.activation import SurrogateMode
from attention_cem.training.config import Config, SurrogateConfig, TrainConfig
from attention_cem.training.progress import Position, mode_at, step_values

REFERENCE = (60, 120, 180, 210)


@pytest.mark.parametrize(
    ("epoch", "lr"),
    [(0, 0.05), (59, 0.05), (60, 0.01), (119, 0.01), (120, 0.002), (180, 0.0004), (210, 0.00008), (239, 0.00008)],
)
def test_lr_factor__multistep_is_the_reference_schedule(epoch: int, lr: float) -> None:
    assert 0.05 * lr_factor("multistep", epoch, 240, milestones=REFERENCE) == pytest.approx(lr, rel=1e-12)


@pytest.mark.parametrize(
    ("progress", "factor"),
    [(0, 1.0), (5, (1 + math.sqrt(0.5)) / 2), (10, 0.5), (15, (1 - math.sqrt(0.5)) / 2), (20, 0)],
)
def test_lr_factor__cosine(progress: float, factor: float) -> None:
    assert lr_factor("cosine", progress, 20) == pytest.approx(factor, abs=1e-12)


@pytest.mark.parametrize(("progress", "factor"), [(0, 0.04), (2.5, 0.52), (5, 1.0), (12.5, 0.5), (20, 0.0)])
def test_lr_factor__one_cycle_rises_for_a_quarter_and_falls_to_zero(progress: float, factor: float) -> None:
    assert lr_factor("one_cycle", progress, 20) == pytest.approx(factor, abs=1e-12)


def test_lr_factor__warmup_rises_linearly_and_then_leaves_the_schedule_alone() -> None:
    values = [lr_factor("constant", t, 10, warmup_epochs=2) for t in (0, 1, 2, 3)]
    assert values == pytest.approx([0.01, 0.505, 1.0, 1.0])


def test_lr_factor__an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="got 'cosin'"):
        lr_factor("cosin", 0, 1)


@pytest.mark.parametrize(
    ("lr", "weight"), [(0.05, 0.02), (0.01, 0.1), (0.002, 0.5), (0.00041, 1e-3 / 0.00041), (0.0004, 1.0), (8e-5, 1.0)]
)
def test_lambd_weight__reference_follows_the_step_size(lr: float, weight: float) -> None:
    assert lambd_weight("reference", lr=lr, active_epochs=1) == pytest.approx(weight, rel=1e-12)


def test_lambd_weight__constant_and_ramp_ignore_the_step_size() -> None:
    for lr in (0.05, 1e-5):
        assert lambd_weight("constant", lr=lr, active_epochs=1) == 1.0
        ramp = [lambd_weight("ramp", lr=lr, active_epochs=n, ramp_epochs=4) for n in range(1, 7)]
        assert ramp == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_step_values__reference_training_by_hand() -> None:
    """λ = 16, multistep 0.05 ×0.2: λ·w_lr is 0.32, 1.6, 8, 16, 16 in the five stretches, 0 in the warm-up."""
    config = Config(
        surrogate=SurrogateConfig(
            name="kmeans", lambd=16.0, lambd_schedule="reference", attention_warmup_epochs=3, lr=0.5
        ),
        train=TrainConfig(epochs=240, schedule="multistep"),
    )
    expected = {0: 0, 2: 0, 3: 0.32, 59: 0.32, 60: 1.6, 120: 8.0, 180: 16.0, 210: 16.0}
    for epoch, lambd in expected.items():
        mode = mode_at(config, epoch, needs_fit=True)
        values = step_values(config, Position(epoch, batch=7), steps_per_epoch=391, mode=mode)
        assert values.lambd == pytest.approx(lambd, rel=1e-12), epoch
        assert values.estimator_lr == 0.5, "the estimator has its own schedule"


def test_step_values__cosine_moves_within_an_epoch() -> None:
    config = Config(train=TrainConfig(epochs=2, lr=1.0, schedule="cosine"))
    values = [step_values(config, Position(0, batch), 4, SurrogateMode.OFF).lr for batch in range(4)]
    assert values == pytest.approx([0.5 * (1 + math.cos(math.pi * batch / 8)) for batch in range(4)])
