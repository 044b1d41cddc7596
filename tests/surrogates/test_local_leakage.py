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


def rows_by_hand(leakage: LocalLeakage, noisy: Tensor, y: Tensor, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """What the attacker sees and wants at every place, by loops; deviations from the class's mean at that place."""
    k, (channels, height, width), (rows, columns) = leakage.neighbourhood, leakage.z_shape, leakage.block
    padded = F.pad(noisy, (k // 2,) * 4)
    variance = (noisy - noisy.mean(0)).square().mean()
    scale = math.sqrt(2 * variance * channels * k * k)
    seen, wanted = [], []
    for n in range(len(noisy)):
        for i in range(height):
            for j in range(width):
                patch = padded[n, :, i : i + k, j : j + k]
                turns = zip(leakage.frequency, leakage.phase, strict=True)
                waves = [torch.cos((patch * p).sum() / scale + b) for p, b in turns]
                seen.append(torch.cat([patch.flatten(), torch.stack(waves) if waves else patch.new_zeros(0)]))
                wanted.append(x[n, :, i * rows : (i + 1) * rows, j * columns : (j + 1) * columns].flatten())
    shape = (len(noisy), height * width, -1)
    out = []
    for values in (torch.stack(seen).view(shape), torch.stack(wanted).view(shape)):
        centred = values.clone()
        for label in y.unique():
            members = y == label
            size = int(members.sum())
            centred[members] = (values[members] - values[members].mean(0)) * math.sqrt(size / (size - 1))
        out.append(centred.flatten(0, 1).numpy())
    return out[0], out[1]


def noisy_of(leakage: LocalLeakage, z: Tensor) -> Tensor:
    return leakage._noisy(z.flatten(1)).view_as(z)


@pytest.mark.parametrize("random_features", [0, 5])
@pytest.mark.parametrize("neighbourhood", [1, 3])
def test_local__equals_least_squares_by_loops(neighbourhood: int, random_features: int) -> None:
    z, y, x = smooth_client(60)
    leakage = LocalLeakage(
        Z_SHAPE, IMAGE_SHAPE, reg_strength=0.1, neighbourhood=neighbourhood, random_features=random_features
    ).double()
    seen, wanted = rows_by_hand(leakage, noisy_of(leakage, z), y, x)
    weight = np.linalg.lstsq(seen, wanted, rcond=None)[0]
    expected = 1 - ((wanted - seen @ weight) ** 2).sum() / (wanted**2).sum()
    output = leakage(z, y, x)
    assert 0.02 < expected < 0.95
    assert output.share.item() == pytest.approx(expected, rel=1e-3)
    per_pixel = (wanted**2).sum() / 60 / x[0].numel()
    assert output.mse.item() == pytest.approx((1 - expected) * per_pixel, rel=1e-3)


def test_local__gradient_with_the_attacker_held_fixed_is_that_through_the_solve() -> None:
    z, y, x = smooth_client(90)
    leakage = LocalLeakage(Z_SHAPE, IMAGE_SHAPE, reg_strength=0.1, neighbourhood=3, random_features=0, momentum=0.0)
    leakage = leakage.double()
    feature = z.clone().requires_grad_()
    leakage(feature, y, x).share.backward()

    leakage.steps.zero_()
    through = z.clone().requires_grad_()

    def centred(values: Tensor) -> Tensor:
        return values - torch.stack([values[y == k].mean(0) for k in range(3)])[y]

    of_z = F.unfold(centred(noisy_of(leakage, through)), 3, padding=1).mT.flatten(0, 1)
    of_x = F.unfold(centred(x), 2, stride=2).mT.flatten(0, 1)
    zz, zx = of_z.T @ of_z / 90, of_z.T @ of_x / 90
    ridge = 1e-5 * zz.diagonal().mean().detach()
    solved = torch.linalg.solve(zz + ridge * torch.eye(len(zz), dtype=DOUBLE), zx)
    ((zx * solved).sum() / (of_x**2).sum() * 90).backward()
    torch.testing.assert_close(feature.grad, through.grad, rtol=1e-6, atol=1e-12)


def test_local__knows_few_weights_well_where_a_global_attacker_remembers_its_images() -> None:
    """Sixty images: the global attacker fits what it was given, and recovers little of others."""
    z, y, x = smooth_client(1060)
    local = LocalLeakage(Z_SHAPE, IMAGE_SHAPE, reg_strength=0.05, neighbourhood=3, random_features=0).double()
    whole = LinearLeakage(24, 144, reg_strength=0.05).double()
    given = {name: each(z[:60], y[:60], x[:60]).share.item() for name, each in (("local", local), ("global", whole))}
    for each in (local, whole):
        each.cov_zz.zero_(), each.cov_xz.zero_(), each.steps.zero_()  # type: ignore[operator]
    others = {name: each(z[60:], y[60:], x[60:]).share.item() for name, each in (("local", local), ("global", whole))}
    print(f"share on 60 images {given}, on 1,000 {others}")
    assert given["global"] - others["global"] > 3 * (given["local"] - others["local"])


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
    assert shares[0] < 0.05 and shares[1] > 0.8


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
        ((Z_SHAPE, IMAGE_SHAPE, {"random_features": -1}), "must not be negative"),
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
