"""The real sets, where they are at hand: counts, labels and published figures."""

from __future__ import annotations

import hashlib

import pytest
import torch

from attention_cem.data import describe_data, load_data


def load_if_there(name, folder):
    if next(record for record in describe_data(folder) if record.name == name).found is None:
        pytest.skip(f"{name} is not in {folder}")
    return load_data(name, folder)


def digests(images):
    return {hashlib.sha256(image.numpy().tobytes()).digest() for image in images}


@pytest.mark.parametrize(
    ("name", "train", "test", "shape", "classes"),
    [
        ("cifar10_tiny", 800, 400, (3, 32, 32), 10),
        ("lfw158", 2576, 641, (3, 64, 64), 158),
        ("tinyimagenet20", 6400, 1000, (3, 64, 64), 20),
        ("orl", 320, 80, (1, 64, 64), 40),
    ],
)
def test_real_data__counts_shapes_classes(real_data, name, train, test, shape, classes):
    data = load_if_there(name, real_data)
    assert (len(data.train), len(data.test), data.image_shape, data.num_classes) == (train, test, shape, classes)
    assert len(data.train.labels.unique()) == len(data.test.labels.unique()) == classes
    assert data.train.images.float().std() > 20


def test_cifar10__complete_with_the_known_means_and_the_tiny_subset(real_data):
    data = load_if_there("cifar10", real_data)
    assert data.train.labels.bincount().tolist() == [5000] * 10
    assert data.test.labels.bincount().tolist() == [1000] * 10
    mean = data.train.images.float().mean((0, 2, 3)) / 255
    torch.testing.assert_close(mean, torch.tensor([0.4914, 0.4822, 0.4465]), atol=5e-5, rtol=0)
    tiny = load_if_there("cifar10_tiny", real_data)
    first_of_class = torch.cat([(data.train.labels == c).nonzero().flatten()[:80] for c in range(10)])
    images_of = {hashlib.sha256(image.numpy().tobytes()).digest() for image in tiny.train.images}
    assert {
        hashlib.sha256(image.numpy().tobytes()).digest() for image in data.train.images[first_of_class]
    } == images_of


def test_cifar100__fine_and_coarse(real_data):
    fine = load_if_there("cifar100", real_data)
    assert fine.train.labels.bincount().tolist() == [len(fine.train) // 100] * 100
    coarse = load_data("cifar100_coarse", real_data, limit=2000)
    assert coarse.num_classes == 20
    assert coarse.train.labels.bincount().tolist() == [100] * 20
    assert coarse.name == "cifar100_coarse"
