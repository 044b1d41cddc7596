import torch

from attention_cem.surrogates.seeding import greedy_plus_plus

SEED = torch.tensor(0)


def test_greedy_plus_plus__picks_one_valid_sample_of_each_far_mode() -> None:
    generator = torch.Generator().manual_seed(0)
    mode = torch.arange(32) % 8
    centre = 50 * torch.randn(5, 8, 3, generator=generator)
    keys = centre[:, mode] + 0.01 * torch.randn(5, 32, 3, generator=generator)
    valid = torch.ones(5, 32, dtype=torch.bool)
    valid[:, 16:] = False
    for step in range(5):
        for picked in greedy_plus_plus(keys, valid, 8, SEED, torch.tensor(step)).tolist():
            assert max(picked) < 16 and {i % 8 for i in picked} == set(range(8))


def test_greedy_plus_plus__takes_classes_with_few_samples_or_none() -> None:
    keys = torch.randn(3, 6, 2)
    valid = torch.tensor([[False] * 6, [True] + [False] * 5, [True, True] + [False] * 4])
    picked = greedy_plus_plus(keys, valid, 4, SEED, SEED)
    assert picked.shape == (3, 4)
    assert picked[1].tolist() == [0] * 4 and set(picked[2].tolist()) == {0, 1}


def test_greedy_plus_plus__depends_on_seed_and_step_alone() -> None:
    keys, valid = torch.randn(2, 40, 3), torch.ones(2, 40, dtype=torch.bool)
    picked = [greedy_plus_plus(keys, valid, 5, SEED, torch.tensor(step)) for step in (1, 1, 2)]
    assert torch.equal(picked[0], picked[1]) and not torch.equal(picked[0], picked[2])
