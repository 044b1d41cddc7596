import pytest
import torch

from attention_cem.defences import GaussianNoise, LaplaceNoise
from attention_cem.defences.testing import DefenceContract


class TestGaussianNoise(DefenceContract):
    stochastic = True

    def make(self):
        return GaussianNoise(sigma=0.3)


class TestLaplaceNoise(DefenceContract):
    stochastic = True

    def make(self):
        return LaplaceNoise(scale=0.3)


def test_gaussian_noise__sigma_is_a_standard_deviation():
    torch.manual_seed(0)
    z = torch.rand(2000, 8, 4, 4)
    noise = GaussianNoise(sigma=0.025)(z) - z
    assert float(noise.std()) == pytest.approx(0.025, rel=0.02)
    assert float((noise.abs() < 0.025).float().mean()) == pytest.approx(0.6827, rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_laplace_noise__has_the_laplace_tails(dtype):
    torch.manual_seed(0)
    noise = LaplaceNoise(scale=0.5)(torch.zeros(2000, 128, dtype=dtype)).float()
    assert float(noise.abs().mean()) == pytest.approx(0.5, rel=0.02)
    for quantile in (0.5, 1.0, 2.0):
        share = float((noise.abs() > quantile).float().mean())
        assert share == pytest.approx(float(torch.exp(torch.tensor(-quantile / 0.5))), rel=0.05)
    assert float((noise > 0).float().mean()) == pytest.approx(0.5, rel=0.02)


def test_laplace_noise__is_finite_at_the_ends_of_the_uniform_draw(monkeypatch):
    # The smallest value of a uniform draw is 0, which has no logarithm.
    monkeypatch.setattr(torch, "rand_like", torch.zeros_like)
    assert torch.isfinite(LaplaceNoise(scale=1.0)(torch.zeros(2, 3))).all()


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf"), True, "0.1"])
def test_noise__refuses_a_strength_that_is_not_positive(bad):
    with pytest.raises(ValueError, match="sigma must be a finite number above 0"):
        GaussianNoise(sigma=bad)
    with pytest.raises(ValueError, match="scale must be a finite number above 0"):
        LaplaceNoise(scale=bad)


def test_noise__refuses_what_is_not_a_batch_of_features():
    with pytest.raises(ValueError, match="at least two axes"):
        GaussianNoise(sigma=1.0)(torch.zeros(3))
    with pytest.raises(ValueError, match="floating-point"):
        LaplaceNoise(scale=1.0)(torch.zeros(3, 3, dtype=torch.int64))
