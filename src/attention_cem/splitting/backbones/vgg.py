"""VGG-11 with batch normalisation, in the small-image form used for CIFAR."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from attention_cem.splitting.bottleneck import xavier_init
from attention_cem.splitting.registry import register_backbone

# Configuration "A" of Simonyan and Zisserman, arXiv 1409.1556; None stands for 2×2 max pooling.
_VGG11_LAYERS = (64, None, 128, None, 256, 256, None, 512, 512, None, 512, 512, None)


class VGG11(nn.Module):
    """VGG-11-BN: eight 3×3 convolutions with batch norm and ReLU, five poolings, three linear layers.

    Features are averaged to 1×1 before the classifier, so that larger images work; for 32 px images the map
    is 1×1 already and nothing changes. Cut at `features.7`, with `Bottleneck(8)`, this is the network of the
    reference evaluation (arXiv 2503.00383): z 8×8×8, client of 85,256 parameters.

    Args:
        num_classes: width of the output.
        in_channels: 1 or 3.
        dropout: probability in the classifier.

    >>> import torch
    >>> VGG11(num_classes=10).eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, num_classes: int, in_channels: int = 3, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = in_channels
        for width in _VGG11_LAYERS:
            if width is None:
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
                channels = width
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Linear(512, num_classes),
        )
        self.apply(xavier_init)

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(B, num_classes)` of images `(B, C, H, W)`, H and W at least 32."""
        return self.classifier(self.pool(self.features(x)).flatten(1))


@register_backbone("vgg11_bn", default_cut="features.7", smallest_image=32)
def vgg11_bn(num_classes: int, image_shape: Sequence[int]) -> VGG11:
    """VGG-11 with batch norm for images of `image_shape` (C, H, W)."""
    return VGG11(num_classes, in_channels=image_shape[0])
