import pytest
import torch
from torch.distributions import Normal, kl_divergence

from attention_cem.defences import DefenceStack, InformationBottleneck
from attention_cem.defences.testing import DefenceContract


class TestInformationBottleneckImage(DefenceContract):
    stochastic = True

    def make(self):
        return InformationBottleneck(z_shape=(8, 4, 4), weight=0.01)


class TestInformationBottleneckTokens(DefenceContract):
    stochastic = True
    z_shape = (5, 6)

    def make(self):
        return InformationBottleneck(z_shape=(5, 6), weight=0.01)


class TestInformationBottleneckVector(DefenceContract):
    stochastic = True
    z_shape = (7,)

    def make(self):
        return InformationBottleneck(z_shape=[7], weight=0.01, initial_std=0.5)


def with_random_layers(defence: InformationBottleneck) -> InformationBottleneck:
    torch.manual_seed(0)
    for parameter in defence.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return defence


def test_information_bottleneck__kl_equals_torch_distributions():
    defence = with_random_layers(InformationBottleneck(z_shape=(3, 2, 2), weight=0.1))
    z = torch.randn(5, 3, 2, 2)
    mean, log_variance = defence.statistics(z)
    reference = kl_divergence(Normal(mean, (0.5 * log_variance).exp()), Normal(0.0, 1.0)).sum(dim=(1, 2, 3))
    torch.testing.assert_close(defence.term(z, z, z), reference.mean())
    weighted = DefenceStack([defence]).penalties(z, z, z)["information_bottleneck"]
    torch.testing.assert_close(weighted, 0.1 * reference.mean())


def test_information_bottleneck__releases_the_stated_distribution():
    defence = with_random_layers(InformationBottleneck(z_shape=(4,), weight=0.0))
    z = torch.randn(1, 4)
    mean, log_variance = defence.statistics(z)
    released = defence.eval()(z.expand(100_000, 4))
    torch.testing.assert_close(released.mean(0), mean[0], atol=0.02, rtol=0)
    torch.testing.assert_close(released.std(0), (0.5 * log_variance[0]).exp(), atol=0, rtol=0.02)


def test_information_bottleneck__starts_as_the_identity_with_little_noise():
    defence = InformationBottleneck(z_shape=(8, 4, 4), weight=1.0, initial_std=0.05)
    z = torch.randn(500, 8, 4, 4)
    torch.testing.assert_close(defence.emission(z), z)
    torch.manual_seed(0)
    assert float((defence(z) - z).detach().std()) == pytest.approx(0.05, rel=0.02)


def test_information_bottleneck__training_it_lowers_the_information():
    defence = InformationBottleneck(z_shape=(6,), weight=1.0)
    z = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(defence.parameters(), lr=0.1)
    before = float(defence.term(z, z, z).detach())
    for _ in range(200):
        optimizer.zero_grad()
        defence.term(z, z, z).backward()
        optimizer.step()
    assert float(defence.term(z, z, z).detach()) < 0.2 * before


def test_information_bottleneck__its_layers_train_with_the_task_and_hide_the_variance():
    stack = DefenceStack([InformationBottleneck(z_shape=(6,), weight=1.0)])
    assert len(stack.trainable_parameters()) == 4
    assert stack.noise_variance() is None
    assert stack.noise_std() is None


def test_information_bottleneck__refuses_other_shapes():
    with pytest.raises(ValueError, match="z_shape must be 1 or 2 or 3 positive whole numbers"):
        InformationBottleneck(z_shape=(1, 2, 3, 4), weight=1.0)
    with pytest.raises(ValueError, match="z must have shape"):
        InformationBottleneck(z_shape=(6,), weight=1.0)(torch.zeros(2, 5))
