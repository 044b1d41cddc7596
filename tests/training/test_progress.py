from pathlib import Path
from typing import Any

import pytest

from attention_cem.training import load_config
from attention_cem.training.progress import Best, Position, first_counted_epoch, position_facts, position_from_facts

PAPER = Path(__file__).parents[2] / "configs" / "cifar10-paper.toml"
SHORT = {"train.epochs": 60, "train.lr": 0.1, "train.lr_warmup_epochs": 1.0, "train.schedule": "cosine"}
WARM = {"surrogate.attention_warmup_epochs": 3}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # λ·w_lr of the published schedule: .02, .1, .5 of λ, and λ from the drop to .0004 after epoch 180 on.
        ({}, 181),
        # The same rule under a cosine: w_lr passes 1 where the step size passes .001, late in epoch 57.
        (SHORT | WARM, 58),
        # A step size that stays large: λ·w_lr never rises, so that it is as strong as it gets from the start.
        ({"train.schedule": "constant", **WARM}, 4),
        # A warm-up of the step size makes λ·w_lr large for a moment, which is no strength to wait for.
        ({"train.schedule": "constant", "train.lr_warmup_epochs": 5.0, "train.epochs": 40, **WARM}, 4),
        ({"surrogate.lambd_schedule": "ramp", "surrogate.ramp_epochs": 12, **WARM}, 15),
        ({"surrogate.lambd_schedule": "constant", **WARM}, 4),
        ({"surrogate.lambd": 0.0}, 1),
        ({"surrogate.name": "none", "surrogate.lambd": 0.0}, 1),
        # Too short for the ramp, or for the warm-up: the last epoch counts.
        ({"surrogate.lambd_schedule": "ramp", "surrogate.ramp_epochs": 12, "train.epochs": 5, **WARM}, 5),
        ({"train.epochs": 2, **WARM}, 2),
    ],
)
def test_first_counted_epoch__is_where_lambda_is_whole_to_the_end(settings: dict[str, Any], expected: int) -> None:
    config = load_config(PAPER, overrides={"train.milestones": [60, 120, 180, 210], **settings})
    assert first_counted_epoch(config) == expected


@pytest.mark.parametrize("wrong", [{"epoch": None}, {"steps": "many"}, {"batch": -1}, {"seconds": float("nan")}])
def test_position_from_facts__what_no_run_wrote_is_refused(wrong: dict[str, Any]) -> None:
    facts = position_facts(Position(1, 2, 3), Best(0.5, 1), 4.0)
    with pytest.raises(ValueError, match="cannot"):
        position_from_facts(facts | wrong)
    with pytest.raises(ValueError, match="KeyError 'epoch'"):
        position_from_facts({})
