"""KMeansCEM: clusters once an epoch, variance around the nearest centroid in each batch. The baseline to beat."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from attention_cem.surrogates.base import (
    ConditionalEntropySurrogate,
    SurrogateOutput,
    check_features,
    require_choice,
    require_positive,
    require_positive_int,
)
from attention_cem.surrogates.clustering import cluster_classes, nearest_centroid, plus_plus_start
from attention_cem.surrogates.segments import class_sum, segment_classes, within_class_spread

_NO_LABEL = torch.iinfo(torch.int64).max


class KMeansCEM(ConditionalEntropySurrogate):
    r"""Conditional entropy by per-class k-means, as in Xia et al., CVPR 2025 (arXiv 2503.00383).

    Call :meth:`fit` once an epoch on the client's features. In a batch, each sample belongs to the nearest centroid
    of its class; the batch's variance :math:`v^b` around it is blended with the epoch's,
    :math:`v=\eta v^b+(1-\eta)v^e`, :math:`\eta=\min(0.99, \text{blend}\cdot n_\text{batch}/n_\text{epoch})`.
    Two forms:

    - ``paper``: :math:`\sum_k\pi_k\left(-\log\pi_k+\tfrac12\log\frac{|\Sigma_k+\Sigma_p|}{|\Sigma_p|}\right)`,
      diagonal :math:`\Sigma_k`, noise :math:`\Sigma_p=\sigma^2I`: nats, summed over the D dimensions (Theorem 2);
    - ``reference``: :math:`\sum_k\pi_k\max(0,\log(v_k+\gamma)-\log(\tau\sigma^2+\gamma))`,
      :math:`v_k` the mean variance over dimensions and k only over the clusters in the batch, as the authors'
      program computes it.

    rob_loss is the mean over the classes in the batch that were fitted.

    Args:
        feature_dim: D, values per sample at the cut.
        num_classes: how many different labels :meth:`fit` may see; the labels themselves are free.
        num_clusters: K per class (the paper says 3, the authors' program uses 5).
        form: ``"reference"`` or ``"paper"``.
        reg_strength: σ, standard deviation of the noise at the cut.
        var_threshold: τ. gamma: γ.
        blend: see η above.
        num_iterations: Lloyd rounds in a fit.
        seed: of the k-means++ start.
        label_space: a promise that labels are 0 … label_space - 1; saves sorting them.

    >>> surrogate = KMeansCEM(feature_dim=4, num_classes=2, num_clusters=3)
    >>> z, y = torch.randn(40, 4), torch.arange(40) % 2
    >>> surrogate.fit(z, y)
    >>> bool(surrogate(z, y).rob_loss > 0)
    True
    """

    kind: ClassVar[str] = "kmeans"
    needs_fit: ClassVar[bool] = True
    class_label: Tensor
    class_count: Tensor
    centroid: Tensor
    variance: Tensor
    weight: Tensor
    seed: Tensor
    fits: Tensor

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        *,
        num_clusters: int = 5,
        form: str = "reference",
        reg_strength: float = 0.025,
        var_threshold: float = 0.125,
        gamma: float = 0.01,
        blend: float = 10.0,
        num_iterations: int = 10,
        seed: int = 0,
        label_space: int | None = None,
    ) -> None:
        super().__init__(feature_dim, label_space)
        self.num_classes = require_positive_int("num_classes", num_classes)
        self.num_clusters = require_positive_int("num_clusters", num_clusters)
        self.num_iterations = require_positive_int("num_iterations", num_iterations)
        self.form = require_choice("form", form, ("reference", "paper"))
        self.noise_variance = require_positive("reg_strength", reg_strength) ** 2
        self.gamma = require_positive("gamma", gamma)
        self.blend = require_positive("blend", blend)
        self.log_threshold = math.log(
            require_positive("var_threshold", var_threshold) * self.noise_variance + self.gamma
        )
        shape = (num_classes, num_clusters)
        self.register_buffer("centroid", torch.zeros(*shape, feature_dim))
        self.register_buffer("variance", torch.zeros(*shape, feature_dim))
        self.register_buffer("weight", torch.zeros(shape))
        self.register_buffer("class_count", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("class_label", torch.full((num_classes,), _NO_LABEL))
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        self.register_buffer("fits", torch.zeros((), dtype=torch.int64))
        self._fitted = False

    @torch.no_grad()
    def fit(self, z: Tensor, y: Tensor) -> None:
        """Cluster each class of the client's features; later calls start from the last centroids.

        In full precision, also where the caller has autocast on: distances rounded to bfloat16 choose other clusters.
        Classes seen for the first time start by k-means++; classes that are no longer there are forgotten.
        """
        x, y = check_features(z, y, self.feature_dim)
        if x.shape[0] == 0:
            raise ValueError("fit needs at least one feature, got none")
        x = x.to(self.dtype)
        if not bool(torch.isfinite(x).all()):
            raise ValueError("fit got features that are not finite")
        label, row, count = torch.unique(y, return_inverse=True, return_counts=True)
        found = label.shape[0]
        if found > self.num_classes:
            raise ValueError(f"fit got {found} different labels, but num_classes is {self.num_classes}")
        if int(label[-1]) == _NO_LABEL:
            raise ValueError(f"the label {_NO_LABEL} is reserved")
        generator = torch.Generator(x.device)
        generator.manual_seed((int(self.seed) * 1_000_003 + int(self.fits)) % 2**63)
        place = torch.searchsorted(self.class_label, label).clamp_max(self.num_classes - 1)
        known = self.class_label[place] == label
        with torch.autocast(x.device.type, enabled=False):
            start = plus_plus_start(x, row, found, self.num_clusters, generator)
            start = torch.where(known[:, None, None], self.centroid[place], start)
            clusters = cluster_classes(x, row, start, self.num_iterations)
        for buffer, values, rest in (
            (self.centroid, clusters.centroid, 0),
            (self.variance, clusters.variance, 0),
            (self.weight, clusters.weight, 0),
            (self.class_count, count, 0),
            (self.class_label, label, _NO_LABEL),
        ):
            buffer.fill_(rest)
            buffer[:found] = values.to(buffer.dtype)
        self.fits.add_(1)
        self._fitted = True

    def estimate(self, z: Tensor, y: Tensor, only: Tensor | None = None) -> SurrogateOutput:
        """The loss of features (N, D) with labels (N,)."""
        if not self._fitted:
            raise ValueError("KMeansCEM has no clusters yet: call fit(features, labels) once before the first batch")
        segments = segment_classes(y, 1, only, self.label_space)
        row, rows = segments.row, segments.num_rows
        place = torch.searchsorted(self.class_label, segments.label).clamp_max(self.num_classes - 1)  # (R,)
        fitted = segments.active & (self.class_label[place] == segments.label)
        centroid, weight, epoch_variance = self.centroid[place], self.weight[place], self.variance[place]
        with torch.no_grad():
            usable = (weight > 0) | ~fitted[:, None]
            index, _ = nearest_centroid(z, centroid, usable, row)
        cluster = row * self.num_clusters + index  # (N,) in the flat (R*K) table
        squared = (z - centroid.flatten(0, 1).index_select(0, cluster)).square()
        if self.form == "reference":
            squared, epoch_variance = squared.mean(-1, keepdim=True), epoch_variance.mean(-1, keepdim=True)
        count = class_sum(torch.ones_like(squared[:, :1]), cluster, rows * self.num_clusters)
        batch_variance = (class_sum(squared, cluster, rows * self.num_clusters) / count.clamp_min(1)).view_as(
            epoch_variance
        )
        count = count.view(rows, self.num_clusters)
        epoch_count = weight * self.class_count[place].unsqueeze(-1)
        share = (self.blend * count / epoch_count.clamp_min(1)).clamp_max(0.99).unsqueeze(-1)
        variance = share * batch_variance + (1 - share) * epoch_variance  # (R, K, D or 1)
        intra_mse, visible = within_class_spread(z, segments)
        nats = self.cluster_loss(variance, weight, count)
        class_loss = nats.sum(-1).masked_fill(~fitted, 0)  # (R,)
        loss = class_loss.sum() / fitted.sum().clamp_min(1) + visible

        with torch.no_grad():
            above = ((variance + self.gamma).log().mean(-1) > self.log_threshold) & (count > 0)
            held = count * fitted[:, None]
            diagnostics = {
                "active_classes": fitted.sum(),
                "skipped_classes": segments.num_classes - fitted.sum(),
                "threshold_share": (above * held).sum() / held.sum().clamp_min(1),
                "empty_clusters": ((weight == 0) & fitted[:, None]).sum(),
                "class_label": segments.label,
                "class_active": fitted,
                "class_loss": class_loss.detach(),
            }
        return SurrogateOutput(loss, intra_mse, diagnostics)

    def cluster_loss(self, variance: Tensor, weight: Tensor, count: Tensor) -> Tensor:
        """Each cluster's term (R, K) from variances (R, K, D or 1), weights and batch counts (R, K)."""
        if self.form == "reference":
            excess = ((variance.squeeze(-1) + self.gamma).log() - self.log_threshold).clamp_min(0)
            return weight * excess * (count > 0)
        log_det = torch.log1p(variance / self.noise_variance).sum(-1)
        return torch.special.entr(weight) + 0.5 * weight * log_det

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._fitted = bool(state_dict.get(prefix + "fits", torch.zeros(())) > 0)
