import torch

from attention_cem.surrogates.noise import counter_normal


def test_counter_normal__moments_and_independence_of_steps() -> None:
    seed = torch.tensor(7)
    draws = torch.stack([counter_normal(seed, torch.tensor(step), (4096,), torch.float64) for step in range(40)])
    assert abs(draws.mean().item()) < 0.01
    assert abs(draws.std().item() - 1) < 0.01
    assert abs(draws.pow(4).mean().item() - 3) < 0.1
    correlation = torch.corrcoef(draws)
    assert (correlation - torch.eye(40, dtype=torch.float64)).abs().max() < 0.08


def test_counter_normal__seeds_differ() -> None:
    a, b = (counter_normal(torch.tensor(s), torch.tensor(1), (100,), torch.float32) for s in (0, 1))
    assert not torch.equal(a, b)
