"""Noise from the operating system: right distribution, never the same, never from a seed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from attention_cem.shipping.system_noise import system_draw, system_normal, system_uniform


def test_system_normal__is_normal():
    values = system_normal((200_001,))
    # 1e-6: the test fails by chance once in a million runs.
    assert stats.kstest(values, "norm").pvalue > 1e-6
    assert values.std() == pytest.approx(1, rel=0.02)


def test_system_normal__halves_of_a_pair_are_independent():
    values = system_normal((200_000,)).reshape(2, -1)
    assert abs(np.corrcoef(values)[0, 1]) < 0.02
    assert abs(np.corrcoef(values**2)[0, 1]) < 0.02


def test_system_uniform__is_uniform_below_one():
    values = system_uniform((200_000,))
    assert stats.kstest(values, "uniform").pvalue > 1e-6
    assert values.max() < 1


@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_system_draw__a_seed_does_not_repeat_it(kind):
    np.random.seed(0)
    first = system_draw(kind, (3, 5))
    np.random.seed(0)
    assert not np.array_equal(first, system_draw(kind, (3, 5)))


def test_system_draw__largest_and_smallest_bits_stay_finite(monkeypatch):
    for byte in (b"\x00", b"\xff"):
        monkeypatch.setattr("os.urandom", lambda count, byte=byte: byte * count)
        assert np.isfinite(system_normal((4,))).all()
        assert (system_uniform((4,)) < 1).all()


def test_system_draw__unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown kind of noise 'zero'"):
        system_draw("zero", (1,))
