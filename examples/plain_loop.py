"""Your own PyTorch loop with a surrogate in it, and the alarm that says when a surrogate deceives itself.

Run:    python examples/plain_loop.py
Needs:  pip install -e .
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from attention_cem import SelfDeceptionAlarm, SlotCrossAttentionCEM, SlotMixtureCEM, backward_at_cut, detach_at_cut
from attention_cem.data import synthetic_images, to_float
from attention_cem.defences import DefenceStack, GaussianNoise
from attention_cem.splitting import Bottleneck, SplitModel, split
from attention_cem.surrogates import ConditionalEntropySurrogate

SIGMA, EPOCHS, CLASSES = 0.1, 8, 5
DATA = synthetic_images(num_train=500, num_test=500, num_classes=CLASSES, size=16)


def your_model() -> nn.Sequential:
    """Any network will do; this one sees 16×16 colour images."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 4 * 4, CLASSES),
    )  # fmt: skip


def train(name: str, lambd: float) -> None:
    torch.manual_seed(0)
    example = torch.zeros(2, 3, 16, 16)
    # The client is everything up to layer 3, narrowed to 8 channels: z is 8×8×8.
    model = split(your_model(), at="3", bottleneck=Bottleneck(8), example=example)
    width = model.client(example)[0].numel()
    stack = DefenceStack([GaussianNoise(SIGMA)])
    surrogate: ConditionalEntropySurrogate
    if name == "as in the source documents":
        # No grace period: what switches it off here are its own gates. (It warns about itself when it is built.)
        surrogate = SlotCrossAttentionCEM(width, reg_strength=SIGMA, early_shut_steps=0, slot_dim=128)
    else:
        surrogate = SlotMixtureCEM(width, CLASSES, reg_strength=SIGMA, num_slots=3, bank_size=64)
    # The estimator is its own parameter group from the first step on.
    optimiser = torch.optim.AdamW([{"params": model.parameters()}, {"params": surrogate.parameters()}], lr=2e-3)
    batches = DataLoader(TensorDataset(to_float(DATA.train.images), DATA.train.labels), 50, shuffle=True)
    alarm, warnings = SelfDeceptionAlarm(), []

    for epoch in range(EPOCHS):
        seen = []
        for x, y in batches:
            z = model.client(x)
            feature = detach_at_cut(z)  # what the server receives, and where its gradient comes back
            task_loss = F.cross_entropy(model.server(stack(feature)), y)
            out = surrogate(feature, y)
            optimiser.zero_grad()
            active = lambd if epoch >= 2 else 0.0  # let the task find its feet first
            backward_at_cut(z, feature, task_loss, out.rob_loss, lambd=active, estimator=surrogate)
            optimiser.step()
            scalars = {key: value for key, value in out.diagnostics.items() if value.dim() == 0}
            seen.append({"rob_loss": out.rob_loss.detach(), "intra_mse": out.intra_mse, **scalars})
        figures = {key: float(torch.stack([row[key].float() for row in seen]).mean()) for key in seen[0]}
        if epoch >= 2 and lambd:
            warnings = alarm.update(figures)

    spoken = "; ".join(warnings) or "silent"
    print(f"{name:<28}{lambd:>4.1f}{accuracy(model, stack):>10.1%}{figures['intra_mse']:>10.4f}   {spoken}")


@torch.no_grad()
def accuracy(model: SplitModel, stack: DefenceStack) -> float:
    model.eval()
    predicted = model.server(stack(model.client(to_float(DATA.test.images)))).argmax(1)
    return float((predicted == DATA.test.labels).float().mean())


if __name__ == "__main__":
    print(f"{'surrogate':<28}{'λ':>4}{'accuracy':>10}{'spread':>10}   alarm")
    train("slot mixture, not used", lambd=0.0)
    train("slot mixture", lambd=1.0)
    train("as in the source documents", lambd=1.0)
    print("Spread: of z within a class. A small one is a promise; examples/attack_own_checkpoint.py is the proof.")
