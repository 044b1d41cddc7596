"""HybridCEM: the cheap gated surrogate screens all classes, the slot surrogate refines the riskiest."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from attention_cem.surrogates.base import ConditionalEntropySurrogate, SurrogateOutput, require_positive_int
from attention_cem.surrogates.gated import GatedAttentionCEM
from attention_cem.surrogates.segments import class_sum
from attention_cem.surrogates.slot_cross import SlotCrossAttentionCEM
from attention_cem.surrogates.slot_mixture import SlotMixtureCEM


class HybridCEM(ConditionalEntropySurrogate):
    r"""Screen every class with gated pooling; run the slot surrogate only where the screened risk is highest.

    A class is refined if it is among the ``quota`` classes with the largest screened loss and, where ``threshold`` is
    given, its screened loss lies above it. rob_loss is the slot surrogate's loss of the refined classes plus the
    screened loss of the others, each with the class's share of the batch.

    Args:
        feature_dim: D. num_classes: for a `SlotMixtureCEM`'s memory.
        quota: how many classes of a batch are refined at most. threshold: screened loss a refined class must exceed.
        screen, refine: the two surrogates; by default the sound ones.
        reg_strength, label_space: passed to the default surrogates. bank_size, cross_fit: to the default ``refine``.

    >>> surrogate = HybridCEM(feature_dim=8, num_classes=4, quota=1)
    >>> z, y = torch.randn(40, 8), torch.arange(40) % 4
    >>> z[y == 2] *= 5
    >>> _, out = surrogate(z, y), surrogate(z, y)
    >>> out.diagnostics["refined_label"].tolist()
    [2]
    """

    kind: ClassVar[str] = "hybrid"
    compile_when_recorded: ClassVar[bool] = True  # two surrogates of many small kernels each

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        *,
        quota: int = 3,
        threshold: float | None = None,
        screen: GatedAttentionCEM | None = None,
        refine: SlotMixtureCEM | SlotCrossAttentionCEM | None = None,
        reg_strength: float = 0.025,
        bank_size: int = 128,
        cross_fit: bool = False,
        label_space: int | None = None,
    ) -> None:
        super().__init__(feature_dim, label_space)
        self.quota, self.threshold = require_positive_int("quota", quota), threshold
        common: dict[str, Any] = {"reg_strength": reg_strength, "label_space": label_space}
        self.screen = screen or GatedAttentionCEM(feature_dim, objective="adversary", **common)
        memory: dict[str, Any] = {"bank_size": bank_size, "cross_fit": cross_fit}
        self.refine = refine or SlotMixtureCEM(feature_dim, num_classes, **common, **memory)
        self.uses_sample, self.maintain_every = self.refine.uses_sample, self.refine.maintain_every
        for name in ("screen", "refine"):
            found = getattr(self, name).feature_dim
            if found != feature_dim:
                raise ValueError(f"{name} is made for {found} features, but feature_dim is {feature_dim}")

    def estimate(
        self, z: Tensor, y: Tensor, only: Tensor | None = None, sample: Tensor | None = None
    ) -> SurrogateOutput:
        """The loss of features (N, D) with labels (N,)."""
        self.screen.begin_call()
        screened, terms, segments = self.screen.estimate_by_class(z, y, only)
        self.screen.end_call(screened)
        facts = screened.diagnostics
        risk = facts["class_loss"].masked_fill(~facts["class_active"], -torch.inf)
        quota = min(self.quota, risk.shape[0])
        top, index = risk.topk(quota)
        chosen = top > (-torch.inf if self.threshold is None else self.threshold)
        label = facts["class_label"].index_select(0, index)
        refined = ((y.unsqueeze(1) == label) & chosen).any(1)  # (N,)
        fine = self.refine(z, y, refined, sample)
        # the slot surrogate may not know a class yet: then its screened loss stays
        ready = (y.unsqueeze(1) == fine.diagnostics["class_label"]) & fine.diagnostics["class_active"]
        done = class_sum((refined & ready.any(1)).to(torch.int64), segments.row, segments.num_rows).bool()
        # screened once: what a refined class added is taken out, and bad values stay visible
        coarse = terms.masked_fill(done, 0).sum() + screened.rob_loss * 0
        diagnostics = {
            "active_classes": facts["active_classes"],
            "skipped_classes": facts["skipped_classes"],
            "refined_classes": chosen.sum(),
            "refined_label": label.masked_fill(~chosen, -1),
            "screen_loss": screened.rob_loss.detach(),
            "refine_loss": fine.rob_loss.detach(),
            "class_label": facts["class_label"],
            "class_active": facts["class_active"],
            "class_loss": facts["class_loss"],
        }
        return SurrogateOutput(fine.rob_loss + coarse, screened.intra_mse, diagnostics)

    def maintain(self) -> None:
        """Pass on to the slot surrogate."""
        self.refine.maintain()
