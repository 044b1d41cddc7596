from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attention_cem.data import load_data, synthetic_images, to_float


def test_synthetic__is_a_pure_function_of_its_arguments():
    first, second = (synthetic_images(num_train=60, num_test=30, seed=4) for _ in range(2))
    other = synthetic_images(num_train=60, num_test=30, seed=5)
    assert torch.equal(first.train.images, second.train.images)
    assert torch.equal(first.test.labels, second.test.labels)
    assert not torch.equal(first.train.images, other.train.images)


def test_synthetic__does_not_touch_the_global_generator():
    before = torch.get_rng_state()
    synthetic_images(num_train=10, num_test=10)
    assert torch.equal(torch.get_rng_state(), before)


def test_synthetic__train_and_test_share_no_image():
    data = synthetic_images(num_train=300, num_test=100)
    distances = torch.cdist(to_float(data.test.images).flatten(1), to_float(data.train.images).flatten(1))
    assert distances.min() > 1


def test_synthetic__a_class_has_several_modes():
    """With one mode, the spread within a class is the images' own; more modes must add to it."""

    def within_class_variance(modes: int) -> float:
        data = synthetic_images(num_train=400, num_test=1, num_classes=4, modes_per_class=modes)
        pixels = to_float(data.train.images).flatten(1)
        means = torch.stack([pixels[data.train.labels == c].mean(0) for c in range(4)])
        return (pixels - means[data.train.labels]).square().mean().item()

    assert within_class_variance(4) > 1.1 * within_class_variance(1)


def test_synthetic__a_small_network_learns_it():
    torch.manual_seed(0)
    data = load_data("synthetic", limit=2000, test_limit=500)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 8 * 8, 10),
    )
    optimiser = torch.optim.Adam(network.parameters(), 2e-3)
    images = to_float(data.train.images)
    for _ in range(4):
        for batch in torch.randperm(2000).split(100):
            loss = F.cross_entropy(network(images[batch]), data.train.labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    network.eval()
    with torch.no_grad():
        accuracy = (network(to_float(data.test.images)).argmax(1) == data.test.labels).float().mean()
    assert 0.8 < accuracy < 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        *({"num_train": 0}, {"num_classes": 0}, {"size": 4}, {"size": "16"}, {"size": True}, {"size": {"x": 16}}),
        *({"channels": 2}, {"pixel_noise": -0.1}, {"pixel_noise": "0.1"}, {"pixel_noise": float("nan")}),
    ],
    ids=str,
)
def test_synthetic__refuses(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        synthetic_images(**wrong)
