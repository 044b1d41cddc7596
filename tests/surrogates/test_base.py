"""What every surrogate inherits: the precision it computes in."""

import copy

import pytest
import torch
from torch import Tensor

from attention_cem import ConditionalEntropySurrogate, SurrogateOutput
from attention_cem.surrogates import build_surrogate
from attention_cem.surrogates.registry import surrogate_names


class Stateless(ConditionalEntropySurrogate):
    """A third party's surrogate without any floating-point state."""

    kind = "stateless_for_a_test"

    def estimate(self, z: Tensor, y: Tensor, only: Tensor | None = None) -> SurrogateOutput:
        spread = (z - z.mean(0)).square().mean()
        return SurrogateOutput(spread, spread.detach(), {})


class OwnBuffer(Stateless):
    """One whose only floating-point state is a buffer of a precision of its own."""

    kind = "own_buffer_for_a_test"

    def __init__(self, feature_dim: int) -> None:
        super().__init__(feature_dim)
        self.register_buffer("total", torch.zeros(feature_dim, dtype=torch.float64))


def far_features() -> tuple[Tensor, Tensor]:
    """Features whose spread of 1e-9 around 1 is lost in float32, and their labels."""
    generator = torch.Generator().manual_seed(0)
    return 1 + 1e-9 * torch.randn(8, 4, dtype=torch.float64, generator=generator), torch.arange(8) % 2


def test_surrogate__without_floating_point_state_computes_in_float64_after_double() -> None:
    # broke: without a parameter or buffer to ask, the surrogate stayed in float32 whatever was asked of it
    z, y = far_features()
    surrogate = Stateless(4).double()
    loss = surrogate(z, y).rob_loss
    assert surrogate.dtype == loss.dtype == torch.float64
    torch.testing.assert_close(loss, (z - z.mean(0)).square().mean(), rtol=1e-12, atol=0.0)
    assert Stateless(4)(z, y).rob_loss == 0  # in float32 nothing of this spread is left


@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_surrogate__without_floating_point_state_computes_in_float32_unless_told(given: torch.dtype) -> None:
    z, y = far_features()
    assert Stateless(4)(z.to(given), y).rob_loss.dtype == torch.float32
    assert Stateless(4).double()(z.to(given), y).rob_loss.dtype == torch.float64
    assert Stateless(4).double().float()(z.to(given), y).rob_loss.dtype == torch.float32
    assert copy.deepcopy(Stateless(4).to(torch.float64))(z.to(given), y).rob_loss.dtype == torch.float64


def test_surrogate__precision_is_that_of_its_own_state_and_adds_nothing_to_what_is_saved() -> None:
    assert OwnBuffer(4).dtype == torch.float64
    assert set(Stateless(4).state_dict()) == {"kind_tag", "calls", "nonfinite_calls"}


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", surrogate_names())
def test_surrogate__state_in_half_precision_is_refused_with_the_remedy(name: str, half: torch.dtype) -> None:
    # broke: .to(torch.bfloat16) on a model that holds the surrogate gave gradients as wrong as they are large
    surrogate = build_surrogate(name, feature_dim=8, num_classes=2, reg_strength=0.1)
    z, y = torch.rand(12, 8), torch.arange(12) % 2
    if surrogate.needs_fit:
        surrogate.fit(z, y)
    with pytest.raises(ValueError, match=rf"float32 or float64.*{half}.*\.float\(\)"):
        surrogate.to(half)(z.to(half), y)
    assert torch.isfinite(surrogate.float()(z.to(half), y).rob_loss)
