"""SlotMixtureCEM: the sound slot surrogate. Attention assigns, geometry measures, likelihood teaches."""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from attention_cem.surrogates.base import (
    ConditionalEntropySurrogate,
    SurrogateOutput,
    require_choice,
    require_positive,
    require_positive_int,
)
from attention_cem.surrogates.memory import ClassMemory, Places, storable
from attention_cem.surrogates.mixture import (
    ClassMixtures,
    component_share,
    expected_log_density,
    mixture_means,
    mixture_statistics,
    noise_entropy,
    shrink_variance,
    within_component_scatter,
)
from attention_cem.surrogates.seeding import greedy_plus_plus
from attention_cem.surrogates.segments import (
    ClassSegments,
    class_mean,
    class_sum,
    segment_classes,
    within_class_spread,
)

COVARIANCES = ("diagonal", "isotropic", "low_rank", "full")
OBJECTIVES = ("likelihood", "frozen")
_RESEEDING_TRIES = 4  # a single try ends in a poor optimum now and then


class SlotState(NamedTuple):
    """Where the slots of R classes stand."""

    mean: Tensor
    """(R, S, D)"""
    share: Tensor
    """(R, S)"""


class BankView(NamedTuple):
    """What the attention sees of a memory: made once, looked at in every round."""

    keys: Tensor
    """(R, K, key_dim)"""
    origin: Tensor
    """(R, 1, D): taken off samples and slots, for the rounding's sake"""
    scale: Tensor
    """(): the squared distance that counts as one, temperature included"""


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
        bank_size: features remembered per class; keep it below the samples a class has, since one that returns while
            it is remembered is measured against itself. max_age: steps after which they are not used.
        key_dim: width of keys and queries.
        objective: ``"likelihood"`` (W and t minimise the loss) or ``"frozen"``.
        mix_uniform: ε. shrinkage: pseudo-samples of the pooled variance in each slot's.
        reseed_every: calls between two tries of new slots.
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
        key_dim: int = 64,
        objective: str = "likelihood",
        mix_uniform: float = 0.01,
        shrinkage: float = 4.0,
        reseed_every: int = 100,
        seed: int = 0,
        label_space: int | None = None,
    ) -> None:
        super().__init__(feature_dim, label_space)
        self.num_slots = require_positive_int("num_slots", num_slots)
        self.num_iterations = require_positive_int("num_iterations", num_iterations)
        self.reseed_every = require_positive_int("reseed_every", reseed_every)
        self.objective = require_choice("objective", objective, OBJECTIVES)
        self.covariance = require_choice("covariance", covariance, COVARIANCES)
        self.rank = min(require_positive_int("rank", rank), feature_dim)
        self.shrinkage = require_positive("shrinkage", shrinkage)
        if not 0 <= mix_uniform < 1:
            raise ValueError(f"mix_uniform must lie in [0, 1), got {mix_uniform!r}")
        if covariance in ("full", "low_rank") and feature_dim > 2048:
            raise ValueError(f"covariance={covariance!r} needs feature_dim up to 2048, got {feature_dim}")
        self.mix_uniform = mix_uniform
        sigma = require_positive("reg_strength", reg_strength)
        self.noise_variance = sigma**2 if variance_floor is None else require_positive("variance_floor", variance_floor)
        self.memory = ClassMemory(feature_dim, num_classes, bank_size, max_age, label_space)
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
        self.register_buffer("basis", torch.eye(feature_dim) if self.rotated else torch.zeros(0))
        self.register_buffer("slot_mean", torch.zeros(num_classes + 1, num_slots, feature_dim))
        self.register_buffer("slot_share", torch.full((num_classes + 1, num_slots), 1 / num_slots))
        self.register_buffer("pooled_variance", torch.zeros(feature_dim))
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        scatter = torch.randn(num_slots, feature_dim, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("scatter", scatter, persistent=False)  # follows from the seed
        self._step = 0

    def estimate(self, z: Tensor, y: Tensor, only: Tensor | None = None) -> SurrogateOutput:
        """The loss of features (N, D) with labels (N,); in training mode they are remembered afterwards."""
        if self.training:
            self._maintain_if_due(z)  # before anything of this batch is computed: it changes buffers in place
        segments = segment_classes(y, label_space=self.label_space)
        row = segments.row
        places = self.memory.locate(segments)
        bank, valid = self.memory.read(places.place, self.calls)
        remembered = valid.any(1)  # (R,)
        active = remembered
        if only is not None:
            active = active & class_sum(only.to(torch.int64), row, segments.num_rows).bool()
        start = SlotState(*(t.index_select(0, places.place) for t in (self.slot_mean, self.slot_share)))
        assigned = self.attend(bank, valid, start)
        slots, mixtures = self.mixtures(bank, assigned)
        log_density = expected_log_density(self.rotate(z), row, mixtures, self.noise_variance)
        nats = -log_density / self.feature_dim - noise_entropy(self.noise_variance)  # (N,)
        counted = active.index_select(0, row)
        intra_mse, visible = within_class_spread(z, segments)
        loss = nats.masked_fill(~counted, 0).sum() / max(z.shape[0], 1) + visible

        with torch.no_grad():
            if self.training:
                self._remember(z, segments, places, slots, remembered)
            num_active = active.sum()
            per_class = 1 / num_active.clamp_min(1)
            class_loss = class_sum(nats.detach(), row, segments.num_rows) / segments.size.clamp_min(1)
            share = mixtures.share.detach()
            diagnostics = {
                "active_classes": num_active,
                "skipped_classes": segments.num_classes - num_active,
                "slot_usage_entropy": (torch.special.entr(share).sum(-1) * active).sum() * per_class,
                "dead_slots": ((share < 0.1 / self.num_slots) & active.unsqueeze(1)).sum(),
                "bank_fill": (valid.to(z.dtype).mean(1) * active).sum() * per_class,
                "class_label": segments.label,
                "class_active": active,
                "class_loss": class_loss,
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
                mass, mean = mixture_means(bank, self._mixed(self._looked_up(view, slots)) * weight)
                slots = SlotState(mean, component_share(mass))
        return self._looked_up(view, slots) * weight

    def responsibilities(self, bank: Tensor, slots: SlotState) -> Tensor:
        """One round of attention: (R, K, S)."""
        return self._looked_up(self._view(bank, slots), slots)

    def _view(self, bank: Tensor, slots: SlotState) -> BankView:
        # distances in units of the pooled within-slot variance, so that the temperature has no scale of its own
        scale = (self.pooled_variance.mean() + self.noise_variance) * self.key.square().sum(1).mean()
        origin = slots.mean.mean(1, keepdim=True)
        return BankView((bank - origin) @ self.key.T, origin, scale * self.log_temperature.exp())

    def _looked_up(self, view: BankView, slots: SlotState) -> Tensor:
        # what is the same for all slots of a sample, as its own length, drops out of the softmax
        queries = (slots.mean - view.origin) @ self.key.T
        scaled = queries / view.scale
        bias = torch.add(slots.share.log(), (queries * scaled).sum(-1), alpha=-0.5)
        return torch.baddbmm(bias.unsqueeze(1), view.keys, scaled.mT).softmax(-1)

    def _mixed(self, weights: Tensor) -> Tensor:
        return (1 - self.mix_uniform) * weights + self.mix_uniform / self.num_slots

    def mixtures(self, bank: Tensor, assigned: Tensor) -> tuple[SlotState, ClassMixtures]:
        """The slots that responsibilities (R, K, S) of samples (R, K, D) give, and their (rotated) mixtures."""
        mass, mean, variance = mixture_statistics(self.rotate(bank), assigned)
        if self.training:
            self._track_pooled_variance(mass.detach(), variance.detach())
        variance = shrink_variance(variance, mass, self.pooled_variance, self.shrinkage)
        if self.covariance == "isotropic":
            variance = variance.mean(-1, keepdim=True).expand_as(variance)
        elif self.covariance == "low_rank":
            own, rest = variance.tensor_split([self.rank], -1)
            variance = torch.cat([own, rest.mean(-1, keepdim=True).expand_as(rest)], -1)
        share = self._mixed(component_share(mass)).clamp_min(torch.finfo(mass.dtype).tiny)
        raw_mean = mean @ self.basis.T if self.rotated else mean
        return SlotState(raw_mean.detach(), share.detach()), ClassMixtures(share, mean, variance + self.noise_variance)

    def rotate(self, x: Tensor) -> Tensor:
        """Features in the axes in which the covariance is diagonal."""
        return x @ self.basis if self.rotated else x

    @torch.no_grad()
    def _track_pooled_variance(self, mass: Tensor, variance: Tensor) -> None:
        total = mass.sum()
        current = (mass.flatten() @ variance.flatten(0, 1)) / total.clamp_min(1e-12)
        # the first value is taken as it is; a batch without a memory changes nothing
        keep = torch.where(total > 0, 0.9 * (self.pooled_variance.sum() > 0), 1.0)
        self.pooled_variance.copy_(torch.lerp(current, self.pooled_variance, keep.to(current.dtype)))

    def _remember(self, z: Tensor, segments: ClassSegments, places: Places, slots: SlotState, active: Tensor) -> None:
        places = self.memory.write(z, segments, places, self.calls)
        # a class without a memory starts with slots scattered around its first samples
        usable = torch.where(storable(z).unsqueeze(1), z, 0)
        first = class_mean(usable, segments).unsqueeze(1) + self.scatter * self.pooled_variance.mean().sqrt()
        known = active[:, None, None]
        self.slot_mean.index_copy_(0, places.place, torch.where(known, slots.mean, first))
        share = torch.where(active[:, None], slots.share, 1 / self.num_slots)
        self.slot_share.index_copy_(0, places.place, share)

    def _maintain_if_due(self, z: Tensor) -> None:
        if torch.compiler.is_compiling() or (z.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        step, every = self._step, self.reseed_every
        if (step and step % every == 0) or (step < every and is_power_of_two(step)):
            self.maintain()
        self._step += 1

    @torch.no_grad()
    def maintain(self, chunk: int = 256) -> None:
        """Try slots seeded anew in every remembered class, and renew the principal axes.

        :meth:`forward` does this by itself every ``reseed_every`` calls, more often at the start; call it yourself
        where forward is compiled or replayed as a CUDA graph.
        """
        training = self.training
        scatter, samples = torch.zeros_like(self.basis), self.pooled_variance.new_zeros(())
        self.eval()  # the pooled variance follows batches, not this look around
        for begin in range(0, self.memory.max_classes, chunk):
            index = torch.arange(begin, min(begin + chunk, self.memory.max_classes), device=self.seed.device)
            bank, valid = self.memory.read(index, self.calls)
            current = SlotState(self.slot_mean[index], self.slot_share[index])
            (mean, share), kept = self._settled(bank, valid, current)
            keys, equal = bank @ self.key.T, torch.full_like(current.share, 1 / self.num_slots)
            for attempt in range(_RESEEDING_TRIES):
                picked = greedy_plus_plus(keys, valid, self.num_slots, self.seed + 1 + attempt, self.calls + begin)
                means = bank.gather(1, picked.unsqueeze(-1).expand(-1, -1, self.feature_dim))
                other, tried = self._settled(bank, valid, SlotState(means, equal))
                better = tried > kept
                mean = torch.where(better[:, None, None], other.mean, mean)
                share, kept = torch.where(better[:, None], other.share, share), torch.maximum(tried, kept)
            self.slot_mean[index], self.slot_share[index] = mean, share
            if self.rotated:
                scatter += within_component_scatter(bank, self.attend(bank, valid, SlotState(mean, share)))
                samples += valid.sum()
        if self.rotated:
            self._renew_basis(scatter / samples.clamp_min(1))
        self.train(training)

    def _settled(self, bank: Tensor, valid: Tensor, slots: SlotState) -> tuple[SlotState, Tensor]:
        """Slots after several rounds, and the log-likelihood (R,) of the class's memory under them."""
        for _ in range(4):
            assigned = self.attend(bank, valid, slots)
            slots, mixtures = self.mixtures(bank, assigned)
        likelihood = expected_log_density(self.rotate(bank), None, mixtures, self.noise_variance)
        return slots, (likelihood * valid).sum(-1)

    def _renew_basis(self, covariance: Tensor) -> None:
        scale, axes = torch.linalg.eigh(covariance)
        self.basis.copy_(axes.flip(-1))
        self.pooled_variance.copy_(scale.flip(-1).clamp_min(0))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._step = int(state_dict.get(prefix + "calls", 0))


def is_power_of_two(number: int) -> bool:
    """Whether ``number`` is 1, 2, 4, 8, …"""
    return number > 0 and number & (number - 1) == 0
