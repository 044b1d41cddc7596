import os
import socket
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn import functional as F

from attention_cem.data.image_quality import mse_per_image, ssim_per_image
from attention_cem.defences import AdversarialInverter, DefenceStack, GaussianNoise, build_stack
from attention_cem.defences.adversarial_inverter import too_good
from attention_cem.defences.testing import DefenceContract
from attention_cem.splitting.inverters import ResidualInverter


def small_adversary(**changes) -> AdversarialInverter:
    arguments = {"weight": 1.0, "z_shape": (4, 4, 4), "image_shape": (3, 16, 16), "width": 4, "blocks": 0}
    torch.manual_seed(0)
    return AdversarialInverter(**(arguments | changes))


class TestAdversarialInverterSSIM(DefenceContract):
    z_shape = (4, 4, 4)

    def make(self):
        return small_adversary()


class TestAdversarialInverterMSE(DefenceContract):
    z_shape = (12,)

    def make(self):
        return small_adversary(z_shape=[12], metric="mse", sees="defended", steps=2)


def squares(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """A square at a random place; its colour is the class. The place is what a private client need not tell."""
    generator = torch.Generator().manual_seed(seed)
    x, y = 0.1 * torch.rand(count, 3, 16, 16, generator=generator), torch.arange(count) % 3
    corner = torch.randint(0, 9, (2, count, 1), generator=generator)
    inside = (torch.arange(16) >= corner) & (torch.arange(16) < corner + 7)
    x[torch.arange(count), y] += 0.8 * (inside[0][:, :, None] & inside[1][:, None, :])
    return x, y


def accuracy_and_attack_error(stack: DefenceStack) -> tuple[float, float]:
    """Train client and server with the stack, then a fresh inverter; both are scored on other images."""
    torch.manual_seed(1)
    client = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 3, padding=1), nn.Sigmoid()
    )
    server = nn.Sequential(nn.Flatten(), nn.Linear(128, 3))
    optimizer = torch.optim.Adam([*client.parameters(), *server.parameters()], lr=3e-3)
    x, y = squares(48, seed=0)
    for _ in range(100):
        z = client(x)
        stack.train_adversaries(x, z)
        loss = F.cross_entropy(server(stack(z)), y) + sum(stack.penalties(x, z, y).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.manual_seed(2)
    attacker = ResidualInverter((2, 8, 8), (3, 16, 16), width=16, blocks=1)
    optimizer = torch.optim.Adam(attacker.parameters(), lr=5e-3)
    z = client(x).detach()
    for _ in range(100):
        optimizer.zero_grad()
        mse_per_image(attacker(stack(z)), x).mean().backward()
        optimizer.step()
    x, y = squares(96, seed=1)
    with torch.no_grad():
        z = stack(client(x))
        accuracy = float((server(z).argmax(1) == y).float().mean())
        return accuracy, float(mse_per_image(attacker.eval()(z), x).mean())


def test_adversarial_inverter__a_fresh_attacker_does_worse():
    noise = GaussianNoise(sigma=0.3)
    _, undefended = accuracy_and_attack_error(DefenceStack([noise]))
    torch.manual_seed(1)
    adversary = AdversarialInverter(
        10.0, (2, 8, 8), (3, 16, 16), metric="mse", threshold=0.06, width=16, blocks=1, lr=3e-3
    )
    accuracy, defended = accuracy_and_attack_error(DefenceStack([noise, adversary]))
    assert defended > 1.3 * undefended
    assert accuracy > 0.6  # chance is 1/3: the client hides the place without giving up the class


@pytest.mark.parametrize("metric", ["ssim", "mse"])
def test_adversarial_inverter__its_inverter_learns(metric):
    defence = small_adversary(metric=metric, width=8, lr=1e-2)
    x, _ = squares(16, seed=0)
    z = F.adaptive_avg_pool2d(torch.cat([x, x.mean(1, keepdim=True)], 1), 4)
    losses = [float(defence.train_adversary(x, z)) for _ in range(40)]
    assert losses[-1] < 0.8 * losses[0]
    assert not defence.inverter.training


def test_adversarial_inverter__penalty_reaches_the_client_alone():
    defence = small_adversary(metric="mse")
    stack = DefenceStack([defence])
    x, y = squares(6, seed=0)
    z = torch.rand(6, 4, 4, 4, requires_grad=True)
    stack.penalties(x, z, y)["adversarial_inverter"].backward()
    assert (z.grad != 0).any()
    assert all(parameter.grad is None for parameter in defence.parameters())
    assert stack.trainable_parameters() == []


def test_adversarial_inverter__training_it_leaves_the_client_alone():
    client = nn.Conv2d(3, 4, 4, stride=4)
    x, _ = squares(6, seed=0)
    DefenceStack([small_adversary()]).train_adversaries(x, client(x))
    assert all(parameter.grad is None for parameter in client.parameters())


def test_adversarial_inverter__following_the_penalty_spoils_the_reconstruction():
    defence = small_adversary(metric="ssim", threshold=-1.0)
    x, y = squares(6, seed=0)
    z = torch.rand(6, 4, 4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for _ in range(10):
        defence.train_adversary(x, z)
    before = ssim_per_image(defence.inverter(z), x, data_range=1.0).mean()
    (gradient,) = torch.autograd.grad(defence.term(x, z, y), z)
    after = ssim_per_image(defence.inverter(z - gradient), x, data_range=1.0).mean()
    assert after < before


def test_too_good__acts_on_each_image_by_itself():
    x = torch.zeros(2, 1, 12, 12)
    reconstruction = torch.stack([torch.full((1, 12, 12), 0.1), torch.full((1, 12, 12), 0.9)])
    # MSE .01 and .81: the mean of both lies above the threshold, the first image still counts.
    torch.testing.assert_close(too_good(reconstruction, x, "mse", 0.25), torch.tensor([0.24, 0.0]))
    ssim = ssim_per_image(reconstruction, x, data_range=1.0)
    torch.testing.assert_close(too_good(reconstruction, x, "ssim", 0.005), (ssim - 0.005).clamp(min=0))


def test_adversarial_inverter__resumes_bit_for_bit(tmp_path: Path):
    x, _ = squares(6, seed=0)
    z = torch.rand(6, 4, 4, 4)
    straight = DefenceStack([small_adversary(lr=1e-2)])
    for _ in range(3):
        straight.train_adversaries(x, z)
    save_file(straight.state_dict(), tmp_path / "defences.safetensors")
    resumed = build_stack(straight.describe()["defences"])
    resumed.load_state_dict(load_file(tmp_path / "defences.safetensors"))
    for stack in (straight, resumed):
        for _ in range(3):
            stack.train_adversaries(x, z)
    assert straight.state_dict().keys() == resumed.state_dict().keys()
    for key, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


@pytest.mark.parametrize("metric", ["ssim", "mse"])
def test_adversarial_inverter__compiled_it_learns_and_penalises_as_the_plain_one(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced, with its backward, and run without making machine code; in double precision, so that all digits count."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    plain, compiled = (small_adversary(metric=metric, lr=1e-2).double() for _ in range(2))
    compiled.compile_term()
    x, y = squares(6, seed=0)
    z = torch.rand(6, 4, 4, 4, dtype=torch.float64, requires_grad=True)
    for _ in range(3):
        found = []
        for defence in (plain, compiled):
            loss, term = defence.train_adversary(x.double(), z), defence.term(x.double(), z, y)
            found.append((loss, term, *torch.autograd.grad(term, z)))
        torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(dict(compiled.state_dict()), dict(plain.state_dict()))


def test_adversarial_inverter__runs_in_bf16_where_the_trainer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU bf16 is not for real work (some of them cannot), so only what the network is told is looked at."""
    seen = []
    defence, x = small_adversary(metric="mse"), torch.rand(2, 3, 16, 16)
    monkeypatch.setattr(
        ResidualInverter, "forward", lambda self, z: (seen.append(torch.is_autocast_enabled("cpu")), x.bfloat16())[1]
    )
    stack, z = DefenceStack([defence]), torch.rand(2, 4, 4, 4)
    for enabled in (True, False):
        stack.set_mixed_precision(enabled)
        term = defence.term(x, z, torch.zeros(2))
    assert seen == [True, False] and term.dtype == torch.float32


def _train_on_one_rank(rank: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    defence = small_adversary()
    for step in range(3):
        x, _ = squares(6, seed=10 * step + rank)
        defence.train_adversary(x, x.mean(1, keepdim=True)[:, :, ::4, ::4].expand(-1, 4, -1, -1))
    save_file(defence.state_dict(), Path(folder) / f"{rank}.safetensors")
    distributed.destroy_process_group()


def test_adversarial_inverter__stays_the_same_on_every_rank(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_train_on_one_rank, args=(port, str(tmp_path)), nprocs=2)
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    untrained = small_adversary().state_dict()
    assert not torch.equal(first["inverter.to_image.conv1.weight"], untrained["inverter.to_image.conv1.weight"])
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def test_adversarial_inverter__refuses_what_makes_no_sense():
    with pytest.raises(ValueError, match="metric must be one of ssim, mse, received 'psnr'"):
        small_adversary(metric="psnr")
    with pytest.raises(ValueError, match="threshold must lie between 0 and 1"):
        small_adversary(metric="mse", threshold=0.0)
    with pytest.raises(ValueError, match="threshold must lie between -1 and 1"):
        small_adversary(metric="ssim", threshold=1.0)
    with pytest.raises(ValueError, match="sees must be one of clean, defended"):
        small_adversary(sees="noisy")
    with pytest.raises(ValueError, match="empty batch"):
        small_adversary().train_adversary(torch.zeros(0, 3, 16, 16), torch.zeros(0, 4, 4, 4))
