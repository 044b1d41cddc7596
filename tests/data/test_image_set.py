from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_cem.data import ImageData, ImageSet, split_validation


def numbered_set(labels: list[int], num_classes: int | None = None) -> ImageSet:
    """Image i is filled with the value i, so that it can be told from the others."""
    values = torch.arange(len(labels), dtype=torch.uint8)
    images = values[:, None, None, None].expand(-1, 3, 2, 2).contiguous()
    names = tuple(f"c{c}" for c in range(num_classes or max(labels) + 1))
    return ImageSet(images, torch.tensor(labels), names)


def identities(image_set: ImageSet) -> list[int]:
    return image_set.images[:, 0, 0, 0].tolist()


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 3, 4, 4), torch.zeros(2).long(), "uint8"),
        (torch.zeros(2, 4, 4).byte(), torch.zeros(2).long(), "N, C, H, W"),
        (torch.zeros(2, 4, 4, 3).byte(), torch.zeros(2).long(), "permute"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.zeros(3).long(), "labels"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.zeros(2).int(), "int64"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.tensor([0, 2]), "class names"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.tensor([0, -1]), "class names"),
        (torch.zeros(2, 3, 4, 4).byte().numpy(), torch.tensor([0, 1]), "images must be a torch tensor, got ndarray"),
        (torch.zeros(2, 3, 4, 4).byte(), [0, 1], "labels must be a torch tensor, got list"),
    ],
)
def test_image_set__refuses(images, labels, message):
    with pytest.raises(ValueError, match=message):
        ImageSet(images, labels, ("a", "b"))


def test_image_set__subset_keeps_order_and_pairs():
    part = numbered_set([0, 1, 2, 0]).subset(torch.tensor([3, 1]))
    assert identities(part) == [3, 1]
    assert part.labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match="nonzero"):
        part.subset(torch.tensor([True, False]))


def test_image_data__refuses_disagreeing_halves():
    train = numbered_set([0, 1])
    other_shape = ImageSet(torch.zeros(1, 3, 4, 4).byte(), torch.zeros(1).long(), train.class_names)
    other_names = ImageSet(train.images, train.labels, ("x", "y"))
    with pytest.raises(ValueError, match="must agree"):
        ImageData("d", train, other_shape)
    with pytest.raises(ValueError, match="same classes"):
        ImageData("d", train, other_names)


label_lists = st.lists(st.integers(0, 6), min_size=2, max_size=120)


@settings(max_examples=60, deadline=None)
@given(labels=label_lists, n=st.integers(1, 150), seed=st.integers(0, 5))
def test_limit__keeps_class_shares(labels, n, seed):
    full = numbered_set(labels, 7)
    part = full.limit(n, seed)
    assert len(part) == min(n, len(full))
    assert identities(part) == sorted(set(identities(part)))
    assert identities(part) == identities(full.limit(n, seed))
    for c in range(7):
        share = labels.count(c) * len(part) / len(full)
        assert abs(part.labels.tolist().count(c) - share) < 1.5


def test_limit__balanced_data_stays_balanced():
    part = numbered_set([c for c in range(10) for _ in range(20)]).limit(50, seed=3)
    assert part.labels.bincount().tolist() == [5] * 10


def test_limit__seeds_differ():
    full = numbered_set([0, 1] * 100)
    assert identities(full.limit(20, seed=0)) != identities(full.limit(20, seed=1))


@settings(max_examples=60, deadline=None)
@given(labels=label_lists, fraction=st.floats(0.05, 0.9), seed=st.integers(0, 5))
def test_split_validation__disjoint_complete_stratified(labels, fraction, seed):
    full = numbered_set(labels, 7)
    wanted = round(fraction * len(labels))
    if not 0 < wanted <= len(labels) - len(set(labels)):
        with pytest.raises(ValueError, match="can be spared"):
            split_validation(full, fraction, seed)
        return
    train, validation = split_validation(full, fraction, seed)
    assert len(validation) == wanted
    assert sorted(identities(train) + identities(validation)) == identities(full)
    assert set(train.labels.tolist()) == set(labels)
    again, validation_again = split_validation(full, fraction, seed)
    assert identities(again) == identities(train)
    assert identities(validation_again) == identities(validation)


def test_split_validation__balanced_classes_give_equal_shares():
    train, validation = split_validation(numbered_set([c for c in range(10) for _ in range(20)]), 0.1, seed=0)
    assert validation.labels.bincount().tolist() == [2] * 10
    assert train.labels.bincount().tolist() == [18] * 10


def test_split_validation__where_nothing_can_be_spared_it_says_too_few_images():
    with pytest.raises(ValueError, match=r"too few images: of 3 none .* raise the limit \(data\.limit\)"):
        split_validation(numbered_set([0, 1, 2]), 0.1, seed=0)
    with pytest.raises(ValueError, match=r"asks for 0 of 4 images, but between 1 and 2 .* data\.validation_fraction"):
        split_validation(numbered_set([0, 1, 0, 1]), 0.1, seed=0)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5])
def test_split_validation__refuses_impossible_fractions(fraction):
    with pytest.raises(ValueError, match="strictly between"):
        split_validation(numbered_set([0, 1, 0, 1]), fraction, seed=0)
