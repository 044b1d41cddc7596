"""ResNet-20, the CIFAR form of He et al., arXiv 1512.03385, section 4.2."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from attention_cem.splitting.registry import register_backbone


class BasicBlock(nn.Module):
    """relu(bn(conv(relu(bn(conv(x))))) + shortcut(x)).

    The shortcut has no parameters (option A of the paper): where the block halves the size and widens, it
    takes every second pixel and fills the new channels with zeros.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.stride = stride
        self.new_channels = out_channels - in_channels

    def forward(self, x: Tensor) -> Tensor:
        """`(B, in_channels, H, W)` → `(B, out_channels, H / stride, W / stride)`."""
        hidden = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            half = self.new_channels // 2
            shortcut = F.pad(shortcut, (0, 0, 0, 0, half, self.new_channels - half))
        return F.relu(hidden + shortcut)


class ResNet20(nn.Module):
    """Three stages of three residual blocks, 16, 32 and 64 channels wide; 269,722 parameters for 10 classes.

    Args:
        num_classes: width of the output.
        in_channels: 1 or 3.

    >>> import torch
    >>> ResNet20(num_classes=10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, num_classes: int, in_channels: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(in_channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.stage1 = _stage(16, 16, stride=1)
        self.stage2 = _stage(16, 32, stride=2)
        self.stage3 = _stage(32, 64, stride=2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(64, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(B, num_classes)` of images `(B, C, H, W)`."""
        features = self.stage3(self.stage2(self.stage1(self.stem(x))))
        return self.classifier(self.pool(features).flatten(1))


def _stage(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
    first = BasicBlock(in_channels, out_channels, stride)
    return nn.Sequential(first, *(BasicBlock(out_channels, out_channels, 1) for _ in range(2)))


@register_backbone("resnet20", default_cut="stage2", smallest_image=8)
def resnet20(num_classes: int, image_shape: Sequence[int]) -> ResNet20:
    """ResNet-20 for images of `image_shape` (C, H, W)."""
    return ResNet20(num_classes, in_channels=image_shape[0])
