import pytest
import torch

from attention_cem.defences import DefenceStack, FeatureDropout, GaussianNoise, LaplaceNoise, LocalDP
from tests.defences.test_stack import every_defence


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_stack__runs_on_a_gpu_with_a_generator_of_either_device():
    chain = [GaussianNoise(0.1), LaplaceNoise(0.1), FeatureDropout(0.3), LocalDP(4.0, 2.0)]
    stack = DefenceStack(chain)
    z = torch.randn(6, 4, 4, 4)
    stack.generator = torch.Generator().manual_seed(0)
    on_cpu = stack(z)
    stack.generator = torch.Generator().manual_seed(0)
    torch.testing.assert_close(stack(z.cuda()).cpu(), on_cpu, rtol=1e-4, atol=1e-4)
    stack.generator = torch.Generator("cuda").manual_seed(0)
    assert stack(z.cuda()).is_cuda


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_stack__trains_on_a_gpu_under_autocast():
    stack = DefenceStack(every_defence()).cuda()
    x = torch.rand(6, 3, 16, 16, device="cuda")
    z = torch.randn(6, 4, 4, 4, device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        losses = stack.train_adversaries(x, z)
        total = stack(z).float().square().sum() + sum(stack.penalties(x, z, torch.zeros(6)).values())
    total.backward()
    assert torch.isfinite(z.grad).all()
    assert all(bool(torch.isfinite(loss)) for loss in losses.values())
