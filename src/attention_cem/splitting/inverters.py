"""Networks that rebuild images from z, shared by the attacks and by the adversarial defence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention_cem.nearest_names import did_you_mean
from attention_cem.splitting.bottleneck import xavier_init
from attention_cem.splitting.inverter_geometry import grid_layer, resampling

INVERTER_PRESETS: dict[str, dict[str, int]] = {
    "reference": {"width": 64, "blocks": 8},
    "large": {"width": 128, "blocks": 12},
}


class ResidualBlock(nn.Module):
    """Pre-activation residual block (He et al., arXiv 1603.05027):

    y = conv(relu(bn(conv(relu(bn(x)))))) + shortcut(x), 3×3 convolutions with bias; the shortcut is x itself,
    or a 1×1 convolution with batch norm where the number of channels changes.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.shortcut: nn.Module = nn.Identity()
        if in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """`(B, in_channels, H, W)` → `(B, out_channels, H, W)`."""
        hidden = self.conv1(F.relu(self.norm1(x)))
        return self.conv2(F.relu(self.norm2(hidden))) + self.shortcut(x)


class ResidualInverter(nn.Module):
    """Image from z: a residual network at the resolution of z, then steps of two to the image's size.

    For z 8×8×8 and images 3×32×32 this is the inverter of the reference evaluation (arXiv 2503.00383), of
    711,539 parameters: a residual block 8 → 64, eight blocks of 64, two stride-2 transposed convolutions with
    batch norm, a residual block 64 → 3, sigmoid; a ReLU between any two.

    The geometry follows from the shapes. Spatial z is doubled or halved until it fits the image, and
    interpolated where no power of two fits; tokens are laid out as the patches they came from; anything else
    passes a linear layer to a small grid first.

    Args:
        z_shape: shape of one sample's z, without the batch dimension: (C, H, W), (T, E) or (D,).
        image_shape: (C, H, W) of the images.
        width: channels inside.
        blocks: residual blocks of that width.
        class_token: what to do with a class token before the patch tokens: `"keep"` (shown to every position)
            or `"drop"`.

    Output: images `(B, C, H, W)` in (0, 1).

    >>> inverter = ResidualInverter((8, 8, 8), (3, 32, 32))
    >>> sum(p.numel() for p in inverter.parameters())
    711539
    >>> inverter(torch.rand(2, 8, 8, 8)).shape
    torch.Size([2, 3, 32, 32])
    """

    def __init__(
        self,
        z_shape: Sequence[int],
        image_shape: Sequence[int],
        width: int = 64,
        blocks: int = 8,
        class_token: str = "keep",
    ) -> None:
        super().__init__()
        _check_arguments(z_shape, image_shape, width, blocks, class_token)
        self.z_shape = tuple(z_shape)
        self.image_shape = tuple(image_shape)
        self.to_grid = grid_layer(z_shape, image_shape, width, class_token)
        steps = resampling(self.to_grid.grid, image_shape[1:])
        body: list[nn.Module] = [ResidualBlock(self.to_grid.channels, width), nn.ReLU()]
        # Halving comes first: the blocks then work at the image's resolution, not at a larger one.
        for _ in range(steps.halvings):
            body += [nn.Conv2d(width, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        for _ in range(blocks):
            body += [ResidualBlock(width, width), nn.ReLU()]
        for _ in range(steps.doublings):
            double = nn.ConvTranspose2d(width, width, 3, stride=2, padding=1, output_padding=1)
            body += [double, nn.BatchNorm2d(width), nn.ReLU()]
        if steps.interpolate:
            body.append(nn.Upsample(size=tuple(image_shape[1:]), mode="bilinear", align_corners=False))
        self.body = nn.Sequential(*body)
        self.to_image = ResidualBlock(width, image_shape[0])
        self.apply(xavier_init)

    def forward(self, z: Tensor) -> Tensor:
        """z `(B, *z_shape)` → images `(B, *image_shape)` in (0, 1)."""
        if tuple(z.shape[1:]) != self.z_shape:
            raise ValueError(
                f"this inverter was built for z of shape (B, {', '.join(map(str, self.z_shape))}), "
                f"got {tuple(z.shape)}; build one for the new cut"
            )
        return torch.sigmoid(self.to_image(self.body(self.to_grid(z))))


def build_inverter(preset: str, z_shape: Sequence[int], image_shape: Sequence[int]) -> ResidualInverter:
    """An inverter of a named size: `"reference"` (width 64, 8 blocks) or `"large"` (width 128, 12 blocks).

    >>> sum(p.numel() for p in build_inverter("reference", (8, 8, 8), (3, 32, 32)).parameters())
    711539
    """
    if preset not in INVERTER_PRESETS:
        raise ValueError(f"unknown inverter preset '{preset}'{did_you_mean(preset, INVERTER_PRESETS, limit=3)}")
    size = INVERTER_PRESETS[preset]
    return ResidualInverter(z_shape, image_shape, width=size["width"], blocks=size["blocks"])


def _check_arguments(
    z_shape: Sequence[int], image_shape: Sequence[int], width: int, blocks: int, class_token: str
) -> None:
    if len(z_shape) not in (1, 2, 3) or min(z_shape) < 1:
        raise ValueError(f"z_shape must be (C, H, W), (T, E) or (D,), without batch, got {tuple(z_shape)}")
    if len(image_shape) != 3 or min(image_shape) < 1:
        raise ValueError(f"image_shape must be (channels, height, width), got {tuple(image_shape)}")
    if width < 1 or blocks < 0:
        raise ValueError(f"width must be at least 1 and blocks at least 0, got width={width}, blocks={blocks}")
    if class_token not in ("keep", "drop"):
        raise ValueError(f"class_token must be 'keep' or 'drop', got {class_token!r}")
