"""Speed of the attacks against a plain implementation (DataLoader, float32, a host sync a step), in one run.

python -m benchmarks.attacks --out attacks.json                  # reference setting on a GPU
python -m benchmarks.attacks --images 512 --epochs 1 --steps 5   # a small run anywhere
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from attention_cem.attacks import Challenge, InverterAttack, OptimisationAttack, TrainingPlan
from attention_cem.attacks.optimisation import total_variation
from attention_cem.auditing import score, write_challenge
from attention_cem.auditing.calibration import identity_like_client
from attention_cem.data import ImageData, synthetic_images, to_float
from attention_cem.defences import DefenceStack, GaussianNoise
from attention_cem.splitting import ResidualInverter, build_split_model
from benchmarks.timing import machine

SIGMA = 0.025
GOALS = {"inverter_seconds": 60.0, "optimisation_seconds": 60.0}


def seconds_of(run: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    result = run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began, result


def plain_inverter_epoch(challenge: Challenge, device: torch.device) -> Callable[[], float]:
    """The loop one finds in papers' code: a DataLoader on the CPU, the client in every step, float32, .item()."""
    owned = challenge.attacker_images()
    loader = DataLoader(TensorDataset(owned.images, owned.labels), batch_size=256, shuffle=True)
    client, stack = challenge.client().to(device), challenge.stack().to(device)
    network = ResidualInverter(challenge.z_shape, challenge.image_shape).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4)

    def epoch() -> float:
        total = 0.0
        for images, _ in loader:
            x = to_float(images).to(device)
            with torch.no_grad():
                z = stack(client(x))
            loss = F.mse_loss(network(z), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total

    return epoch


def plain_search(
    client: nn.Module, stack: DefenceStack, z: Tensor, start: Tensor, steps: int, lr: float, weight: float
) -> None:
    """Batches of 100 images one after the other, an eager step each, .item() for the progress bar."""
    for target, begin in zip(z.split(100), start.split(100), strict=True):
        x = begin.clone().requires_grad_(True)
        optimizer = torch.optim.Adam([x], lr=lr)
        for _ in range(steps):
            feature = (stack(client(x)) - target).square().flatten(1).mean(1)
            loss = (feature + weight * total_variation(x)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            x.data.clamp_(0, 1)
            loss.item()


def inverter_figures(challenge: Challenge, data: ImageData, device: torch.device, epochs: int) -> dict[str, Any]:
    attack = InverterAttack(TrainingPlan(epochs=epochs, probe=False))
    InverterAttack(TrainingPlan(epochs=1, probe=False)).run(challenge, device=device)  # warm-up
    ours, result = seconds_of(lambda: attack.run(challenge, device=device), device)
    epoch = plain_inverter_epoch(challenge, device)
    epoch()
    plain, _ = seconds_of(epoch, device)
    mse = float(score(result.reconstructions, data.test.images).mse.mean())
    return {
        "inverter_seconds": ours,
        "inverter_plain_seconds": plain * epochs,
        "inverter_plain_measured_epochs": 1,
        "inverter_ratio": plain * epochs / ours,
        "inverter_test_mse": mse,
    }


def optimisation_figures(
    challenge: Challenge, data: ImageData, device: torch.device, images: int, steps: int
) -> dict[str, Any]:
    attack = OptimisationAttack(steps=steps, images=images)
    whole, result = seconds_of(lambda: attack.run(challenge, device=device), device)
    client, stack = challenge.client().to(device), challenge.stack().to(device)
    z = challenge.test_features()[:, :images].to(device)
    start = to_float(data.train.images).mean(0).to(device).expand(z.shape[1], *challenge.image_shape).contiguous()
    weight = 1e-3
    attack.search(client, stack, z, start, weight, max(1, steps // 10))
    ours, _ = seconds_of(lambda: attack.search(client, stack, z, start, weight, steps), device)
    plain, _ = seconds_of(lambda: plain_search(client, stack, z[0], start, steps, attack.lr, weight), device)
    truth = data.test.images[: len(result.reconstructions)]
    return {
        "optimisation_seconds": whole,
        "optimisation_search_seconds": ours,
        "optimisation_plain_search_seconds": plain,
        "optimisation_ratio": plain / ours,
        "optimisation_test_mse": float(score(result.reconstructions, truth).mse.mean()),
    }


def calibration_psnr(data: ImageData, device: torch.device, epochs: int, scratch: Path) -> float:
    """PSNR of the reference inverter on an identity-like client: whether the schedule is long enough at this size."""
    write_challenge(
        scratch / "identity",
        client=identity_like_client((8, 8, 8), data.image_shape),
        stack=DefenceStack([]),
        attacker=data.train,
        test=data.test,
    )
    attack = InverterAttack(TrainingPlan(epochs=epochs, probe=False))
    result = attack.run(Challenge(scratch / "identity"), device=device)
    return float(score(result.reconstructions, data.test.images).psnr.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000, help="attacker images")
    parser.add_argument("--test-images", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--steps", type=int, default=400, help="steps of the optimisation attack")
    parser.add_argument("--calibrate", action="store_true", help="also attack an identity-like client")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = synthetic_images(num_train=arguments.images, num_test=arguments.test_images)
    torch.manual_seed(0)
    client = build_split_model("vgg11_bn", 10, (3, 32, 32)).client.to(device)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        stack = DefenceStack([GaussianNoise(SIGMA)])
        write_challenge(scratch / "c", client=client, stack=stack, attacker=data.train, test=data.test)
        challenge = Challenge(scratch / "c")
        figures = inverter_figures(challenge, data, device, arguments.epochs)
        figures |= optimisation_figures(challenge, data, device, arguments.test_images, arguments.steps)
        if arguments.calibrate:
            figures["identity_psnr"] = calibration_psnr(data, device, arguments.epochs, scratch)
    setting = {key: value for key, value in vars(arguments).items() if key != "out"}
    record = {"machine": machine(), "setting": setting, "figures": figures, "goals_seconds": GOALS}
    text = json.dumps(record, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
