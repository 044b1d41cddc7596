import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_cem.surrogates import build_surrogate
from attention_cem.surrogates import segments as sg
from attention_cem.surrogates.registry import surrogate_names

LABELS = st.lists(st.integers(-3, 6), min_size=0, max_size=30)


@settings(deadline=None, max_examples=60)
@given(LABELS, st.integers(1, 4))
def test_segment_classes__rows_are_the_active_classes_by_size(labels: list[int], min_count: int) -> None:
    y = torch.tensor(labels, dtype=torch.int64)
    s = sg.segment_classes(y, min_count)
    sizes = {c: labels.count(c) for c in set(labels)}
    active = sorted((n for n in sizes.values() if n >= min_count), reverse=True)
    assert s.size[s.active].tolist() == active
    assert int(s.num_classes) == len(sizes)
    for position, label in enumerate(labels):
        if sizes[label] >= min_count:
            assert int(s.label[s.row[position]]) == label
        else:
            assert int(s.row[position]) == s.num_rows - 1 and not s.active[-1]


def test_segment_classes__static_bound_covers_the_active_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    y = torch.arange(60) % 20
    exact = sg.segment_classes(y, 3)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    bound = sg.segment_classes(y, 3)
    assert (exact.num_rows, bound.num_rows) == (21, 21)
    assert sg.segment_classes(torch.arange(60) % 50, 3).num_rows == 21


@pytest.mark.parametrize("width", [2, 64], ids=["gathered", "dense"])
def test_contractions__equal_a_loop_on_both_paths(width: int) -> None:
    torch.manual_seed(0)
    y = torch.randint(0, 7, (23,))
    s = sg.segment_classes(y)
    x, table = torch.randn(23, width).double(), torch.randn(s.num_rows, 3, width).double()
    weights = torch.rand(23, 3).double()
    scores = torch.stack([table[s.row[n]] @ x[n] for n in range(23)])
    mixed = torch.stack([weights[n] @ table[s.row[n]] for n in range(23)])
    sums = torch.zeros_like(table)
    for n in range(23):
        sums[s.row[n]] += weights[n][:, None] * x[n]
    torch.testing.assert_close(sg.class_scores(x, table, s.row), scores)
    torch.testing.assert_close(sg.class_mix(weights, table, s.row), mixed)
    torch.testing.assert_close(sg.class_weighted_sums(weights, x, s.row, s.num_rows), sums)


@pytest.mark.parametrize("width", [2, 64], ids=["gathered", "dense"])
def test_contractions__leading_dimensions_are_independent(width: int) -> None:
    torch.manual_seed(0)
    s = sg.segment_classes(torch.randint(0, 5, (11,)))
    x, table = torch.randn(4, 11, width), torch.randn(4, s.num_rows, 3, width)
    scores, weights = sg.class_scores(x, table, s.row), torch.rand(4, 11, 3)
    mixed = sg.class_mix(weights, table, s.row)
    for head in range(4):
        torch.testing.assert_close(scores[head], sg.class_scores(x[head], table[head], s.row))
        torch.testing.assert_close(mixed[head], sg.class_mix(weights[head], table[head], s.row))


@settings(deadline=None, max_examples=40)
@given(LABELS, st.integers(1, 3))
def test_class_softmax__sums_to_one_in_each_active_class(labels: list[int], min_count: int) -> None:
    y = torch.tensor(labels, dtype=torch.int64)
    s = sg.segment_classes(y, min_count)
    logits = torch.linspace(-500, 500, len(labels), dtype=torch.float64)
    weight = sg.class_softmax(logits, s)
    for label in set(labels):
        mine = y == label
        if mine.sum() >= min_count:
            torch.testing.assert_close(weight[mine], torch.softmax(logits[mine], 0))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 4), min_size=5, max_size=30), st.integers(1, 3), st.booleans())
def test_segment_classes__promised_labels_give_the_same_classes(labels: list[int], min_count: int, part: bool) -> None:
    y = torch.tensor(labels)
    only = y % 2 == 0 if part else None
    free, promised = (sg.segment_classes(y, min_count, only, space) for space in (None, 5))
    for name in ("label", "size"):
        found = [sorted(getattr(s, name)[s.active].tolist()) for s in (free, promised)]
        assert found[0] == found[1]
    assert free.num_classes == promised.num_classes
    for s in (free, promised):
        inside = s.active[s.row]
        assert torch.equal(s.label[s.row][inside], y[inside])
    assert torch.equal(free.active[free.row], promised.active[promised.row])


@pytest.mark.parametrize("bad", [-1, 5])
def test_segment_classes__a_broken_promise_is_refused(bad: int) -> None:
    with pytest.raises(ValueError, match=f"0 … 4.*{bad}"):
        sg.segment_classes(torch.tensor([0, 1, 2, 3, 4, bad]), label_space=5)


@pytest.mark.parametrize("name", surrogate_names())
@pytest.mark.parametrize("bad", [-1, 4, 9])
def test_segment_classes__a_broken_promise_is_refused_in_a_batch_smaller_than_the_label_space(
    name: str, bad: int
) -> None:
    # broke: labels counted from 1 in a batch of fewer samples than classes; the last class was left out of the loss
    # without a word, a label beyond it ended in "index out of range in self"
    surrogate = build_surrogate(name, feature_dim=8, num_classes=4, reg_strength=0.1)
    if surrogate.needs_fit:
        surrogate.fit(torch.rand(16, 8), torch.arange(16) % 4)
    with pytest.raises(ValueError, match=f"0 … 3.*{bad}"):
        surrogate(torch.rand(3, 8), torch.tensor([1, bad, 1]))
