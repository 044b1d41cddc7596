"""Attack a split model that was trained elsewhere: weights in safetensors in, worst case with receipts out.

Run:    python examples/attack_own_checkpoint.py
Needs:  pip install -e .
"""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from attention_cem.attacks import ClassMeanAttack, InverterAttack, NearestNeighbourAttack, TrainingPlan
from attention_cem.auditing import Budget, audit, write_challenge
from attention_cem.data import synthetic_images, to_float
from attention_cem.defences import DefenceStack, GaussianNoise
from attention_cem.splitting import split

DATA = synthetic_images(num_train=600, num_test=200, num_classes=5, size=16)


class TheirNetwork(nn.Module):
    """Somebody else's code. All we need is its layer names and its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU())
        self.head = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stem(x))


def their_checkpoint(path: Path) -> None:
    """What they did long ago, without us."""
    torch.manual_seed(0)
    network, images = TheirNetwork(), to_float(DATA.train.images)
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(60):
        pick = torch.randint(len(images), (64,))
        F.cross_entropy(network(images[pick]), DATA.train.labels[pick]).backward()
        optimiser.step()
        optimiser.zero_grad()
    save_file(network.state_dict(), path)


def small_budget() -> Budget:
    """Two baselines and one trained inverter, small enough for a minute; for real use budget="standard"."""
    inverter = InverterAttack(TrainingPlan(epochs=20, least_steps=20, lr=1e-2), width=16, blocks=1)
    baselines = ("class_mean", ClassMeanAttack()), ("nearest_neighbour", NearestNeighbourAttack())
    return Budget("small", (*baselines, ("inverter", inverter)), calibration_images=600, fisher_images=4)


def main(folder: Path) -> None:
    their_checkpoint(folder / "weights.safetensors")

    network = TheirNetwork()
    network.load_state_dict(load_file(folder / "weights.safetensors"))  # no pickle is ever loaded
    model = split(network, at="stem", example=to_float(DATA.test.images[:2]))
    # What an attacker gets: features of the test images, images of its own, the client. The answers lie apart.
    challenge = write_challenge(
        folder / "challenge", client=model.client, server=model.server, stack=DefenceStack([GaussianNoise(0.2)]),
        attacker=DATA.train, test=DATA.test, about={"run": "their weights.safetensors"},
    )  # fmt: skip
    record = audit(challenge, folder / "audit", budget=small_budget(), device="cpu")

    print(f"challenge sha256 {record['challenge_sha256'][:16]}…, accuracy {record['accuracy']:.1%}")
    for entry in record["attacks"]:
        receipt = entry["receipt"]
        low, high = entry["ci95"]
        print(f"\n{entry['name']}: MSE {entry['mse']:.4f} ({low:.4f} to {high:.4f}), PSNR {entry['psnr']:.1f} dB")
        print(f"  receipt: {entry['status']}")
        print(f"  converged {receipt['converged']}: {receipt['reason']}")
        print(f"  calibrated {receipt['calibrated']}: {receipt['calibration'].get('reason')}")
    worst = record["headline"]
    print(f"\nworst case: {worst['attack']}, MSE {worst['mse']:.4f}, receipt {worst['status']}")
    print(f"one who sees nothing: MSE {record['floor_mse']:.4f}")
    for warning in record["warnings"]:
        print(f"take care: {warning}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
