from typing import Any

import pytest
import torch

from attention_cem.surrogates import (
    ConditionalEntropySurrogate,
    GatedAttentionCEM,
    HybridCEM,
    KMeansCEM,
    SlotCrossAttentionCEM,
    SlotMixtureCEM,
    build_surrogate,
    register_surrogate,
    registry,
    surrogate_names,
)

COMMON: dict[str, Any] = {"feature_dim": 8, "num_classes": 3, "reg_strength": 0.2}
CLASSES = [SlotCrossAttentionCEM, GatedAttentionCEM, KMeansCEM, SlotMixtureCEM, HybridCEM]


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


def test_registry__knows_every_surrogate_by_its_kind() -> None:
    assert surrogate_names() == sorted(cls.kind for cls in CLASSES)
    for cls in CLASSES:
        assert type(build_surrogate(cls.kind, **COMMON)) is cls


def test_registry__common_arguments_reach_the_surrogate() -> None:
    surrogate = build_surrogate("slot_mixture", **COMMON)
    assert isinstance(surrogate, SlotMixtureCEM)
    assert (surrogate.feature_dim, surrogate.memory.max_classes) == (8, 3)
    assert surrogate.noise_variance == pytest.approx(0.04)
    assert build_surrogate("gated", **COMMON).feature_dim == 8  # takes no num_classes


@pytest.mark.parametrize("name", [cls.kind for cls in CLASSES if not cls.needs_fit])
def test_registry__what_it_builds_takes_a_batch(name: str) -> None:
    surrogate = build_surrogate(name, **COMMON)
    output = surrogate(torch.randn(12, 8), torch.arange(12) % 3)
    assert output.rob_loss.isfinite()


def test_registry__own_arguments_reach_the_surrogate() -> None:
    surrogate = build_surrogate("slot_mixture", **COMMON, num_slots=7, covariance="full")
    assert isinstance(surrogate, SlotMixtureCEM)
    assert (surrogate.num_slots, surrogate.covariance) == (7, "full")


def test_registry__unknown_names_and_arguments_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="'slot_mixtur'; did you mean 'slot_mixture'.*Known: gated, hybrid"):
        build_surrogate("slot_mixtur", **COMMON)
    with pytest.raises(ValueError, match=r"'zzz'\. Known: gated, hybrid, kmeans, none, slot_cross, slot_mixture$"):
        build_surrogate("zzz", **COMMON)
    with pytest.raises(ValueError, match="'non'; did you mean 'none'"):
        build_surrogate("non", **COMMON)
    with pytest.raises(ValueError, match="'num_slot'; did you mean 'num_slots'"):
        build_surrogate("slot_mixture", **COMMON, num_slot=2)


@pytest.mark.usefixtures("scratch")
def test_registry__a_name_can_be_taken_once() -> None:
    class Mine(GatedAttentionCEM):
        kind = "mine"

    register_surrogate("mine", Mine)
    built: ConditionalEntropySurrogate = build_surrogate("mine", **COMMON, objective="frozen")
    assert type(built) is Mine
    for name in ("mine", "gated"):
        with pytest.raises(ValueError, match=f"'{name}' is registered already"):
            register_surrogate(name, Mine)
