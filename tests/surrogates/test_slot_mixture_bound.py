"""Does the slot mixture measure what it claims? Against features whose conditional entropy is known."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean

import pytest
import torch
from torch import Tensor

from attention_cem import (
    ConditionalEntropySurrogate,
    GatedAttentionCEM,
    KMeansCEM,
    SlotCrossAttentionCEM,
    SlotMixtureCEM,
)
from attention_cem.data import gaussian_mixture_features
from attention_cem.surrogates.mixture import ClassMixtures, expected_log_density, noise_entropy
from tests.surrogates.known_mixtures import SIGMA, TRAINED, WIDTH, known_features, make, reported, trained, true_nats

COVARIANCES = ["diagonal", "isotropic", "low_rank", "full"]


@pytest.mark.parametrize("modes", [1, 2, 4, 8])
def test_slot_mixture__bounds_the_true_entropy_of_held_out_features_tightly(modes: int) -> None:
    features, truth = known_features(modes)
    surrogate = trained(make(modes), features.z, features.labels, steps=60)
    ratio = reported(surrogate, features.z[TRAINED:], features.labels[TRAINED:]) / truth
    print(f"{modes} modes: {ratio:.4f} of the true {truth:.4f} nats per dimension above the floor")
    assert 0.99 <= ratio <= 1.03


@pytest.mark.parametrize("slots", [2, 8])
@pytest.mark.parametrize("distance", [0.0, 0.6, 1.2])
def test_slot_mixture__bounds_the_entropy_of_overlapping_modes(slots: int, distance: float) -> None:
    features, truth = known_features(4, mode_distance=distance)
    surrogate = trained(make(slots), features.z, features.labels, steps=40)
    assert reported(surrogate, features.z[TRAINED:], features.labels[TRAINED:]) >= 0.99 * truth


@pytest.mark.parametrize("distance", [10.0, 30.0])
def test_slot_mixture__far_modes_do_not_blur_one_another(distance: float) -> None:
    # uniform responsibilities in the statistics let every mode leak into every slot: 1.8 times the truth at 30
    features, truth = known_features(8, mode_distance=distance)
    surrogate = trained(make(8), features.z, features.labels, steps=40)
    ratio = reported(surrogate, features.z[TRAINED:], features.labels[TRAINED:]) / truth
    print(f"modes {distance:.0f} apart: {ratio:.4f} of the truth")
    assert 0.99 <= ratio <= 1.03


def test_slot_mixture__one_slot_is_much_looser_on_eight_modes() -> None:
    features, truth = known_features(8)
    held_out = features.z[TRAINED:], features.labels[TRAINED:]
    one, eight = (
        reported(trained(make(slots), features.z, features.labels, steps=40), *held_out) / truth for slots in (1, 8)
    )
    print(f"one slot: {one:.2f} of the truth, eight slots: {eight:.3f}")
    assert one > 1.8 and eight < 1.03


@torch.no_grad()
def best_kmeans(z: Tensor, y: Tensor) -> tuple[KMeansCEM, ClassMixtures]:
    """The best of several k-means fits: a single start often misses a mode, which is not what is compared here."""
    fits = []
    for seed in range(8):
        fit = KMeansCEM(WIDTH, 2, num_clusters=4, form="paper", reg_strength=SIGMA, seed=seed)
        fit.fit(z, y)
        mixtures = ClassMixtures(fit.weight, fit.centroid, fit.variance + SIGMA**2)
        fits.append((expected_log_density(z, y, mixtures, SIGMA**2).mean().item(), fit, mixtures))
    _, fit, mixtures = max(fits, key=lambda each: each[0])
    return fit, mixtures


@pytest.mark.parametrize(("rate", "epoch_end_fails"), [(0.0, False), (0.03, True)])
def test_slot_mixture__follows_moving_features_where_once_an_epoch_kmeans_does_not(
    rate: float, epoch_end_fails: bool
) -> None:
    features, truth = known_features(4)
    z, y = features.z, features.labels
    skew = torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    skew = skew - skew.T
    turn = torch.matrix_exp(rate * skew / torch.linalg.matrix_norm(skew, 2)).float()  # at most ``rate`` radians
    now = torch.eye(WIDTH)
    surrogate = make(4, bank_size=256)
    found: dict[str, list[float]] = {"slots": [], "k-means mixture": [], "KMeansCEM": []}
    for step in range(200):
        part = slice(step * 64, step * 64 + 64)
        if step % 100 == 0:  # an epoch of 100 batches
            kmeans, mixtures = best_kmeans(z[:6400] @ now, y[:6400])
        trained(surrogate, z[part] @ now, y[part], steps=1)
        if step >= 50 and step % 10 == 9:
            held_out = z[TRAINED:] @ now, y[TRAINED:]
            stale = -expected_log_density(*held_out, mixtures, SIGMA**2).mean().item() / WIDTH
            found["slots"].append(reported(surrogate, *held_out) / truth)
            found["k-means mixture"].append((stale - noise_entropy(SIGMA**2)) / truth)
            found["KMeansCEM"].append(reported(kmeans, z[part] @ now, y[part]) / WIDTH / truth)
        now = now @ turn
    for name, ratios in found.items():
        print(f"{rate} rad a step, {name}: {min(ratios):.3f} to {max(ratios):.3f} of the truth")
    assert min(found["slots"]) >= 0.99 and max(found["slots"]) <= 1.10
    for name in ("k-means mixture", "KMeansCEM"):
        assert (max(found[name]) > 1.2) == epoch_end_fails


def test_slot_mixture__classes_never_seen_before_are_measured_within_a_hundred_steps() -> None:
    features, truth = known_features(4, classes=4)
    z, y = features.z, features.labels
    old = y < 2
    surrogate = trained(make(4, classes=4), z[old], y[old], steps=50)
    trained(surrogate, z, y, steps=100, batch=128)
    new = ~old[TRAINED:]
    ratio = reported(surrogate, z[TRAINED:][new], y[TRAINED:][new]) / truth
    print(f"classes seen for 100 steps: {ratio:.4f} of the truth")
    assert 0.99 <= ratio <= 1.10


def reports_while_the_estimator_trains(
    surrogate: ConditionalEntropySurrogate, held_out: Sequence[tuple[Tensor, Tensor]], every: int
) -> list[float]:
    """Frozen client, 500 steps of the estimator on its own loss: what it says of fixed features, before and between."""
    features, _ = known_features(4)
    optimiser = torch.optim.Adam(surrogate.parameters(), 1e-2)
    reports = []
    for step in range(500):
        part = slice(step * 32, (step + 1) * 32)  # no sample comes twice
        loss = surrogate(features.z[part], features.labels[part]).rob_loss
        if step % every == 0:
            reports.append(fmean(reported(surrogate, *batch) for batch in held_out))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return [*reports, fmean(reported(surrogate, *batch) for batch in held_out)]


@pytest.mark.slow
def test_slot_mixture__estimator_trained_on_fixed_features_never_reports_less_than_the_truth() -> None:
    features, truth = known_features(4)
    held_out = [(features.z[TRAINED:], features.labels[TRAINED:])]
    reports = reports_while_the_estimator_trains(make(4, bank_size=256), held_out, every=1)
    ratios = [report / truth for report in reports]
    print(
        f"500 steps on its own loss: {min(ratios):.4f} to {max(ratios):.4f} of the truth, {ratios[-1]:.4f} at the end"
    )
    assert min(ratios) >= 0.99


DOCUMENTED: dict[str, Callable[[], SlotCrossAttentionCEM | GatedAttentionCEM]] = {
    "slot_cross": lambda: SlotCrossAttentionCEM(
        WIDTH, num_slots=4, early_shut_steps=0, early_hard_thresh=1, early_gate_thresh=1, reg_strength=SIGMA
    ),
    "gated_per_dim": lambda: GatedAttentionCEM(WIDTH, reg_strength=SIGMA),
    "gated_trace": lambda: GatedAttentionCEM(WIDTH, form="trace", reg_strength=SIGMA),
}


@pytest.mark.parametrize("name", [pytest.param("slot_cross", marks=pytest.mark.slow), "gated_per_dim", "gated_trace"])
def test_penalty_objective__talks_the_entropy_of_fixed_features_down(name: str) -> None:
    """The same test on the method as documented fails: nothing about the features changes, yet the report falls.

    The documents' penalty has a unit of its own; what stands for the truth is what it says of the same held-out
    features before its estimator has learnt to say something else. All three forms fail, the trace form too: its
    pooling ends on one sample of each class, and one sample has no variance.
    """
    features, _ = known_features(4)
    torch.manual_seed(0)
    parts = [slice(start, start + 64) for start in range(TRAINED, TRAINED + 512, 64)]
    held_out = [(features.z[part], features.labels[part]) for part in parts]
    reports = reports_while_the_estimator_trains(DOCUMENTED[name](), held_out, every=10)
    ratios = [report / reports[0] for report in reports[1:]]
    below = next((10 * (i + 1) for i, ratio in enumerate(ratios) if ratio < 0.99), None)
    print(f"{name}: {reports[0]:.3f} before, {ratios[-1]:.3f} of it after 500 steps, first below 99 % at step {below}")
    assert ratios[-1] < 0.5


def test_slot_mixture__samples_that_return_while_remembered_are_reported_too_low() -> None:
    # A limit of the bound: it needs a memory of other samples. Eight images a class that come back every epoch are
    # not others; the report is then below what fresh samples would give. ``cross_fit`` lifts it (test_cross_fit.py).
    features, truth = known_features(1)
    few = torch.cat([(features.labels == c).nonzero().flatten()[:8] for c in range(2)])
    surrogate = make(1, bank_size=64, objective="frozen")
    for _ in range(10):
        loss = surrogate(features.z[few], features.labels[few]).rob_loss.item()
    fresh = reported(surrogate, features.z[TRAINED:], features.labels[TRAINED:])
    print(f"eight samples a class, repeated: {loss / truth:.2f} of the truth; fresh samples: {fresh / truth:.2f}")
    assert loss < 0.95 * truth and fresh > truth


def health(surrogate: SlotMixtureCEM, z: Tensor, y: Tensor) -> tuple[int, float]:
    """Dead slots, and the largest share of a slot."""
    diagnostics = surrogate.eval()(z, y).diagnostics
    surrogate.train()
    return int(diagnostics["dead_slots"]), surrogate.slot_share[:2].max().item()


@pytest.mark.parametrize("stream", ["still", "jumping"])
def test_slot_mixture__no_slot_dies_or_swallows_its_class_in_a_long_stream(stream: str) -> None:
    features, truth = known_features(4)
    z, y = features.z.clone(), features.labels
    if stream == "jumping":  # for 150 steps the features leap far beyond their spread, then they rest
        leap = 3 * torch.randn(15, 1, WIDTH, generator=torch.Generator().manual_seed(3))
        z[: 150 * 64] = (z[: 150 * 64].view(15, -1, WIDTH) + leap).view(-1, WIDTH)
    surrogate = make(4, bank_size=128, reseed_every=50)
    trained(surrogate, z, y, steps=200, lr=1e-2)
    worst = []
    for start in range(200, 245, 5):
        worst.append(health(trained(surrogate, z, y, steps=5, start=start), z[TRAINED:], y[TRAINED:]))
    dead, share = (max(values) for values in zip(*worst, strict=True))
    ratio = reported(surrogate, z[TRAINED:], y[TRAINED:]) / truth
    print(f"{stream}: {dead} dead slots, largest share {share:.2f} (truth {features.weights.max():.2f}), {ratio:.3f}")
    assert dead == 0 and share < features.weights.max() + 0.15 and 0.99 <= ratio < 1.10


@cache
def correlated_features() -> tuple[Tensor, Tensor, float]:
    """Modes that share a covariance far from diagonal, and their true nats per dimension above the floor."""
    features = gaussian_mixture_features(
        TRAINED + 4_000, num_classes=2, modes_per_class=4, dim=WIDTH, mode_distance=20, std_range=(1, 1), seed=2
    )
    scale = torch.linspace(0.02, 0.3, WIDTH, dtype=torch.float64)
    scaled = replace(features, means=features.means * scale, variances=features.variances * scale**2)
    generator = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=generator))[0]
    return (features.z * scale.float()) @ rotation, features.labels, true_nats(scaled)


def test_slot_mixture__every_covariance_bounds_correlated_features_and_full_is_the_tightest() -> None:
    z, y, truth = correlated_features()
    ratio = {}
    for covariance in COVARIANCES:
        surrogate = trained(make(4, covariance=covariance, rank=24), z, y, steps=70)
        ratio[covariance] = reported(surrogate, z[TRAINED:], y[TRAINED:]) / truth
    print({name: round(value, 3) for name, value in ratio.items()})
    assert min(ratio.values()) >= 0.99
    assert ratio["full"] < 1.05 and ratio["full"] < ratio["low_rank"] < ratio["diagonal"]
