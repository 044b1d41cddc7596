from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_cem.data import Augment, Batches, ImageSet


def numbered_set(labels: list[int]) -> ImageSet:
    values = torch.arange(len(labels), dtype=torch.uint8)
    images = values[:, None, None, None].expand(-1, 1, 8, 8).contiguous()
    return ImageSet(images, torch.tensor(labels), tuple(f"c{c}" for c in range(max(labels) + 1)))


def identities(images: torch.Tensor) -> list[int]:
    return (images[:, 0, 4, 4] * 255).round().long().tolist()


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 100), batch_size=st.integers(1, 40), drop_last=st.booleans(), epoch=st.integers(0, 3))
def test_batches__visit_every_image_once(n, batch_size, drop_last, epoch):
    image_set = numbered_set([i % 3 for i in range(n)])
    if drop_last and n < batch_size:
        with pytest.raises(ValueError, match="no batch"):
            Batches(image_set, batch_size, drop_last=True)
        return
    batches = Batches(image_set, batch_size, drop_last=drop_last)
    seen = [identity for images, _ in batches(epoch) for identity in identities(images)]
    assert len(list(batches(epoch))) == len(batches)
    assert len(seen) == len(set(seen)) == (n - n % batch_size if drop_last else n)


def test_batches__labels_stay_with_their_images():
    labels = [i * 7 % 5 for i in range(50)]
    for images, batch_labels in Batches(numbered_set(labels), 8)(epoch=2):
        assert batch_labels.tolist() == [labels[identity] for identity in identities(images)]


def test_batches__unshuffled_keep_the_order_of_the_set():
    batches = Batches(numbered_set([0, 1] * 10), 6, shuffle=False)
    assert [i for images, _ in batches(5) for i in identities(images)] == list(range(20))


def test_batches__order_depends_on_seed_and_epoch_alone():
    image_set = numbered_set([0, 1] * 50)
    first, second = Batches(image_set, 10, seed=3), Batches(image_set, 10, seed=3)
    list(first(epoch=0))
    assert torch.equal(first.order(7), second.order(7))
    assert not torch.equal(first.order(7), first.order(8))
    assert not torch.equal(first.order(7), Batches(image_set, 10, seed=4).order(7))


@pytest.mark.parametrize("classes_per_batch", [None, 2])
def test_batches__resume_in_the_middle_is_bit_identical(classes_per_batch):
    augment = Augment(crop_padding=2, rotation_degrees=15)
    image_set = numbered_set([i % 5 for i in range(90)])
    batches = Batches(image_set, 8, seed=1, augment=augment, classes_per_batch=classes_per_batch, drop_last=True)
    whole = list(batches(epoch=4))
    torch.rand(3)  # the global generator must not matter
    resumed = list(batches(epoch=4, start_batch=6))
    assert len(resumed) == len(whole) - 6
    for before, after in zip(whole[6:], resumed, strict=True):
        assert torch.equal(before.images, after.images)
        assert torch.equal(before.labels, after.labels)
    assert list(batches(epoch=4, start_batch=len(batches))) == []


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("classes_per_batch", [None, 3])
def test_batches__ranks_join_to_the_single_process_batch(world_size, classes_per_batch):
    image_set = numbered_set([i % 6 for i in range(100)])
    augment = Augment(crop_padding=2, rotation_degrees=10)

    def run(rank: int, world: int) -> list:
        batches = Batches(
            image_set,
            12,
            seed=2,
            augment=augment,
            classes_per_batch=classes_per_batch,
            rank=rank,
            world_size=world,
        )
        return list(batches(epoch=1))

    single = run(0, 1)
    by_rank = [run(rank, world_size) for rank in range(world_size)]
    for number, batch in enumerate(single):
        parts = [ranks_batches[number] for ranks_batches in by_rank]
        assert torch.equal(torch.cat([part.labels for part in parts]), batch.labels)
        torch.testing.assert_close(torch.cat([part.images for part in parts]), batch.images, rtol=0, atol=1e-6)
    assert {len(ranks_batches) for ranks_batches in by_rank} == {len(single)}


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 20), min_size=3, max_size=8).filter(lambda s: sum(x > 0 for x in s) >= 3),
    per_class=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_batches__balanced_hold_p_classes_of_k_images(sizes, per_class, seed):
    labels = [c for c, size in enumerate(sizes) for _ in range(size)]
    if len(labels) < 3 * per_class:
        return
    batches = Batches(numbered_set(labels), 3 * per_class, classes_per_batch=3, seed=seed)
    assert len(batches) == len(labels) // (3 * per_class)
    uses: dict[int, int] = {}
    for images, batch_labels in batches(epoch=0):
        _, counts = batch_labels.unique(return_counts=True)
        assert counts.tolist() == [per_class] * 3
        for identity, label in zip(identities(images), batch_labels.tolist(), strict=True):
            assert labels[identity] == label
            uses[identity] = uses.get(identity, 0) + 1
    for c, size in enumerate(sizes):
        used = [uses.get(i, 0) for i in range(len(labels)) if labels[i] == c]
        assert not size or max(used) - min(used) <= 1, "a class must hand out all its images before any again"


def test_batches__channels_last_changes_the_layout_alone():
    image_set = ImageSet(torch.randint(256, (8, 3, 8, 8), dtype=torch.uint8), torch.zeros(8).long(), ("a",))
    augment = Augment(crop_padding=1)
    plain = next(Batches(image_set, 8, augment=augment)(0)).images
    last = next(Batches(image_set, 8, augment=augment, channels_last=True)(0)).images
    assert torch.equal(plain, last)
    assert plain.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches__cuda_sees_the_cpu_order_without_host_syncs():
    image_set = numbered_set([i % 6 for i in range(100)])
    on_cpu = [batch.labels for batch in Batches(image_set, 10)(epoch=0)]
    on_cuda = Batches(image_set.to("cuda"), 10, augment=Augment(rotation_degrees=15), channels_last=True)
    iterator = on_cuda(epoch=0)
    labels = [next(iterator).labels]
    torch.cuda.set_sync_debug_mode("error")
    try:
        labels += [batch.labels for batch in iterator]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for a, b in zip(on_cpu, labels, strict=True):
        assert torch.equal(a, b.cpu())
    streamed = [batch.labels.cpu() for batch in Batches(image_set, 10, device="cuda")(epoch=0)]
    assert torch.equal(torch.cat(streamed), torch.cat(on_cpu))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 9, "world_size": 2}, "multiple of world_size"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"classes_per_batch": 5}, "classes_per_batch"),
        ({"classes_per_batch": 2, "batch_size": 9}, "multiple of classes_per_batch"),
        ({"classes_per_batch": 2, "shuffle": False}, "shuffle"),
        (
            {"batch_size": 1000, "drop_last": True},
            r"40 images give no batch of 1000; lower the batch size \(train\.batch_size\) to at most the number of",
        ),
    ],
)
def test_batches__refuse(wrong, message):
    with pytest.raises(ValueError, match=message):
        Batches(numbered_set([0, 1, 2, 3] * 10), **{"batch_size": 8, **wrong})


def test_batches__refuse_a_start_outside_the_epoch():
    batches = Batches(numbered_set([0, 1] * 10), 5)
    with pytest.raises(ValueError, match="start_batch"):
        batches(0, start_batch=5)
    with pytest.raises(ValueError, match="epoch"):
        batches(-1)
