import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_cem.defences import DistanceCorrelation, distance_correlation
from attention_cem.defences.testing import DefenceContract


class TestDistanceCorrelation(DefenceContract):
    def make(self):
        return DistanceCorrelation(weight=0.5)


def slow_distance_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Definitions 3 to 5 of Székely et al. 2007, one entry at a time."""
    n = len(a)

    def centred(values: np.ndarray) -> np.ndarray:
        d = np.array([[np.linalg.norm(values[k] - values[m]) for m in range(n)] for k in range(n)])
        return np.array([[d[k, m] - d[k].mean() - d[:, m].mean() + d.mean() for m in range(n)] for k in range(n)])

    A, B = centred(a.reshape(n, -1)), centred(b.reshape(n, -1))
    covariance, first, second = (float((u * v).sum()) / n**2 for u, v in ((A, B), (A, A), (B, B)))
    return 0.0 if first * second == 0 else float(np.sqrt(max(covariance, 0) / np.sqrt(first * second)))


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(2, 9),
    a_shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    width=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_distance_correlation__equals_the_slow_oracle(n, a_shape, width, seed):
    generator = torch.Generator().manual_seed(seed)
    a = torch.rand((n, *a_shape), generator=generator)
    b = torch.randn((n, width), generator=generator) + a.flatten(1)[:, :1]
    expected = slow_distance_correlation(a.double().numpy(), b.double().numpy())
    assert float(distance_correlation(a, b)) == pytest.approx(expected, abs=1e-4)
    assert float(distance_correlation(a.double(), b.double())) == pytest.approx(expected, abs=1e-9)


def test_distance_correlation__is_one_for_linear_maps_and_falls_to_zero_for_independent_data():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(400, 3, generator=generator)
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=generator)).Q
    assert float(distance_correlation(a, 5 - 3 * a @ rotation)) == pytest.approx(1.0, abs=1e-5)
    sizes, values = (50, 200, 800), []
    for n in sizes:
        left, right = torch.randn(n, 1, generator=generator), torch.randn(n, 1, generator=generator)
        values.append(float(distance_correlation(left, right)))
    assert values[0] > values[1] > values[2]
    assert values[2] < 0.1


def test_distance_correlation__sees_dependence_without_correlation():
    a = torch.linspace(-1, 1, 200)[:, None]
    assert abs(float(torch.corrcoef(torch.cat([a, a.square()], 1).T)[0, 1])) < 1e-5
    assert float(distance_correlation(a, a.square())) > 0.4


def test_distance_correlation__ignores_order_place_and_scale():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(20, 4, generator=generator), torch.randn(20, 6, generator=generator)
    expected = float(distance_correlation(a, b))
    order = torch.randperm(20, generator=generator)
    assert float(distance_correlation(a[order], b[order])) == pytest.approx(expected, abs=1e-5)
    assert float(distance_correlation(b, a)) == pytest.approx(expected, abs=1e-6)
    assert float(distance_correlation(7 * a + 3, 1e-6 * b)) == pytest.approx(expected, abs=1e-4)


def test_distance_correlation__gradient_equals_finite_differences():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    b = torch.randn(6, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: distance_correlation(a, value), b)


def test_distance_correlation__coinciding_samples_have_finite_gradients():
    a = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
    duplicated = torch.tensor([0.0, 0, 1, 1, 2, 2])[:, None].requires_grad_()
    constant = torch.ones(6, 2, requires_grad=True)
    for b in (duplicated, constant):
        value = distance_correlation(a, b)
        value.backward()
        assert torch.isfinite(b.grad).all()
    assert float(distance_correlation(a, constant).detach()) == 0


def test_distance_correlation__following_the_gradient_hides_the_input():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(32, 10, generator=generator)
    weight = torch.randn(10, 4, generator=generator).requires_grad_()
    defence = DistanceCorrelation(weight=1.0)
    noise = torch.randn(32, 4, generator=generator)

    def term() -> torch.Tensor:
        return defence.term(x, x @ weight + 0.1 * noise, torch.zeros(32))

    before = float(term().detach())
    for _ in range(300):
        (gradient,) = torch.autograd.grad(term(), weight)
        weight.data -= 0.5 * gradient
    assert float(term().detach()) < 0.8 * before


def test_distance_correlation__refuses_batches_of_different_size():
    with pytest.raises(ValueError, match="same number of samples, received 3 and 4"):
        distance_correlation(torch.zeros(3, 1), torch.zeros(4, 1))
