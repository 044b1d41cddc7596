"""A client that hides: it fools the small inverter it was trained against, and loses nothing.

An audit that stops at a weak attacker overrates it; a sound one finds the images. The tests of the audit and the
handbook's figure on effort both attack this client.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attention_cem.data import ImageSet, to_float
from attention_cem.defences import AdversarialInverter, DefenceStack, GaussianNoise

HIDDEN = 24  # channels of the coupling's networks


class HidingClient(NamedTuple):
    """The trained client, the defences it was trained with, and how badly its own adversary ended."""

    client: nn.Sequential
    stack: DefenceStack
    adversary_loss: float


class Coupling(nn.Module):
    """Two halves (a, b) of the channels scrambled by each other: a + 4 f(b), then b + 4 g(a).

    Invertible whatever f and g are: subtract in reverse order. It takes an attacker a while to see that.
    """

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(
                nn.Conv2d(channels // 2, hidden, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(hidden, channels // 2, 3, padding=1),
                nn.Tanh(),
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, C, H, W)."""
        a, b = x.chunk(2, 1)
        a = a + 4 * self.first(b)
        b = b + 4 * self.second(a)
        return torch.cat([a, b], 1)


def train_hiding_client(train: ImageSet, *, steps: int = 100, seed: int = 0) -> HidingClient:
    """Train a :class:`Coupling` so that an inverter of width 8 beside it fails.

    Args:
        train: images of even height and width, with labels.
        steps: of the client, each after one of its adversary.
        seed: the only source of randomness; the caller's generator is left alone.

    >>> from attention_cem.data import synthetic_images
    >>> found = train_hiding_client(synthetic_images(num_train=40, num_test=4, size=16).train, steps=2)
    >>> found.client(torch.zeros(1, 3, 16, 16)).shape
    torch.Size([1, 12, 8, 8])
    """
    x, y = to_float(train.images), train.labels
    channels, height, width = x.shape[1:]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        client = nn.Sequential(nn.PixelUnshuffle(2), Coupling(4 * channels, HIDDEN))
        adversary = AdversarialInverter(
            weight=1.0,
            z_shape=(4 * channels, height // 2, width // 2),
            image_shape=(channels, height, width),
            metric="mse",
            width=8,
            blocks=0,
            sees="defended",
        )
        stack = DefenceStack([GaussianNoise(0.01), adversary])
        optimizer = torch.optim.Adam(client.parameters(), lr=3e-3)
        loss = torch.tensor(math.nan)
        for _ in range(steps):
            index = torch.randint(len(x), (32,))
            z = client(x[index])
            (loss,) = stack.train_adversaries(x[index], z).values()
            optimizer.zero_grad()
            stack.penalties(x[index], z, y[index])[adversary.name].backward()
            optimizer.step()
    return HidingClient(client, stack, loss.item())
