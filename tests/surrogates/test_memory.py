import copy
from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention_cem import ClassMemory
from attention_cem.surrogates.memory import rank_within_class, storable
from attention_cem.surrogates.segments import segment_classes

WIDTH = 2
LABELS = [-7, 0, 3, 12, 99, 1_000_000_007]
STREAMS = st.lists(st.lists(st.sampled_from(LABELS), max_size=9), min_size=1, max_size=12)


class DequeMemory:
    """The same memory as a dictionary of deques, one sample at a time."""

    def __init__(self, max_classes: int, bank_size: int, max_age: int | None) -> None:
        self.max_classes, self.bank_size, self.max_age = max_classes, bank_size, max_age
        self.banks: dict[int, deque[tuple[int, Tensor]]] = {}
        self.last_seen: dict[int, int] = {}
        self.place: dict[int, int] = {}

    def read(self, label: int, step: int) -> list[Tensor]:
        youngest = -1 if self.max_age is None else step - self.max_age
        return [z for written, z in self.banks.get(label, ()) if written >= youngest]

    def write(self, z: Tensor, y: list[int], step: int) -> None:
        # the classes with most samples choose their places first, equal ones by label
        present = sorted(set(y), key=lambda label: (-y.count(label), label))
        new = [label for label in present if label not in self.banks]
        free = [p for p in range(self.max_classes) if p not in self.place.values()]
        old = sorted(
            (label for label in self.banks if label not in present),
            key=lambda label: (self.last_seen[label], self.place[label]),
        )
        for label in new:
            if free:
                place = free.pop(0)
            elif old:
                evicted = old.pop(0)
                place = self.place.pop(evicted)
                del self.banks[evicted], self.last_seen[evicted]
            else:
                continue
            self.place[label], self.banks[label] = place, deque(maxlen=self.bank_size)
        for feature, label in zip(z, y, strict=True):
            if label in self.banks:
                self.banks[label].append((step, feature))
                self.last_seen[label] = step


def stream(batches: list[list[int]], seed: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(len(y), WIDTH, generator=generator), torch.tensor(y, dtype=torch.int64)) for y in batches]


def remember(memory: ClassMemory, z: Tensor, y: Tensor, step: int) -> None:
    segments = segment_classes(y)
    memory.write(z, segments, memory.locate(segments), torch.tensor(step))


def remembered(memory: ClassMemory, label: int, step: int) -> list[Tensor]:
    """Features of a class, oldest first."""
    places = memory.locate(segment_classes(torch.tensor([label])))
    bank, valid = memory.read(places.place[:1], torch.tensor(step))
    start = int(memory.cursor[places.place[0]]) % memory.bank_size
    ring = [*range(start, memory.bank_size), *range(start)]
    return [bank[0, column] for column in ring if valid[0, column]]


def assert_same(ours: list[Tensor], expected: list[Tensor]) -> None:
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected, strict=True):
        assert torch.equal(a, b)


@settings(deadline=None, max_examples=120)
@given(STREAMS, st.integers(1, 4), st.integers(1, 5), st.sampled_from([None, 1, 3]), st.integers(0, 5))
def test_memory__equals_a_dictionary_of_deques(
    batches: list[list[int]], max_classes: int, bank_size: int, max_age: int | None, seed: int
) -> None:
    memory, oracle = ClassMemory(WIDTH, max_classes, bank_size, max_age), DequeMemory(max_classes, bank_size, max_age)
    for step, (z, y) in enumerate(stream(batches, seed), start=1):
        for label in LABELS:  # read before the batch is written
            assert_same(remembered(memory, label, step), oracle.read(label, step))
        remember(memory, z, y, step)
        oracle.write(z, y.tolist(), step)
    for label in LABELS:
        assert_same(remembered(memory, label, step), oracle.read(label, step))
        assert_same(remembered(memory, label, step + 2), oracle.read(label, step + 2))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(LABELS), max_size=20))
def test_rank_within_class__counts_the_samples_of_the_class_before(labels: list[int]) -> None:
    ranks = rank_within_class(segment_classes(torch.tensor(labels, dtype=torch.int64)))
    assert ranks.tolist() == [labels[:i].count(label) for i, label in enumerate(labels)]


def test_memory__a_batch_larger_than_the_bank_leaves_its_last_samples() -> None:
    memory = ClassMemory(WIDTH, 2, bank_size=3)
    z = torch.arange(16.0).view(8, WIDTH)
    remember(memory, z, torch.zeros(8, dtype=torch.int64), 1)
    assert_same(remembered(memory, 0, 1), list(z[5:]))


def test_memory__the_least_recently_seen_class_gives_way_and_nothing_of_it_stays() -> None:
    memory = ClassMemory(WIDTH, 2, bank_size=2)
    for step, label in enumerate([5, 6, 5, 7], start=1):
        remember(memory, torch.full((1, WIDTH), float(step)), torch.tensor([label]), step)
    assert remembered(memory, 6, 4) == []
    assert_same(remembered(memory, 7, 4), [torch.full((WIDTH,), 4.0)])
    assert [f[0].item() for f in remembered(memory, 5, 4)] == [1.0, 3.0]


def test_memory__a_batch_of_more_new_classes_than_places_fills_the_places() -> None:
    memory = ClassMemory(WIDTH, 3, bank_size=2)
    remember(memory, torch.ones(6, WIDTH), torch.arange(6), 1)
    assert [len(remembered(memory, label, 1)) for label in range(6)] == [1, 1, 1, 0, 0, 0]


@settings(deadline=None, max_examples=40)
@given(STREAMS, st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e30]), st.integers(0, 2**30))
def test_memory__a_feature_that_is_not_finite_or_overflows_is_never_stored(
    batches: list[list[int]], bad: float, seed: int
) -> None:
    memory = ClassMemory(WIDTH, 3, bank_size=4)
    generator = torch.Generator().manual_seed(seed)
    for step, (z, y) in enumerate(stream(batches, seed), start=1):
        spoilt = torch.rand(len(y), generator=generator) < 0.4
        z[spoilt, 1] = bad
        remember(memory, z, y, step)
        assert torch.isfinite(memory.feature.square()).all()
        for label in memory.label[:-1][memory.last_seen[:-1] == step].tolist():
            # what the batch's last samples of the class hold of good features is there
            mine = (y == label).nonzero().flatten()[-memory.bank_size :]
            found = remembered(memory, label, step)
            assert all(any(torch.equal(z[n], f) for f in found) for n in mine.tolist() if not spoilt[n])


def test_storable__refuses_what_cannot_be_squared() -> None:
    z = torch.tensor([[1.0, -2.0], [float("nan"), 0.0], [0.0, -float("inf")], [1e25, 0.0], [1e15, 0.0]])
    assert storable(z).tolist() == [True, False, False, False, True]


def test_memory__what_is_stored_carries_no_graph() -> None:
    memory = ClassMemory(WIDTH, 2, bank_size=2)
    z = torch.randn(2, WIDTH, requires_grad=True)
    remember(memory, z * 2, torch.tensor([0, 1]), 1)
    assert not memory.feature.requires_grad
    z.data.fill_(0)
    assert memory.feature[:-1].abs().sum() > 0


def test_memory__save_load_continue_is_bit_identical() -> None:
    batches = stream([[0, 3, 3], [12, 0, -7], [99, 3], [0, 12, 99, 99]], 3)
    first = ClassMemory(WIDTH, 3, bank_size=2, max_age=5)
    for step, batch in enumerate(batches[:2], start=1):
        remember(first, *batch, step)
    second = ClassMemory(WIDTH, 3, bank_size=2, max_age=5)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for step, batch in enumerate(batches[2:], start=3):
        remember(first, *batch, step)
        remember(second, *batch, step)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_memory__two_ranks_that_see_the_gathered_batch_hold_the_same_bits() -> None:
    ranks = [ClassMemory(WIDTH, 3, bank_size=2) for _ in range(2)]
    for step, batch in enumerate(stream([[0, 3, 3, 99, -7], [12, 0, -7, 3], [99, 3, 0, 0, 0]], 1), start=1):
        for memory in ranks:
            remember(memory, *batch, step)
    for name, value in ranks[0].state_dict().items():
        assert torch.equal(value, ranks[1].state_dict()[name]), name


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 4), max_size=9), min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 5))
def test_memory__a_promised_label_space_changes_the_places_and_nothing_else(
    batches: list[list[int]], bank_size: int, seed: int
) -> None:
    free, promised = (ClassMemory(WIDTH, 5, bank_size, label_space=space) for space in (None, 5))
    for step, (z, y) in enumerate(stream(batches, seed), start=1):
        remember(free, z, y, step)
        segments = segment_classes(y, label_space=5)
        promised.write(z, segments, promised.locate(segments), torch.tensor(step))
    for label in range(5):
        assert_same(remembered(promised, label, step), remembered(free, label, step))
    assert all(
        p == v or s < 0 for p, (v, s) in enumerate(zip(promised.label, promised.last_seen, strict=True)) if p < 5
    )


def test_memory__a_state_without_label_space_is_refused_by_a_memory_with_it() -> None:
    # places would be taken for labels: features of one class would be read as another's
    free, promised = (ClassMemory(WIDTH, 3, 2, label_space=space) for space in (None, 3))
    promised.load_state_dict(free.state_dict())
    remember(free, torch.ones(1, WIDTH), torch.tensor([2]), 1)
    with pytest.raises(ValueError, match="without label_space"):
        promised.load_state_dict(free.state_dict())
    remember(promised, torch.ones(1, WIDTH), torch.tensor([2]), 1)
    free.load_state_dict(promised.state_dict())
    assert len(remembered(free, 2, 1)) == 1


def test_memory__an_empty_batch_changes_nothing() -> None:
    memory = ClassMemory(WIDTH, 2, bank_size=2)
    remember(memory, torch.ones(2, WIDTH), torch.tensor([4, 4]), 1)
    before = copy.deepcopy(memory.state_dict())
    remember(memory, torch.zeros(0, WIDTH), torch.zeros(0, dtype=torch.int64), 2)
    for name in ("feature", "written", "label", "last_seen", "cursor"):
        assert torch.equal(before[name][:-1], getattr(memory, name)[:-1]), name


def test_memory__ten_thousand_classes_in_a_budget_of_a_thousand_places() -> None:
    memory = ClassMemory(WIDTH, 1000, bank_size=2)
    size = sum(b.numel() for b in memory.buffers())
    for step in range(1, 41):
        y = torch.arange((step - 1) * 250, step * 250)
        remember(memory, y.unsqueeze(1).float().expand(-1, WIDTH), y, step)
    assert sum(b.numel() for b in memory.buffers()) == size
    assert sorted(memory.label[:-1].tolist()) == list(range(9000, 10_000))  # the last thousand of ten
    assert_same(remembered(memory, 9000, 40), [torch.full((WIDTH,), 9000.0)])
    assert remembered(memory, 8999, 40) == []


@pytest.mark.parametrize("arguments", [{"max_classes": 0}, {"bank_size": 0}, {"max_age": 0}, {"bank_size": 2.5}])
def test_memory__bad_arguments_are_refused(arguments: dict) -> None:
    (name,) = arguments
    with pytest.raises(ValueError, match=name):
        ClassMemory(**{"feature_dim": 2, "max_classes": 3, "bank_size": 4, **arguments})
