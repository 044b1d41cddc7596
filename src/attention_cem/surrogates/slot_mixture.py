"""SlotMixtureCEM: the sound slot surrogate. Attention assigns, geometry measures, likelihood teaches."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attention_cem.surrogates.base import (
    ConditionalEntropySurrogate,
    SurrogateOutput,
    check_sample,
    require_choice,
    require_flag,
    require_positive,
    require_positive_int,
)
from attention_cem.surrogates.folds import (
    FOLDS,
    for_rows,
    rows_in_axes,
    sample_fold,
    samples_in_axes,
    within_slot_variance,
)
from attention_cem.surrogates.memory import ClassMemory, Folded, Places, storable
from attention_cem.surrogates.mixture import (
    LEAST_MASS,
    ClassMixtures,
    component_share,
    expected_log_density,
    mixture_means,
    mixture_statistics,
    noise_entropy,
    shrink_variance,
)
from attention_cem.surrogates.repetition import is_due
from attention_cem.surrogates.segments import (
    ClassSegments,
    class_mean,
    class_sum,
    segment_classes,
    split_segments,
    within_class_spread,
)
from attention_cem.surrogates.slot_lookup import BankView, SlotState, bank_view, slot_responsibilities
from attention_cem.surrogates.slot_renewal import renew_slots

COVARIANCES = ("diagonal", "isotropic", "low_rank", "full")
OBJECTIVES = ("likelihood", "frozen")


class SlotMixtureCEM(ConditionalEntropySurrogate):
    r"""Cross-entropy of z under a slot mixture of its class, in nats per dimension above the noise floor.

    Slots of a class attend to a memory of the class's earlier features: with keys :math:`k_m=Wz_m` and queries
    :math:`q_s=W\mu_s`,

    .. math::
        r_{ms} = \mathrm{softmax}_s\!\left(\log\pi_s-\lVert k_m-q_s\rVert^2/2t^2\right),
        \qquad \mu_s=\frac{\sum_m r_{ms}z_m}{\sum_m r_{ms}},

    repeated T times from the class's last slots. The responsibilities' statistics of *raw* z give the mixture
    :math:`b(z|y)=\sum_s\pi_sN(\mu_s,\Sigma_s+\sigma_p^2I)`, and

    .. math:: \mathrm{rob\_loss} = \frac1{ND}\sum_n -\log b(\hat z_n|y_n) \;-\; \tfrac12\log(2\pi e\,\sigma_p^2),

    where :math:`\hat z` is z with the noise (its expectation is taken in closed form). Because b is a normalised
    density fitted on *other* samples, this is an upper bound on :math:`I(z;\hat z|y)/D` for any parameters
    (the conditional entropy bottleneck, Fischer 2020; Theorem 2 of arXiv 2503.00383). The client and the estimator
    both minimise it and neither can cheat: better slots only tighten the bound.

    Components cannot die or swallow a class: :math:`\pi_s` is mixed with :math:`\epsilon/S`, and so is :math:`r_{ms}`
    in all rounds but the last (whose statistics far modes must not blur); variances are recomputed from the memory and
    never drift; and at intervals each class tries slots seeded anew by k-means++ and keeps them if they explain its
    memory better.

    With ``cross_fit`` "other" is kept to the letter where samples return, as those of a training set do every epoch:
    each sample belongs to one of two halves of its class (`sample_fold`), is remembered in its own and measured against
    the memory, slots, pooled variance and axes of the other. Nothing of a sample's past is then in its mixture (W and t
    are learned from all samples), and a half holds each sample once. A sample whose other half holds nothing adds
    nothing to the loss, as one of a class without a memory; ``skipped_samples`` counts them.

    Args:
        feature_dim: D, values per sample at the cut.
        num_classes: places in the memory; with more labels the least recently seen class gives way.
        num_slots: S. num_iterations: T.
        reg_strength: σ, standard deviation of the noise at the cut.
        variance_floor: :math:`\sigma_p^2`; default σ².
        covariance: ``"diagonal"``, ``"isotropic"``, ``"full"`` (diagonal in the principal axes of the pooled
            within-slot covariance: the log-determinant of correlated features; D up to 2,048) or ``"low_rank"``
            (the first ``rank`` principal axes have their own variances, the rest share one).
        rank: for ``"low_rank"``.
        bank_size: features remembered per class. max_age: steps after which they are not used.
        cross_fit: never measure a sample against itself; :meth:`forward` then needs ``sample``. Without it the bound is
            too low where a sample often returns while it is remembered: keep ``bank_size`` to a tenth of the samples a
            class has.
        key_dim: width of keys and queries.
        objective: ``"likelihood"`` (W and t minimise the loss) or ``"frozen"``.
        mix_uniform: ε. shrinkage: pseudo-samples of the pooled variance in each slot's.
        reseed_every: calls between two tries of new slots, in up to 128 classes at a time (64 with ``cross_fit``).
        seed: of W and of the k-means++ seeding.
        label_space: a promise that labels are 0 … label_space - 1; saves sorting them.

    >>> surrogate = SlotMixtureCEM(feature_dim=16, num_classes=4)
    >>> y = torch.arange(32) % 4
    >>> first = surrogate(torch.randn(32, 16), y)   # nothing remembered yet
    >>> second = surrogate(torch.randn(32, 16), y)
    >>> int(first.diagnostics["active_classes"]), int(second.diagnostics["active_classes"])
    (0, 4)
    >>> bool(second.rob_loss > 0)
    True
    """

    kind: ClassVar[str] = "slot_mixture"
    basis: Tensor
    seed: Tensor
    scatter: Tensor
    slot_mean: Tensor
    slot_share: Tensor
    pooled_variance: Tensor
    log_temperature: Tensor
    key: Tensor
    next_row: Tensor

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        *,
        num_slots: int = 4,
        num_iterations: int = 2,
        reg_strength: float = 0.025,
        variance_floor: float | None = None,
        covariance: str = "diagonal",
        rank: int = 32,
        bank_size: int = 128,
        max_age: int | None = None,
        cross_fit: bool = False,
        key_dim: int = 64,
        objective: str = "likelihood",
        mix_uniform: float = 0.01,
        shrinkage: float = 4.0,
        reseed_every: int = 400,
        seed: int = 0,
        label_space: int | None = None,
    ) -> None:
        super().__init__(feature_dim, label_space)
        self.num_slots = require_positive_int("num_slots", num_slots)
        self.num_iterations = require_positive_int("num_iterations", num_iterations)
        self.maintain_every = require_positive_int("reseed_every", reseed_every)
        self.objective = require_choice("objective", objective, OBJECTIVES)
        self.covariance = require_choice("covariance", covariance, COVARIANCES)
        self.rank = min(require_positive_int("rank", rank), feature_dim)
        self.shrinkage = require_positive("shrinkage", shrinkage)
        if not 0 <= mix_uniform < 1:
            raise ValueError(f"mix_uniform must lie in [0, 1), got {mix_uniform!r}")
        if covariance in ("full", "low_rank") and feature_dim > 2048:
            raise ValueError(f"covariance={covariance!r} needs feature_dim up to 2048, got {feature_dim}")
        self.mix_uniform = mix_uniform
        self.uses_sample = self.cross_fit = require_flag("cross_fit", cross_fit)
        sigma = require_positive("reg_strength", reg_strength)
        self.noise_variance = sigma**2 if variance_floor is None else require_positive("variance_floor", variance_floor)
        folds = FOLDS if cross_fit else 1
        self.memory = ClassMemory(feature_dim, num_classes, bank_size, max_age, label_space, folds)
        key_dim = min(require_positive_int("key_dim", key_dim), feature_dim)
        key = torch.empty(key_dim, feature_dim)
        nn.init.orthogonal_(key, generator=torch.Generator().manual_seed(seed))
        log_temperature = torch.zeros(())
        if objective == "likelihood":
            self.key, self.log_temperature = nn.Parameter(key), nn.Parameter(log_temperature)
        else:
            self.register_buffer("key", key)
            self.register_buffer("log_temperature", log_temperature)
        self.rotated = covariance in ("full", "low_rank")
        rows, own = (num_classes + 1) * folds, (FOLDS,) if cross_fit else ()  # what the folds must not share
        self.register_buffer("basis", torch.eye(feature_dim).repeat(*own, 1, 1) if self.rotated else torch.zeros(0))
        self.register_buffer("slot_mean", torch.zeros(rows, num_slots, feature_dim))
        self.register_buffer("slot_share", torch.full((rows, num_slots), 1 / num_slots))
        self.register_buffer("pooled_variance", torch.zeros(*own, feature_dim))
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        scatter = torch.randn(num_slots, feature_dim, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("scatter", scatter, persistent=False)  # follows from the seed
        self.register_buffer("next_row", torch.zeros((), dtype=torch.int64))
        self._step, self._next_row = 0, 0  # the same on the host, which need not ask the device

    def estimate(
        self, z: Tensor, y: Tensor, only: Tensor | None = None, sample: Tensor | None = None
    ) -> SurrogateOutput:
        """The loss of features (N, D) with labels (N,); in training mode they are remembered afterwards."""
        if self.training:
            self._maintain_if_due(z)  # before anything of this batch is computed: it changes buffers in place
        segments = segment_classes(y, label_space=self.label_space)
        # rows are classes or, with cross_fit, their folds; samples are written in one and measured with another
        written, measured, folded, fold = segments, segments.row, None, None
        if self.cross_fit:
            sample = check_sample(sample, y)
            fold = 1 - sample_fold(sample)
            written, measured = split_segments(segments, 1 - fold, FOLDS), FOLDS * segments.row + fold
            folded = Folded(written, sample)
        places = self.memory.locate(segments)
        rings = self.memory.rings(places.place)
        bank, valid = self.memory.read(rings, self.calls)
        remembered = valid.any(1)  # (R,)
        active = remembered
        if only is not None:
            active = active & class_sum(only.to(torch.int64), measured, written.num_rows).bool()
        start = SlotState(*(t.index_select(0, rings) for t in (self.slot_mean, self.slot_share)))
        assigned = self.attend(bank, valid, start)
        slots, mixtures = self.mixtures(bank, assigned)
        log_density = expected_log_density(self.rotate(z, fold), measured, mixtures, self.noise_variance)
        nats = -log_density / self.feature_dim - noise_entropy(self.noise_variance)  # (N,)
        counted = active.index_select(0, measured)
        intra_mse, visible = within_class_spread(z, segments)
        loss = nats.masked_fill(~counted, 0).sum() / max(z.shape[0], 1) + visible

        with torch.no_grad():
            if self.training:
                self._remember(z, segments, folded, places, slots, remembered)
            nats, share = nats.detach(), mixtures.share.detach()
            size, class_active, diagnostics = segments.size, active, {}
            if self.cross_fit:  # a class may be measured in part, and a memory be there for nobody
                nats = nats.masked_fill(~counted, 0)
                size = class_sum(counted.to(torch.int64), segments.row, segments.num_rows)
                class_active = size > 0
                active = active & (class_sum(torch.ones_like(measured), measured, written.num_rows) > 0)
                diagnostics["skipped_samples"] = (~counted).sum()
            num_active, per_row = class_active.sum(), 1 / active.sum().clamp_min(1)
            diagnostics |= {
                "active_classes": num_active,
                "skipped_classes": segments.num_classes - num_active,
                "slot_usage_entropy": (torch.special.entr(share).sum(-1) * active).sum() * per_row,
                "dead_slots": ((share < 0.1 / self.num_slots) & active.unsqueeze(1)).sum(),
                "bank_fill": (valid.to(z.dtype).mean(1) * active).sum() * per_row,
                "class_label": segments.label,
                "class_active": class_active,
                "class_loss": class_sum(nats, segments.row, segments.num_rows) / size.clamp_min(1),
            }
        return SurrogateOutput(loss, intra_mse, diagnostics)

    def attend(self, bank: Tensor, valid: Tensor, slots: SlotState) -> Tensor:
        """Responsibilities (R, K, S) of slots for remembered samples (R, K, D), T rounds on.

        Only the last round is differentiated: it is the fixed point's own map, the others only lead to it.
        """
        weight = valid.to(bank.dtype).unsqueeze(-1)
        view = self._view(bank, slots)
        with torch.no_grad():
            for _ in range(self.num_iterations - 1):
                mass, mean = mixture_means(bank, self._mixed(slot_responsibilities(view, slots, self.key)) * weight)
                slots = SlotState(mean, component_share(mass))
        return slot_responsibilities(view, slots, self.key) * weight

    def responsibilities(self, bank: Tensor, slots: SlotState) -> Tensor:
        """One round of attention: (R, K, S)."""
        return slot_responsibilities(self._view(bank, slots), slots, self.key)

    def _view(self, bank: Tensor, slots: SlotState) -> BankView:
        # distances in units of the pooled within-slot variance, so that the temperature has no scale of its own
        scale = (self._pooled_level(bank.shape[0]) + self.noise_variance) * self.key.square().sum(1).mean()
        return bank_view(bank, slots, self.key, scale * self.log_temperature.exp())

    def _pooled_level(self, rows: int) -> Tensor:
        """Mean over the dimensions of the pooled variance: (), or (R, 1, 1) where rows have folds."""
        if not self.cross_fit:
            return self.pooled_variance.mean()
        return for_rows(self.pooled_variance.mean(-1), rows)[:, None, None]

    def _mixed(self, weights: Tensor) -> Tensor:
        return (1 - self.mix_uniform) * weights + self.mix_uniform / self.num_slots

    def mixtures(self, bank: Tensor, assigned: Tensor) -> tuple[SlotState, ClassMixtures]:
        """The slots that responsibilities (R, K, S) of samples (R, K, D) give, and their (rotated) mixtures."""
        mass, mean, variance = mixture_statistics(self.rotate(bank), assigned)
        if self.training:
            self._track_pooled_variance(*(t.detach() for t in (assigned, mass, mean, variance)))
        pooled = for_rows(self.pooled_variance, len(bank)).unsqueeze(1) if self.cross_fit else self.pooled_variance
        variance = shrink_variance(variance, mass, pooled, self.shrinkage)
        if self.covariance == "isotropic":
            variance = variance.mean(-1, keepdim=True).expand_as(variance)
        elif self.covariance == "low_rank":
            own, rest = variance.tensor_split([self.rank], -1)
            variance = torch.cat([own, rest.mean(-1, keepdim=True).expand_as(rest)], -1)
        share = self._mixed(component_share(mass)).clamp_min(torch.finfo(mass.dtype).tiny)
        raw_mean = self._turned(mean, self.basis.mT) if self.rotated else mean
        return SlotState(raw_mean.detach(), share.detach()), ClassMixtures(share, mean, variance + self.noise_variance)

    def rotate(self, x: Tensor, fold: Tensor | None = None) -> Tensor:
        """Features in the axes in which the covariance is diagonal: of a memory, or of samples with their ``fold``."""
        if not self.rotated:
            return x
        return self._turned(x, self.basis) if fold is None else samples_in_axes(x, self.basis, fold)

    def _turned(self, x: Tensor, axes: Tensor) -> Tensor:
        return rows_in_axes(x, axes) if self.cross_fit else x @ axes

    @torch.no_grad()
    def _track_pooled_variance(self, assigned: Tensor, mass: Tensor, mean: Tensor, variance: Tensor) -> None:
        if self.cross_fit:  # each fold has its own
            current, samples = within_slot_variance(assigned, mass, mean, variance)
            known, some = self.pooled_variance.sum(-1, keepdim=True) > 0, samples > LEAST_MASS
        else:
            total = mass.sum()
            current = (mass.flatten() @ variance.flatten(0, 1)) / total.clamp_min(1e-12)
            known, some = self.pooled_variance.sum() > 0, total > 0
        # the first value is taken as it is; a batch without a memory changes nothing
        keep = torch.where(some, 0.9 * known, 1.0)
        self.pooled_variance.copy_(torch.lerp(current, self.pooled_variance, keep.to(current.dtype)))

    def _remember(
        self,
        z: Tensor,
        segments: ClassSegments,
        folded: Folded | None,
        places: Places,
        slots: SlotState,
        remembered: Tensor,
    ) -> None:
        places = self.memory.write(z, segments, places, self.calls, folded)
        written = segments if folded is None else folded.segments
        rings = self.memory.rings(places.place)
        # a class without a memory starts with slots scattered around its first samples
        usable = torch.where(storable(z).unsqueeze(1), z, 0)
        first = class_mean(usable, written).unsqueeze(1) + self.scatter * self._pooled_level(written.num_rows).sqrt()
        self.slot_mean.index_copy_(0, rings, torch.where(remembered[:, None, None], slots.mean, first))
        self.slot_share.index_copy_(0, rings, torch.where(remembered[:, None], slots.share, 1 / self.num_slots))

    def _maintain_if_due(self, z: Tensor) -> None:
        if torch.compiler.is_compiling() or (z.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        if is_due(self._step, self.maintain_every):
            self.maintain()
        self._step += 1

    def maintain(self) -> None:
        """Try slots seeded anew in the remembered classes, 128 at a time in turn, and renew the principal axes.

        :meth:`forward` does this by itself every ``reseed_every`` calls, more often at the start; call it yourself
        where forward is compiled or replayed as a CUDA graph.
        """
        training = self.training
        self.eval()  # the pooled variance follows batches, not this look around
        with torch.autocast(self.slot_mean.device.type, enabled=False):  # as in forward, whoever calls
            self._next_row = renew_slots(self, self._next_row)
        self.next_row.fill_(self._next_row)
        self.train(training)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._step = int(state_dict.get(prefix + "calls", 0))
        self._next_row = int(state_dict.get(prefix + "next_row", 0))
