import pytest

from attention_cem.training.activation import (
    SurrogateMode,
    active_epochs,
    first_active_epoch,
    surrogate_mode,
)

OFF, OBSERVE, ACTIVE = SurrogateMode.OFF, SurrogateMode.OBSERVE, SurrogateMode.ACTIVE


@pytest.mark.parametrize(
    ("epoch", "chosen", "lambd", "warmup", "expected"),
    [
        (1, True, 16.0, 0, OBSERVE),  # the first epoch initialises centres
        (2, True, 16.0, 0, ACTIVE),
        (3, True, 16.0, 3, OBSERVE),  # warm-up
        (4, True, 16.0, 3, ACTIVE),
        (9, True, 0.0, 3, OBSERVE),  # λ = 0
        (9, False, 16.0, 3, OFF),  # none chosen
    ],
)
def test_surrogate_mode__table(epoch: int, chosen: bool, lambd: float, warmup: int, expected: SurrogateMode) -> None:
    assert surrogate_mode(epoch, chosen=chosen, lambd=lambd, warmup_epochs=warmup) is expected


def test_surrogate_mode__a_surrogate_that_must_be_fitted_is_not_called_in_the_first_epoch() -> None:
    assert surrogate_mode(1, chosen=True, lambd=1.0, warmup_epochs=3, needs_fit=True) is OFF
    assert surrogate_mode(2, chosen=True, lambd=1.0, warmup_epochs=3, needs_fit=True) is OBSERVE


def test_surrogate_mode__epochs_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        surrogate_mode(0, chosen=True, lambd=1.0, warmup_epochs=0)


@pytest.mark.parametrize("warmup", range(6))
def test_active_epochs__counts_from_the_first_active_epoch(warmup: int) -> None:
    first = first_active_epoch(warmup)
    assert active_epochs(first - 1, warmup) == 0
    assert [active_epochs(first + n, warmup) for n in range(3)] == [1, 2, 3]
    assert surrogate_mode(first, chosen=True, lambd=1.0, warmup_epochs=warmup) is ACTIVE
    assert surrogate_mode(first - 1, chosen=True, lambd=1.0, warmup_epochs=warmup) is OBSERVE
