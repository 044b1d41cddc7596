"""MobileNetV2 (Sandler et al., arXiv 1801.04381) with a stem for small images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from attention_cem.splitting.registry import register_backbone

# Table 2 of the paper (expansion, channels, repeats, stride). The stem and the stage of 24 channels keep the
# resolution here: the paper halves it there, which suits images of 224 px but leaves 1×1 maps of 32 px ones.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(nn.Module):
    """1×1 expansion, 3×3 depthwise, 1×1 linear projection; added to the input when shapes agree."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = in_channels * expansion
        layers: list[nn.Module] = []
        if expansion != 1:
            layers += _convolution(in_channels, hidden, kernel_size=1)
        layers += _convolution(hidden, hidden, kernel_size=3, stride=stride, groups=hidden)
        layers += [nn.Conv2d(hidden, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels)]
        self.layers = nn.Sequential(*layers)
        self.is_residual = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """`(B, in_channels, H, W)` → `(B, out_channels, H / stride, W / stride)`."""
        return x + self.layers(x) if self.is_residual else self.layers(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 of width 1.0; resolution is divided by 8 in all.

    Args:
        num_classes: width of the output.
        in_channels: 1 or 3.
        dropout: probability before the classifier.

    >>> import torch
    >>> MobileNetV2(num_classes=10).eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, num_classes: int, in_channels: int = 3, dropout: float = 0.2) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Sequential(*_convolution(in_channels, 32, kernel_size=3))]
        channels = 32
        for expansion, width, repeats, stride in _STAGES:
            for index in range(repeats):
                layers.append(InvertedResidual(channels, width, stride if index == 0 else 1, expansion))
                channels = width
        layers.append(nn.Sequential(*_convolution(channels, 1280, kernel_size=1)))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(B, num_classes)` of images `(B, C, H, W)`."""
        return self.classifier(self.pool(self.features(x)).flatten(1))


def _convolution(
    in_channels: int, out_channels: int, *, kernel_size: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    padding = kernel_size // 2
    convolution = nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(out_channels), nn.ReLU6()]


@register_backbone("mobilenet_v2", default_cut="features.6", smallest_image=8)
def mobilenet_v2(num_classes: int, image_shape: Sequence[int]) -> MobileNetV2:
    """MobileNetV2 for images of `image_shape` (C, H, W)."""
    return MobileNetV2(num_classes, in_channels=image_shape[0])
