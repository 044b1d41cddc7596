import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_cem.defences import FeatureDropout, TopKPruning
from attention_cem.defences.testing import DefenceContract


class TestFeatureDropout(DefenceContract):
    stochastic = True

    def make(self):
        return FeatureDropout(p=0.3)


class TestTopKPruning(DefenceContract):
    def make(self):
        return TopKPruning(keep=0.25)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout__zeroes_the_stated_share_and_keeps_the_mean(p, dtype):
    torch.manual_seed(0)
    released = FeatureDropout(p=p).eval()(torch.ones(2000, 100, dtype=dtype)).float()
    assert float((released == 0).float().mean()) == pytest.approx(p, rel=0.02)
    assert float(released.mean()) == pytest.approx(1.0, rel=0.02)


def test_dropout__withheld_coordinates_get_no_gradient():
    z = torch.ones(4, 50, requires_grad=True)
    released = FeatureDropout(p=0.5)(z)
    released.sum().backward()
    assert torch.equal(z.grad == 0, released == 0)


@settings(max_examples=50, deadline=None)
@given(
    shape=st.lists(st.integers(1, 7), min_size=2, max_size=4),
    keep=st.floats(0.01, 1.0),
    ties=st.booleans(),
)
def test_top_k_pruning__keeps_exactly_the_k_largest(shape, keep, ties):
    generator = torch.Generator().manual_seed(0)
    z = torch.ones(shape) if ties else torch.randn(shape, generator=generator)
    released = TopKPruning(keep=keep)(z).flatten(1)
    width = released.shape[1]
    count = max(1, round(keep * width))
    assert ((released != 0).sum(1) == count).all()
    for row, original in zip(released, z.flatten(1), strict=True):
        kept = row != 0
        assert torch.equal(row[kept], original[kept])
        if not kept.all():
            assert original[kept].abs().min() >= original[~kept].abs().max()


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, float("nan"), True])
def test_dropout__refuses_a_probability_outside(bad):
    with pytest.raises(ValueError, match="p must lie between 0 and 1"):
        FeatureDropout(p=bad)


@pytest.mark.parametrize("bad", [0.0, 1.01, float("nan"), True])
def test_top_k_pruning__refuses_a_share_outside(bad):
    with pytest.raises(ValueError, match="keep must lie above 0"):
        TopKPruning(keep=bad)
