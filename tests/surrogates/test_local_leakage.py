import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_cem import LinearLeakage, LocalLeakage

DOUBLE = torch.float64
Z_SHAPE, IMAGE_SHAPE = (2, 3, 4), (3, 6, 8)


def smooth_client(size: int, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Images with class means, and a convolution of them with something of its own added."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(size) % classes
    x = torch.randn(classes, *IMAGE_SHAPE, dtype=DOUBLE, generator=generator)[y]
    x = x + torch.randn(size, *IMAGE_SHAPE, dtype=DOUBLE, generator=generator)
    kernel = torch.randn(2, 3, 4, 4, dtype=DOUBLE, generator=generator)
    z = torch.tanh(F.conv2d(x, kernel, stride=2, padding=1) / 5)
    return z, y, x


def centred(values: np.ndarray, y: Tensor) -> np.ndarray:
    """Deviations from the class's mean, with M samples enlarged by the root of M/(M-1)."""
    out = values.copy()
    for label in y.unique():
        members = (y == label).numpy()
        size = members.sum()
        out[members] = (values[members] - values[members].mean(0)) * math.sqrt(size / (size - 1))
    return out


def blocks_by_hand(x: Tensor, height: int, width: int) -> np.ndarray:
    """(N, h, w, C·b·b): the pixels beneath every place."""
    rows, columns = x.shape[2] // height, x.shape[3] // width
    out = np.zeros((len(x), height, width, x.shape[1] * rows * columns))
    for i in range(height):
        for j in range(width):
            out[:, i, j] = x[:, :, i * rows : (i + 1) * rows, j * columns : (j + 1) * columns].flatten(1).numpy()
    return out


def two_stages_by_hand(leakage: LocalLeakage, noisy: Tensor, y: Tensor, x: Tensor) -> float:
    """The share that least squares recovers in two stages, place by place."""
    _, height, width = leakage.z_shape
    size, k = len(noisy), leakage.neighbourhood
    beneath = blocks_by_hand(x, height, width)
    wanted = centred(beneath.reshape(size, -1), y)
    flat = noisy.flatten(1).numpy()
    of_z = centred(flat, y)
    weight = np.linalg.lstsq(of_z, wanted, rcond=None)[0]

    def seen(z: np.ndarray, guess: np.ndarray) -> np.ndarray:
        maps = np.concatenate([z.reshape(noisy.shape), guess.reshape(beneath.shape).transpose(0, 3, 1, 2)], 1)
        padded = np.pad(maps, ((0, 0), (0, 0), (k // 2, k // 2), (k // 2, k // 2)))
        places = [padded[:, :, i : i + k, j : j + k].reshape(size, -1) for i in range(height) for j in range(width)]
        return np.stack(places, 1)  # (N, L, ·)

    of_seen = seen(of_z, of_z @ weight)
    if leakage.random_features:
        raw = flat @ weight
        maps = np.concatenate([flat.reshape(size, -1), raw], 1)
        variance = ((maps - maps.mean(0)) ** 2).mean()
        frequency = leakage.frequency.flatten(1).numpy() / math.sqrt(2 * leakage.frequency[0].numel() * variance)
        waves = np.cos(seen(flat, raw) @ frequency.T + leakage.phase.numpy())
        of_waves = centred(waves.reshape(size, -1), y).reshape(waves.shape)
        of_seen = np.concatenate([of_seen, of_waves], 2)
    rows = of_seen.reshape(size * height * width, -1)
    left = (wanted - of_z @ weight).reshape(size * height * width, -1)
    correction = np.linalg.lstsq(rows, left, rcond=None)[0]
    unexplained: float = ((left - rows @ correction) ** 2).sum() / (wanted**2).sum()
    return 1 - unexplained


def noisy_of(leakage: LocalLeakage, z: Tensor) -> Tensor:
    return leakage._noisy(z.flatten(1)).view_as(z)


@pytest.mark.parametrize("random_features", [0, 5])
@pytest.mark.parametrize("neighbourhood", [1, 3])
def test_local__equals_least_squares_in_two_stages(neighbourhood: int, random_features: int) -> None:
    z, y, x = smooth_client(90)
    leakage = LocalLeakage(
        Z_SHAPE, IMAGE_SHAPE, reg_strength=0.1, neighbourhood=neighbourhood, random_features=random_features
    ).double()
    expected = two_stages_by_hand(leakage, noisy_of(leakage, z), y, x)
    output = leakage(z, y, x)
    assert 0.2 < expected < 0.95
    assert output.share.item() == pytest.approx(expected, rel=1e-3)
    per_pixel = (centred(x.flatten(1).numpy(), y) ** 2).sum() / x.numel()
    assert output.mse.item() == pytest.approx((1 - expected) * per_pixel, rel=2e-3)


def test_local__gradient_is_that_with_both_stages_held_fixed() -> None:
    z, y, x = smooth_client(90)
    leakage = LocalLeakage(Z_SHAPE, IMAGE_SHAPE, reg_strength=0.1, neighbourhood=3, random_features=0, momentum=0.0)
    leakage = leakage.double()
    feature = z.clone().requires_grad_()
    leakage(feature, y, x).share.backward()

    leakage.steps.zero_()
    moved = z.clone().requires_grad_()

    def around_mean(values: Tensor) -> Tensor:
        return (values - torch.stack([values[y == k].mean(0) for k in range(3)])[y]) * math.sqrt(30 / 29)

    of_z, of_x = around_mean(noisy_of(leakage, moved).flatten(1)), around_mean(F.unfold(x, 2, stride=2).flatten(1))
    ridged = lambda c: c + 1e-5 * c.diagonal().mean() * torch.eye(len(c), dtype=DOUBLE)  # noqa: E731
    with torch.no_grad():
        first = torch.linalg.solve(ridged(of_z.T @ of_z / 90), of_z.T @ of_x / 90)
    guess = of_z @ first
    maps = torch.cat([of_z.view_as(z), guess.view(90, 12, 3, 4)], 1)
    rows = F.unfold(maps, 3, padding=1).mT.flatten(0, 1)
    left = (of_x - guess).view(90, 12, 12).mT.flatten(0, 1)
    with torch.no_grad():
        second = torch.linalg.solve(ridged(rows.T @ rows / 90), rows.T @ left / 90)
    (-(left - rows @ second).square().sum() / of_x.square().sum()).backward()
    torch.testing.assert_close(feature.grad, moved.grad, rtol=1e-5, atol=1e-10)


def test_local__recovers_more_than_its_linear_guess() -> None:
    z = torch.randn(900, 1, 3, 4, generator=torch.Generator().manual_seed(0))
    y, x = torch.arange(900) % 3, F.interpolate(z + 0.3 * z.square(), scale_factor=2)
    linear = LinearLeakage(12, 48, reg_strength=0.05)(z, y, x).share.item()
    local = LocalLeakage((1, 3, 4), (1, 6, 8), reg_strength=0.05, random_features=32)(z, y, x).share.item()
    print(f"share of a linear attacker {linear:.3f}, corrected place by place {local:.3f}")
    assert linear < 0.9 and local > linear + 0.1


def test_local__random_features_see_what_is_not_linear() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(800, 1, 4, 4, generator=generator)
    y = torch.arange(800) % 2
    shares = [
        LocalLeakage((1, 4, 4), (1, 4, 4), reg_strength=0.05, neighbourhood=1, random_features=count)(
            z, y, z.square()
        ).share.item()
        for count in (0, 32)
    ]
    print(f"squares of z: linear {shares[0]:.3f}, with random features {shares[1]:.3f}")
    assert shares[0] < 0.1 and shares[1] > 0.8


def test_local__of_the_class_alone_is_nothing_and_less_with_more_noise() -> None:
    z, y, x = smooth_client(90)

    def make(sigma: float) -> LocalLeakage:
        return LocalLeakage(Z_SHAPE, IMAGE_SHAPE, reg_strength=sigma, neighbourhood=3, random_features=4)

    shares = [make(sigma)(z, y, x).share.item() for sigma in (0.01, 0.3, 1.0, 10.0)]
    assert shares == sorted(shares, reverse=True)
    big = smooth_client(3000)
    assert make(0.1)(big[0][:3][big[1]], big[1], big[2]).share.item() < 0.02


def test_local__a_client_that_follows_the_gradient_gives_less() -> None:
    _, y, x = smooth_client(300)
    leakage = LocalLeakage(Z_SHAPE, IMAGE_SHAPE, reg_strength=0.1, neighbourhood=3, random_features=8).double()
    client = nn.Conv2d(3, 2, 4, stride=2, padding=1).double()
    optimiser = torch.optim.SGD(client.parameters(), lr=0.5)
    shares = []
    for _ in range(40):
        share = leakage(torch.tanh(client(x)), y, x).share
        optimiser.zero_grad()
        share.backward()
        optimiser.step()
        shares.append(share.item())
    assert shares[-1] < 0.7 * shares[0]


def test_local__an_image_that_places_do_not_divide_is_shrunk() -> None:
    z, y, x = smooth_client(30)
    larger = F.pad(x, (0, 1, 0, 2))  # 8 × 9 pixels over 3 × 4 places
    output = LocalLeakage(Z_SHAPE, (3, 8, 9), random_features=0).double()(z, y, larger)
    expected = LocalLeakage(Z_SHAPE, (3, 6, 8), random_features=0).double()(z, y, F.adaptive_avg_pool2d(larger, (6, 8)))
    torch.testing.assert_close(output.share, expected.share)


def test_local__a_bad_batch_shows_and_is_not_remembered() -> None:
    z, y, x = smooth_client(60)
    leakage = LocalLeakage(Z_SHAPE, IMAGE_SHAPE, random_features=4).double()
    before = leakage(z, y, x).share
    state = {name: value.clone() for name, value in leakage.state_dict().items()}
    bad = z.clone()
    bad[0, 0, 0, 0] = float("nan")
    assert leakage(bad, y, x).share.isnan()
    assert all(torch.equal(value, state[name]) for name, value in leakage.state_dict().items())
    one_each = torch.arange(60)
    assert torch.isfinite(leakage(z, one_each, x).share) and torch.isfinite(before)
    assert all(torch.equal(value, state[name]) for name, value in leakage.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((6,), IMAGE_SHAPE), r"needs z as a map \(C, h, w\)"),
        (((2, 9, 4), IMAGE_SHAPE), "images \\(C, H, W\\) at least as large"),
        ((Z_SHAPE, IMAGE_SHAPE, {"neighbourhood": 4}), "must be odd"),
        ((Z_SHAPE, IMAGE_SHAPE, {"random_features": -1}), "whole number and not negative"),
    ],
)
def test_local__says_what_it_needs(arguments: tuple, message: str) -> None:  # type: ignore[type-arg]
    z_shape, image_shape, *options = arguments
    with pytest.raises(ValueError, match=message):
        LocalLeakage(z_shape, image_shape, **(options[0] if options else {}))


def test_local__refuses_images_of_another_size() -> None:
    z, y, x = smooth_client(6)
    with pytest.raises(ValueError, match=r"images must be \(6, 3, 6, 8\), one for each feature, got \(6, 3, 6, 7\)"):
        LocalLeakage(Z_SHAPE, IMAGE_SHAPE).double()(z, y, x[..., :7])
