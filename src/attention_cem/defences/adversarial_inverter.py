"""Adversarial representation learning: the client trains against an inverter that trains alongside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, distributed, nn
from torch.func import functional_call

from attention_cem.data.image_quality import mse_per_image, ssim_per_image
from attention_cem.splitting.inverters import ResidualInverter

from . import checks
from .base import PenaltyDefence
from .registry import register_defence
from .tensor_adam import TensorAdam

# SSIM 0: no structure left. MSE 1/4: the largest variance in [0, 1], so that a constant guess does as well.
_DEFAULT_THRESHOLDS = {"ssim": 0.0, "mse": 0.25}


def too_good(reconstruction: Tensor, x: Tensor, metric: str, threshold: float) -> Tensor:
    """By how much each reconstruction is better than the threshold: zero once it is bad enough.

    ``ssim``: max(0, SSIM − t); ``mse``: max(0, t − MSE), per image.

    Args:
        reconstruction: ``(N, C, H, W)`` in [0, 1].
        x: ``(N, C, H, W)`` in [0, 1].
        metric: ``ssim`` or ``mse``.
        threshold: t.

    Returns:
        ``(N,)``.

    >>> too_good(torch.zeros(1, 1, 4, 4), torch.full((1, 1, 4, 4), 0.5), "mse", threshold=0.75)
    tensor([0.5000])
    """
    if metric == "ssim":
        return (ssim_per_image(reconstruction, x, data_range=1.0) - threshold).relu()
    return (threshold - mse_per_image(reconstruction, x)).relu()


@register_defence
class AdversarialInverter(PenaltyDefence):
    """The client is penalised for features from which an inverter, trained on the same batches, rebuilds x.

    ResSFL (Li et al., CVPR 2022, arXiv 2205.04007). Two deviations: the threshold acts per image, so that
    well-hidden images cannot buy leave for well-shown ones; and the inverter keeps its own Adam state in
    buffers, so that a resumed run continues exactly.

    The inverter's parameters do not require gradients: no optimiser of the task can move them, and the
    penalty sends its gradient to z alone. Under torch.distributed its gradients and batch-norm statistics are
    averaged, so that it stays the same on every rank; every rank must then call `train_adversary`.

    Args:
        weight: weight of the term in the client's loss.
        z_shape: shape of one feature.
        image_shape: ``(C, H, W)`` of one image in [0, 1].
        metric: ``ssim`` or ``mse``: what the inverter optimises and the client is penalised for.
        threshold: reconstruction quality below which an image no longer counts; SSIM 0 or MSE 0.25 when None.
        sees: ``clean`` (the published method) or ``defended``: which feature inverter and penalty are given.
            Use ``defended`` together with local DP, whose clipping makes the clean scale misleading.
        width: channels of the inverter.
        blocks: its residual blocks.
        steps: inverter steps per batch.
        lr: the inverter's step size.

    >>> defence = AdversarialInverter(weight=0.3, z_shape=(8, 8, 8), image_shape=(3, 32, 32), blocks=1)
    >>> x, z = torch.rand(4, 3, 32, 32), torch.rand(4, 8, 8, 8, requires_grad=True)
    >>> loss, term = defence.train_adversary(x, z.detach()), defence.term(x, z, torch.zeros(4))
    >>> any(parameter.requires_grad for parameter in defence.parameters())
    False
    """

    name: ClassVar[str] = "adversarial_inverter"

    def __init__(
        self,
        weight: float,
        z_shape: Sequence[int],
        image_shape: Sequence[int],
        metric: str = "ssim",
        threshold: float | None = None,
        sees: str = "clean",
        width: int = 64,
        blocks: int = 2,
        steps: int = 1,
        lr: float = 1e-3,
    ) -> None:
        super().__init__()
        self.weight = checks.positive("weight", weight)
        self.z_shape = checks.shape("z_shape", z_shape, ranks=(1, 2, 3))
        self.image_shape = checks.shape("image_shape", image_shape, ranks=(3,))
        self.metric = checks.one_of("metric", metric, ("ssim", "mse"))
        self.threshold = _checked_threshold(metric, threshold)
        self.sees = cast(Literal["clean", "defended"], checks.one_of("sees", sees, ("clean", "defended")))
        self.width = checks.whole("width", width, minimum=1)
        self.blocks = checks.whole("blocks", blocks, minimum=0)
        self.steps = checks.whole("steps", steps, minimum=1)
        self.inverter = self.make_inverter().requires_grad_(False).eval()
        self.adam = TensorAdam(sum(parameter.numel() for parameter in self.inverter.parameters()), lr)

    def make_inverter(self) -> nn.Module:
        """The adversary's network z → image in [0, 1]; override it to use another."""
        return ResidualInverter(self.z_shape, self.image_shape, width=self.width, blocks=self.blocks)

    def train(self, mode: bool = True) -> AdversarialInverter:
        """Set the mode; the inverter stays in evaluation mode, as an attacker uses it."""
        super().train(mode)
        self.inverter.eval()
        return self

    def term(self, x: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """Mean over the batch of how much better than the threshold the inverter is; ``y`` is not used."""
        return too_good(self._rebuilt(z), x, self.metric, self.threshold).sum() / max(x.shape[0], 1)

    def compile_term(self) -> None:
        """The inverter, whose many passes over images are fused; its training calls it too."""
        self.inverter.compile(dynamic=False, fullgraph=True)

    @torch.enable_grad()
    def train_adversary(self, x: Tensor, z: Tensor) -> Tensor:
        """Let the inverter learn from one batch.

        Returns:
            Its loss before the last step, detached: 1 − SSIM or MSE.
        """
        if x.shape[0] == 0:
            raise ValueError("the adversarial inverter cannot learn from an empty batch")
        parameters = dict(self.inverter.named_parameters())
        self.inverter.train()
        try:
            for _ in range(self.steps):
                leaves = {key: value.detach().requires_grad_() for key, value in parameters.items()}
                loss = self._adversary_loss(self._rebuilt(z.detach(), leaves), x)
                gradients = torch.autograd.grad(loss, list(leaves.values()))
                joined = _mean_over_ranks(torch.cat([gradient.reshape(-1) for gradient in gradients]))
                self.adam.update(list(parameters.values()), joined)
        finally:
            self.inverter.eval()
        self._share_statistics()
        return loss.detach()

    def _rebuilt(self, z: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Images from features, by the inverter or by one with these weights; bf16 inside if client and server are."""
        with torch.autocast(z.device.type, dtype=torch.bfloat16, enabled=self.mixed_precision):
            images: Tensor = (
                self.inverter(z) if weights is None else functional_call(self.inverter, dict(weights), (z,))
            )
        return images.to(torch.promote_types(images.dtype, torch.float32))

    def _adversary_loss(self, reconstruction: Tensor, x: Tensor) -> Tensor:
        if self.metric == "ssim":
            return 1 - ssim_per_image(reconstruction, x, data_range=1.0).mean()
        return mse_per_image(reconstruction, x).mean()

    @torch.no_grad()
    def _share_statistics(self) -> None:
        for buffer in self.inverter.buffers():
            if buffer.is_floating_point():
                buffer.copy_(_mean_over_ranks(buffer))

    def config(self) -> dict[str, Any]:
        """Every constructor argument, the threshold resolved."""
        return {
            "weight": self.weight,
            "z_shape": list(self.z_shape),
            "image_shape": list(self.image_shape),
            "metric": self.metric,
            "threshold": self.threshold,
            "sees": self.sees,
            "width": self.width,
            "blocks": self.blocks,
            "steps": self.steps,
            "lr": self.adam.lr,
        }

    def guarantee(self) -> str:
        """None; one adversary was fought, another may be stronger."""
        return (
            "No formal guarantee: the client was trained against one inverter; a stronger or differently "
            "trained one may do better. Nothing is added or withheld when a feature is released."
        )


def _checked_threshold(metric: str, threshold: float | None) -> float:
    if threshold is None:
        return _DEFAULT_THRESHOLDS[metric]
    low, high = (-1.0, 1.0) if metric == "ssim" else (0.0, 1.0)
    inside = checks.is_finite(threshold) and (low <= threshold < high if metric == "ssim" else low < threshold <= high)
    if not inside:
        raise ValueError(
            f"with metric {metric} the threshold must lie between {low:g} and {high:g} and leave room to "
            f"act, received {threshold!r}"
        )
    return float(threshold)


def _mean_over_ranks(value: Tensor) -> Tensor:
    if not (distributed.is_available() and distributed.is_initialized()):
        return value
    total = value.clone()
    distributed.all_reduce(total)
    return total / distributed.get_world_size()
