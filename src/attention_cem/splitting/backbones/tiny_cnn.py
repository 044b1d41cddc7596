"""A network for tests and demonstrations on a CPU, of the same layout as VGG at the cut."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from attention_cem.splitting.registry import register_backbone


class TinyCNN(nn.Module):
    """Four 3×3 convolutions of 32, 64, 128 and 128 channels, three poolings, one linear layer on a 4×4 map.

    Cut at `features.7` with `Bottleneck(8)`, the client is conv32-pool-conv64-pool-conv8-sigmoid: z is 8×8×8
    for 32 px images and 8×16×16 for 64 px ones.

    Args:
        num_classes: width of the output.
        in_channels: 1 or 3.

    >>> import torch
    >>> TinyCNN(num_classes=4, in_channels=1)(torch.zeros(2, 1, 64, 64)).shape
    torch.Size([2, 4])
    """

    def __init__(self, num_classes: int, in_channels: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_convolution(in_channels, 32),
            nn.MaxPool2d(2),
            *_convolution(32, 64),
            nn.MaxPool2d(2),
            *_convolution(64, 128),
            nn.MaxPool2d(2),
            *_convolution(128, 128),
        )
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.classifier = nn.Linear(128 * 4 * 4, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(B, num_classes)` of images `(B, C, H, W)`."""
        return self.classifier(self.pool(self.features(x)).flatten(1))


def _convolution(in_channels: int, out_channels: int) -> list[nn.Module]:
    return [nn.Conv2d(in_channels, out_channels, 3, padding=1), nn.BatchNorm2d(out_channels), nn.ReLU()]


@register_backbone("tiny_cnn", default_cut="features.7", smallest_image=8)
def tiny_cnn(num_classes: int, image_shape: Sequence[int]) -> TinyCNN:
    """Tiny CNN for images of `image_shape` (C, H, W)."""
    return TinyCNN(num_classes, in_channels=image_shape[0])
