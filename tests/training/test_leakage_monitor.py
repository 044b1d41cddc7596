import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from attention_cem.data import Batches, ImageSet
from attention_cem.defences import DefenceStack, GaussianNoise
from attention_cem.splitting import SplitModel
from attention_cem.surrogates import LinearLeakage
from attention_cem.training.distributed import World
from attention_cem.training.evaluation import score
from attention_cem.training.leakage_monitor import RIDGES, LeakageMonitor, assign_halves, held_out_leakage

CPU = torch.device("cpu")


def image_set(labels: Tensor, size: int = 4) -> ImageSet:
    generator = torch.Generator().manual_seed(len(labels))
    coarse = torch.rand(len(labels), 3, 2, 2, generator=generator)
    shade = torch.rand(int(labels.max()) + 1, 3, 2, 2, generator=generator)[labels]
    images = nn.functional.interpolate((coarse + shade) / 2, size=(size, size))
    names = tuple(f"class {label}" for label in range(int(labels.max()) + 1))
    return ImageSet((images * 255).round().to(torch.uint8), labels, names)


def linear_client(image_dim: int, feature_dim: int, scale: float = 1.0) -> nn.Module:
    layer = nn.Linear(image_dim, feature_dim, bias=True)
    generator = torch.Generator().manual_seed(feature_dim)
    layer.weight.data = torch.randn(feature_dim, image_dim, generator=generator) * scale / image_dim**0.5
    layer.bias.data = torch.full((feature_dim,), 0.5)
    return nn.Sequential(nn.Flatten(), layer)


def measure(
    images: ImageSet, client: nn.Module, stack: DefenceStack, feature_dim: int, *, batch_size: int = 7
) -> tuple[float | None, float | None]:
    batches = Batches(images, batch_size, shuffle=False)
    server = nn.Linear(feature_dim, len(images.class_names))
    monitor = LeakageMonitor(stack, batches, (feature_dim,), images.image_shape, World())
    watching = monitor.begin()
    assert watching is not None, monitor.obstacle
    score(SplitModel(client, server), stack, batches, num_classes=len(images.class_names), watch=watching.add)
    return watching.finish()


def oracle(images: ImageSet, client: nn.Module, sigma: float) -> tuple[float, float]:
    """Class by class, image by image, in double precision: fit on the even, score on the odd images of each class."""
    with torch.no_grad():
        z = client(images.images.float() / 255).flatten(1).double()
    x = (images.images.float() / 255).flatten(1).double()
    features, pixels = z.shape[1], x.shape[1]
    zz = torch.zeros(2, features, features, dtype=torch.double)
    zx, xx = torch.zeros(2, features, pixels, dtype=torch.double), torch.zeros(2, dtype=torch.double)
    count = [0, 0]
    for label in images.labels.unique():
        own = (images.labels == label).nonzero().flatten()
        for half in (0, 1):
            chosen = own[half::2]
            if len(chosen) < 2:
                continue
            a, b = z[chosen] - z[chosen].mean(0), x[chosen] - x[chosen].mean(0)
            unbiased = len(chosen) / (len(chosen) - 1)
            for i in range(len(chosen)):
                zz[half] += unbiased * torch.outer(a[i], a[i])
                zx[half] += unbiased * torch.outer(a[i], b[i])
                xx[half] += unbiased * b[i].square().sum()
            count[half] += len(chosen)
    c_zz, c_zx, c_xx = ([values[half] / count[half] for half in (0, 1)] for values in (zz, zx, xx))
    least = sigma**2 + (1e-5 / features + 8 * torch.finfo(torch.float).eps) * c_zz[0].trace()
    classes = sum(int((images.labels == label).sum()) > 2 for label in images.labels.unique())
    one = torch.eye(features, dtype=torch.double)
    tried = []
    for share in RIDGES:
        inverse = torch.linalg.inv(c_zz[0] + (least + share * c_zz[0].trace() / features) * one)
        weight = inverse @ c_zx[0]
        left = c_xx[0] - 2 * (weight * c_zx[0]).sum() + (weight * ((c_zz[0] + sigma**2 * one) @ weight)).sum()
        used = torch.trace((c_zz[0] + sigma**2 * one) @ inverse) / (count[0] - classes)
        tried.append((float(left / (1 - used) ** 2), weight))
    weight = min(tried, key=lambda each: each[0])[1]
    error = (
        c_xx[1] - 2 * (weight * c_zx[1]).sum() + (weight * (c_zz[1] @ weight)).sum() + sigma**2 * weight.square().sum()
    )
    share = max(0.0, 1 - float(error / c_xx[1]))
    return share, (1 - share) * float(c_xx[1]) / pixels


@pytest.mark.parametrize("sigma", [0.0, 0.025, 0.5])
@pytest.mark.parametrize("feature_dim", [3, 10])
def test_leakage_monitor__equals_a_plain_loop_in_double_precision(sigma: float, feature_dim: int) -> None:
    images = image_set(torch.arange(61) % 4)
    client = linear_client(48, feature_dim)
    stack = DefenceStack([GaussianNoise(sigma)] if sigma else [])
    share, mse = measure(images, client, stack, feature_dim)
    expected = oracle(images, client, sigma)
    assert share == pytest.approx(expected[0], abs=2e-4) and mse == pytest.approx(expected[1], rel=2e-3)
    assert 0 < expected[0] < 1, "else the comparison says little"


def test_leakage_monitor__classes_drawn_close_together_are_still_measured() -> None:
    """Features of a class within 1e-4 of each other, classes far apart, no noise: nothing may drown in rounding."""
    images = image_set(torch.arange(80) % 4)

    class Compact(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            centre = 5 * x.flatten(1).mean(1, keepdim=True).round()
            return centre + 1e-4 * x.flatten(1)[:, :6]

    share, _ = measure(images, Compact(), DefenceStack([]), 6)
    assert share == pytest.approx(oracle(images, Compact(), 0.0)[0], abs=0.01)


def test_held_out_leakage__on_its_own_half_is_what_linear_leakage_reports() -> None:
    torch.manual_seed(0)
    x, y = torch.rand(120, 3, 2, 2), torch.arange(120) % 3
    z = x.flatten(1) @ torch.randn(12, 5)
    of_x, of_z = (values.flatten(1).clone() for values in (x, z))
    for label in range(3):
        for values in (of_x, of_z):
            values[y == label] -= values[y == label].mean(0)
            values[y == label] *= math.sqrt(40 / 39)
    own = (of_z.T @ of_z / 120, of_z.T @ of_x / 120, of_x.square().sum() / 120)
    share, mse = held_out_leakage(own, own, noise_variance=0.3**2, freedom=10**9).tolist()
    expected = LinearLeakage(5, 12, reg_strength=0.3)(z, y, x)
    assert share == pytest.approx(float(expected.share), abs=1e-4) and mse == pytest.approx(float(expected.mse), 1e-3)


@pytest.mark.parametrize(("images", "decay"), [(60, 0.0), (60, 1.0), (400, 2.0), (400, 3.0)])
def test_held_out_leakage__features_with_few_strong_directions_have_a_solution(images: int, decay: float) -> None:
    """A ridge relative to the mean diagonal alone gave NaN here: rounding is relative to the largest direction."""
    generator = torch.Generator().manual_seed(0)
    strength = torch.arange(1, 257).float() ** -decay
    axes, _ = torch.linalg.qr(torch.randn(256, 256, generator=generator))

    def half() -> tuple[Tensor, Tensor, Tensor]:
        z = torch.randn(images, 256, generator=generator) * strength @ axes
        x = z[:, :8] + 0.1 * z.std() * torch.randn(images, 8, generator=generator)
        return z.T @ z / images, z.T @ x / images, x.square().sum() / images

    share, _ = held_out_leakage(half(), half(), noise_variance=0.0, freedom=images).tolist()
    assert 0.1 < share < 1


def test_leakage_monitor__extremes() -> None:
    images = image_set(torch.arange(400) % 4)  # 12 degrees of freedom

    class Blind(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ones(len(x), 5)

    everything, mse = measure(images, nn.Flatten(), DefenceStack([]), 48)
    assert everything is not None and everything > 0.999 and mse is not None and mse < 1e-4
    share, mse = measure(images, Blind(), DefenceStack([GaussianNoise(0.1)]), 5)
    x = images.images.float() / 255
    variance = torch.stack([x[images.labels == label][1::2].var(0).mean() for label in range(4)]).mean()
    assert share == 0 and mse == pytest.approx(float(variance), rel=1e-4)
    noisy = [measure(images, nn.Flatten(), DefenceStack([GaussianNoise(s)]), 48)[0] for s in (0.1, 1.0, 10.0)]
    assert everything > noisy[0] > noisy[1] > noisy[2] >= 0  # type: ignore[operator]


def test_leakage_monitor__an_attacker_worse_than_the_class_mean_takes_the_class_mean() -> None:
    """Two images to fit on and many features: what is learned does not hold; the share is 0, not below."""
    images = image_set(torch.tensor([0, 0, 0, 0] * 2))
    torch.manual_seed(0)
    codes = torch.randn(8, 40)

    class ByHeart(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return codes[: len(x)]

    share, mse = measure(images, ByHeart(), DefenceStack([]), 40, batch_size=8)
    assert share == 0 and mse is not None and mse > 0


@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=60), most=st.integers(1, 80))
def test_assign_halves__every_row_is_a_class_in_a_half_with_at_least_two(labels: list[int], most: int) -> None:
    halves = assign_halves(torch.tensor(labels), most)
    assert len(halves.row) == len(labels) and len(halves.size) == int(halves.row.max()) + 1
    assert halves.first_rows <= len(halves.size) and all(halves.size >= 2)
    used = [[i for i, row in enumerate(halves.row.tolist()) if row == wanted] for wanted in range(len(halves.size))]
    assert [len(own) for own in used] == halves.size.tolist()
    assert all(len({labels[i] for i in own}) == 1 for own in used)
    for half in (used[: halves.first_rows], used[halves.first_rows :]):
        classes = [labels[own[0]] for own in half]
        assert classes == sorted(set(classes)), "a class has one row in a half"
    if most >= len(labels):
        for label in set(labels):
            for start, rows in enumerate((used[: halves.first_rows], used[halves.first_rows :])):
                expected = [i for i, other in enumerate(labels) if other == label][start::2]
                found = [own for own in rows if labels[own[0]] == label]
                assert found == ([expected] if len(expected) >= 2 else [])


def test_assign_halves__a_large_set_is_thinned_evenly() -> None:
    halves = assign_halves(torch.arange(1000) % 10, most=300)
    assert 200 <= int(halves.size.sum()) <= 300 and len(halves.size) == 20
    assert len(set(halves.size.tolist())) <= 2


@pytest.mark.parametrize(
    ("labels", "feature_dim", "reason"),
    [
        ([0, 0, 0, 1, 1, 1], 4, "two images of a class in each half"),
        ([0, 1, 2, 3], 4, "two images of a class in each half"),
        ([0] * 8, 2049, "z has 2,049 values, more than 2,048"),
    ],
)
def test_leakage_monitor__what_cannot_be_measured_is_said_and_not_zero(
    labels: list[int], feature_dim: int, reason: str
) -> None:
    images = image_set(torch.tensor(labels))
    monitor = LeakageMonitor(DefenceStack([]), Batches(images, 4, shuffle=False), (feature_dim,), (3, 4, 4), World())
    assert monitor.begin() is None and reason in (monitor.obstacle or "")


@pytest.mark.parametrize(
    ("labels", "remark"),
    [
        ([0, 1] * 4, None),
        ([0] * 4 + [1] * 3, "scored on 1 of 2 classes: the others have fewer than two validation images in a half"),
        ([0, 1], "not measured"),
    ],
)
def test_leakage_monitor__says_which_classes_are_missing(labels: list[int], remark: str | None) -> None:
    images = image_set(torch.tensor(labels))
    monitor = LeakageMonitor(DefenceStack([]), Batches(images, 4, shuffle=False), (2,), (3, 4, 4), World())
    said = monitor.remark()
    assert said is None if remark is None else said is not None and remark in said


def test_leakage_monitor__few_images_for_the_values_of_z_are_said() -> None:
    images = image_set(torch.arange(80) % 4)
    batches = Batches(images, 16, shuffle=False)
    few, enough = (LeakageMonitor(DefenceStack([]), batches, (width,), (3, 4, 4), World()) for width in (21, 20))
    said = "leakage_share reads too low: its attacker learns from 40 validation images what to do with 21 values of z"
    assert said in str(few.remark()) and enough.remark() is None


def test_leakage_monitor__an_attacker_of_few_images_does_not_learn_them_by_heart() -> None:
    """With the noise alone as ridge, 40 images for 40 values of z recovered nothing of a client that shows much."""

    class Scattered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.client, self.generator = linear_client(48, 40, scale=0.5), torch.Generator().manual_seed(1)

        def forward(self, x: Tensor) -> Tensor:
            own: Tensor = self.client(x)
            return own + 0.1 * torch.randn(own.shape, generator=self.generator)

    stack = DefenceStack([GaussianNoise(0.01)])
    few, many = (measure(image_set(torch.arange(n) % 4), Scattered(), stack, 40)[0] for n in (80, 8000))
    assert few is not None and many is not None
    assert 0.3 < few < many < 0.7


def test_leakage_monitor__images_too_large_to_hold_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attention_cem.training.leakage_monitor.MOST_VALUES", 100)
    images = image_set(torch.tensor([0] * 8))
    monitor = LeakageMonitor(DefenceStack([]), Batches(images, 4, shuffle=False), (4,), (3, 4, 4), World())
    assert monitor.begin() is None and "MiB" in (monitor.obstacle or "")


def test_leakage_monitor__features_that_are_not_finite_give_none() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)[:, :4] / 0

    assert measure(image_set(torch.arange(40) % 2), Broken(), DefenceStack([]), 4) == (None, None)


def test_leakage_monitor__covariances_without_a_decomposition_give_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(matrix: Tensor) -> None:
        raise torch.linalg.LinAlgError("the algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "eigh", fails)
    assert measure(image_set(torch.arange(40) % 4), linear_client(48, 3), DefenceStack([]), 3) == (None, None)


def test_leakage_monitor__does_not_depend_on_the_batches_and_leaves_the_score_alone() -> None:
    images, client = image_set(torch.arange(50) % 3), linear_client(48, 6)
    stack = DefenceStack([GaussianNoise(0.05)])
    found = [measure(images, client, stack, 6, batch_size=size) for size in (50, 16, 3)]
    for share, mse in found[1:]:
        assert share == pytest.approx(found[0][0], abs=1e-5) and mse == pytest.approx(found[0][1], rel=1e-4)
    batches, model = Batches(images, 16, shuffle=False), SplitModel(client, nn.Linear(6, 3))
    watching = LeakageMonitor(stack, batches, (6,), (3, 4, 4), World()).begin()
    assert watching is not None
    scores = []
    for watch in (None, watching.add):
        torch.manual_seed(0)
        scores.append(score(model, stack, batches, num_classes=3, watch=watch))
    assert scores[0] == scores[1]


class Threads(World):
    """Two ranks as two threads: whoever sums waits for the other, and both get the same."""

    barrier = threading.Barrier(2, timeout=30)
    table: ClassVar[dict[int, Tensor]] = {}

    def sum_(self, tensor: Tensor) -> Tensor:
        self.table[self.rank] = tensor.clone()
        self.barrier.wait()
        tensor.copy_(self.table[0] + self.table[1])
        self.barrier.wait()
        return tensor


@pytest.mark.parametrize("images_of", [61, 49], ids=["uneven", "one rank has nothing of the last batch"])
def test_leakage_monitor__ranks_measure_what_one_process_does(images_of: int) -> None:
    images, client = image_set(torch.arange(images_of) % 4), linear_client(48, 6)
    stack, model = DefenceStack([GaussianNoise(0.05)]), SplitModel(client, nn.Linear(6, 4))
    alone = measure(images, client, stack, 6, batch_size=16)

    def one_rank(rank: int) -> tuple[float | None, float | None]:
        world = Threads(rank, 2)
        batches = Batches(images, 16, shuffle=False, rank=rank, world_size=2)
        watching = LeakageMonitor(stack, batches, (6,), (3, 4, 4), world).begin()
        assert watching is not None
        score(model, stack, batches, num_classes=4, world=world, watch=watching.add)
        return watching.finish()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(one_rank, (0, 1))
    assert first == second
    assert first[0] == pytest.approx(alone[0], abs=1e-5) and first[1] == pytest.approx(alone[1], rel=1e-4)
