"""A small vision transformer (Dosovitskiy et al., arXiv 2010.11929) whose z is a grid of tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention_cem.splitting.registry import register_backbone

_PATCHES_PER_SIDE = 8


class SelfAttention(nn.Module):
    """Multi-head self-attention, `(B, T, E)` → `(B, T, E)`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Every token attends to all."""
        qkv = self.qkv(tokens).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, heads, T, E / heads)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.project(mixed.transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """Pre-norm block: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int, mlp_ratio: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, mlp_ratio * width), nn.GELU(), nn.Linear(mlp_ratio * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """`(B, T, E)` → `(B, T, E)`."""
        tokens = tokens + self.attention(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))


class PatchTokens(nn.Module):
    """Image `(B, C, H, W)` → one token per patch, `(B, T, E)`, with a learned position added."""

    def __init__(self, image_shape: Sequence[int], patch: int, width: int) -> None:
        super().__init__()
        channels, height, breadth = image_shape
        if height % patch or breadth % patch:
            raise ValueError(f"patches of {patch} px do not tile an image of {height}×{breadth} px")
        self.project = nn.Conv2d(channels, width, patch, stride=patch)
        self.position = nn.Parameter(torch.zeros(1, (height // patch) * (breadth // patch), width))
        nn.init.trunc_normal_(self.position, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Cut the image into patches, row by row."""
        return self.project(x).flatten(2).transpose(1, 2) + self.position


class SmallViT(nn.Module):
    """A vision transformer small enough for CPU tests, with mean pooling instead of a class token.

    All tokens are patches, so z at any block keeps the layout of the image.

    Args:
        num_classes: width of the output.
        image_shape: (C, H, W) of the images.
        patch: side of a patch; None takes the largest that leaves at least 8 along the shorter side.
        width: features per token.
        depth: number of blocks.
        heads: attention heads.

    >>> SmallViT(10, (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        num_classes: int,
        image_shape: Sequence[int],
        *,
        patch: int | None = None,
        width: int = 128,
        depth: int = 6,
        heads: int = 4,
    ) -> None:
        super().__init__()
        self.tokens = PatchTokens(image_shape, patch or patch_size(image_shape), width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, mlp_ratio=2) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(B, num_classes)` of images `(B, C, H, W)`."""
        return self.classifier(self.norm(self.blocks(self.tokens(x))).mean(dim=1))


def patch_size(image_shape: Sequence[int]) -> int:
    """Largest patch that tiles the image and leaves at least eight patches along the shorter side.

    >>> patch_size((3, 32, 32)), patch_size((3, 48, 48)), patch_size((1, 28, 28)), patch_size((3, 31, 31))
    (4, 6, 2, 1)
    """
    common = math.gcd(image_shape[1], image_shape[2])
    largest = max(1, min(image_shape[1:]) // _PATCHES_PER_SIDE)
    return max(side for side in range(1, largest + 1) if common % side == 0)


@register_backbone("vit_small", default_cut="blocks.1", smallest_image=8)
def vit_small(num_classes: int, image_shape: Sequence[int]) -> SmallViT:
    """Small vision transformer for images of `image_shape` (C, H, W)."""
    return SmallViT(num_classes, image_shape)
