"""What a linear attacker recovers of the validation images, once an epoch, from the pass that scores them anyway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite, prod
from typing import NamedTuple

import torch
from torch import Tensor

from attention_cem.data import Batches
from attention_cem.data.exact_products import exact_products
from attention_cem.defences import DefenceStack
from attention_cem.training.distributed import World

MOST_FEATURES = 2048  # the solve grows with the cube
MOST_IMAGES = 16_384  # more make the figures no better
MOST_VALUES = 1 << 27  # float32 values held at once: 512 MiB

RIDGES = (0.0, 1e-3, 1e-2, 1e-1, 1.0)  # shares of the mean variance of z to choose among
FEW_IMAGES = 2  # images fitted on for a value of z, below which it learns much less than more would teach it

Covariances = tuple[Tensor, Tensor, Tensor]
"""Within-class C_zz (D, D), C_zx (D, P) and tr C_xx ()."""


class Leakage(NamedTuple):
    """One epoch's figures; None where they could not be measured."""

    share: float | None
    mse: float | None


class Halves(NamedTuple):
    """Which image helps to fit the attacker, and which to score it. A *row* is one class in one half."""

    row: Tensor
    """(N,) int64: the row of each image; -1 for images of a class that has fewer than two in that half."""
    size: Tensor
    """(R,) int64: images of each row, at least two."""
    first_rows: int
    """So many rows, the first ones, belong to the half that is fitted on."""


def assign_halves(labels: Tensor, most: int = MOST_IMAGES) -> Halves:
    """The images of every class by turns to one half and the other: a function of the labels (N,) alone.

    From a larger set every k-th image of each class is taken, so that about ``most`` remain.

    >>> halves = assign_halves(torch.tensor([5, 5, 5, 5, 9, 5, 9]))
    >>> halves.row.tolist(), halves.size.tolist(), halves.first_rows
    ([0, 1, 0, 1, -1, 0, -1], [3, 2], 1)
    """
    _, label, count = labels.unique(return_inverse=True, return_counts=True)
    order = label.argsort(stable=True)
    turn = torch.empty_like(order)
    turn[order] = torch.arange(len(labels)) - (count.cumsum(0) - count)[label[order]]  # its number within its class
    stride = -(-len(labels) // most)
    half = turn // stride % 2
    key = torch.where(turn % stride == 0, half * len(count) + label, 2 * len(count))
    size = key.bincount(minlength=2 * len(count) + 1)[:-1]
    kept = size >= 2
    row = torch.cat([torch.where(kept, kept.cumsum(0) - 1, -1), torch.tensor([-1])])
    return Halves(row[key], size[kept], int(kept[: len(count)].sum()))


@torch.no_grad()
def held_out_leakage(fitted: Covariances, held: Covariances, noise_variance: float, freedom: int) -> Tensor:
    r"""Share of the within-class variance of x recovered, and the mean squared error per pixel: (2,).

    .. math::
        W=(C_{zz}+(\sigma^2+r)I)^{-1}C_{zx}, \qquad
        e=\mathrm{tr}(C'_{xx}-2W^\top C'_{zx}+W^\top C'_{zz}W)+\sigma^2\lVert W\rVert^2, \qquad
        \mathrm{share}=1-e/\mathrm{tr}\,C'_{xx}

    where C belongs to the images that were fitted on and C' to the held-out ones; e is the expectation over the noise.
    The ridge r beyond the noise is nothing, or a share of the mean variance, whichever has the least error by
    generalised cross-validation on the images fitted on: with few of them for the values of z, W would else learn them
    by heart and recover nothing of others. An attacker who does worse than guessing the class's mean image guesses
    that: the share is never below 0. NaN where there is no solution.

    Args:
        fitted: covariances of the half that the attacker learns from.
        held: covariances of the half it is scored on.
        noise_variance: σ², of the noise that is added to z.
        freedom: images that were fitted on, less one for each class.

    >>> one = torch.eye(2), torch.eye(2), torch.tensor(2.0)   # z is x
    >>> held_out_leakage(one, one, noise_variance=1.0, freedom=1000)
    tensor([0.5000, 0.5000])
    """
    zz, zx, fitted_total = fitted
    held_zz, held_zx, total = held
    precision = torch.finfo(zz.dtype)
    usable = torch.isfinite(zz).all()
    strength, axes = torch.linalg.eigh(torch.where(usable, zz, torch.eye(len(zz), dtype=zz.dtype, device=zz.device)))
    strength = strength.clamp_min(0)
    # Without noise zz may have no inverse: rounding is relative to its largest direction, and the trace bounds that.
    least = noise_variance + (1e-5 / len(zz) + 8 * precision.eps) * strength.sum() + precision.tiny
    ridge = least + strength.mean() * torch.tensor(RIDGES, dtype=zz.dtype, device=zz.device)
    damping = 1 / (strength + ridge.unsqueeze(1))  # (ridges, D)
    along = axes.T @ zx
    energy, seen = along.square().sum(1), strength + noise_variance
    left = fitted_total - (energy * damping * (2 - seen * damping)).sum(1)
    spare = (1 - (seen * damping).sum(1) / freedom).clamp_min(precision.eps)
    chosen = damping[(left / spare.square()).argmin()]
    weight = torch.where(usable, axes @ (along * chosen.unsqueeze(1)), torch.nan)
    error = total + (weight * (held_zz @ weight - 2 * held_zx)).sum() + noise_variance * weight.square().sum()
    share = (1 - error / total.clamp_min(torch.finfo(total.dtype).tiny)).clamp(0, 1)
    return torch.stack([share, (1 - share) * total / zx.shape[1]])


class _Part(NamedTuple):
    """Images of one batch that belong to one half."""

    place: Tensor
    row: Tensor
    scale: Tensor


class LeakageMonitor:
    """A closed-form attacker that looks on while a run validates: it brackets the leakage from below.

    The attacker is linear, knows the class, learns from one half of the validation images (the clean emission z, the
    stack's σ² and what cross-validation adds to it as ridge) and is scored on the other half, with the noise. Any other
    attacker that is better shows that more leaks: ``leakage_share`` is a lower end, in shares of the within-class
    variance of x (0 to 1). The upper end is the ``rob_loss`` of `SlotMixtureCEM`: what is released tells at most so
    many *nats* per value of z, on the training batches. The two ends have different units and cannot be subtracted; a
    defence lowers both.

    Clipping, dropout and pruning are not modelled: with them the attacker is given more than is released. Where the
    noise depends on the input (`DefenceStack.noise_variance` is None) it learns from what was released instead.

    Nothing is done at a training step. A pass costs a few matrix products, one decomposition and one wait for the
    device at the end, in float32 whatever the precision of training; images are taken as they come, from wherever
    they lie. Several processes sum their parts, and all of them get the same figures.

    Args:
        stack: the run's defences.
        batches: this rank's validation images, in order.
        z_shape: of one feature. image_shape: of one image.
        world: the processes that share the images.

    >>> from attention_cem.data import load_data
    >>> batches = Batches(load_data("synthetic", limit=80).train, 32, shuffle=False)
    >>> monitor = LeakageMonitor(DefenceStack(), batches, (4096,), batches.image_set.image_shape, World())
    >>> monitor.begin(), monitor.obstacle
    (None, 'z has 4,096 values, more than 2,048')
    """

    def __init__(
        self, stack: DefenceStack, batches: Batches, z_shape: Sequence[int], image_shape: Sequence[int], world: World
    ) -> None:
        self.stack, self.world, self.device = stack, world, batches.device
        self.feature_dim, self.image_dim = prod(z_shape), prod(image_shape)
        halves = assign_halves(batches.image_set.labels.cpu())
        self.size, self.first_rows = halves.size.to(self.device), halves.first_rows
        sizes = halves.size.split([halves.first_rows, len(halves.size) - halves.first_rows])
        self.counts = [int(size.sum()) for size in sizes]
        self.obstacle = self._obstacle()
        self.scored_classes = len(sizes[1])
        self.classes = len(batches.image_set.labels.unique())
        self._batches = batches
        self.plan: list[tuple[_Part, _Part]] = []
        self.image_mean: Tensor | None = None
        if self.obstacle is None:
            scale = (halves.size / (halves.size - 1)).sqrt()
            for places in _own_places(batches):
                row = halves.row[places]
                first, second = (row >= 0) & (row < halves.first_rows), row >= halves.first_rows
                self.plan.append((self._part(first, row, scale), self._part(second, row, scale)))

    def begin(self) -> LeakagePass | None:
        """A new pass over the validation images, or None where nothing can be measured: see ``obstacle``."""
        if self.obstacle is not None:
            return None
        if self.image_mean is None:
            self.image_mean = self._image_means()
        return LeakagePass(self, self.image_mean)

    def remark(self) -> str | None:
        """What a person should know before the figures come; None where every class takes part, with many images."""
        if self.obstacle is not None:
            return f"leakage_share and leakage_mse are not measured: {self.obstacle}"
        remarks = []
        if self.scored_classes < self.classes:
            remarks.append(
                f"leakage_share and leakage_mse are scored on {self.scored_classes} of {self.classes} classes: "
                "the others have fewer than two validation images in a half"
            )
        if self.counts[0] < FEW_IMAGES * self.feature_dim:
            remarks.append(
                f"leakage_share reads too low: its attacker learns from {self.counts[0]:,} validation images what to "
                f"do with {self.feature_dim:,} values of z; compare it between runs like this, and audit"
            )
        return "; ".join(remarks) or None

    def _obstacle(self) -> str | None:
        features, values = self.feature_dim, self.image_dim
        if features > MOST_FEATURES:
            return f"z has {features:,} values, more than {MOST_FEATURES:,}"
        if not all(self.counts):
            return "the validation images do not hold two images of a class in each half of them"
        held = 2 * features * (features + values) + len(self.size) * (features + values) + sum(self.counts) * features
        if held > MOST_VALUES:
            most = MOST_VALUES >> 18
            return f"it would take {held >> 18:,} MiB for images of {values:,} values, more than {most:,} MiB"
        return None

    def _part(self, chosen: Tensor, row: Tensor, scale: Tensor) -> _Part:
        place = chosen.nonzero().flatten()
        rows = row[place]
        return _Part(*(each.to(self.device) for each in (place, rows, scale[rows].unsqueeze(1))))

    @torch.no_grad()
    def _image_means(self) -> Tensor:
        """Mean image of every row: (R, P). The images do not change from epoch to epoch, so neither does this."""
        total = torch.zeros(len(self.size), self.image_dim, device=self.device)
        seen = (images for images, labels in self._batches(epoch=0) if len(labels))
        for images, parts in zip(seen, self.plan, strict=True):
            for part in parts:
                total.index_add_(0, part.row, images.flatten(1).index_select(0, part.place))
        return self.world.sum_(total) / self.size.unsqueeze(1)


class LeakagePass:
    """One pass over the validation images; made by `LeakageMonitor.begin`."""

    def __init__(self, monitor: LeakageMonitor, image_mean: Tensor) -> None:
        self._monitor, self._image_mean = monitor, image_mean
        self._noise_variance = monitor.stack.noise_variance()
        features, values, device = monitor.feature_dim, monitor.image_dim, monitor.device
        self._zx = torch.zeros(2, features, values, device=device)
        self._xx = torch.zeros(2, device=device)
        self._sum_z = torch.zeros(len(monitor.size), features, device=device)
        self._features: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def add(self, images: Tensor, z: Tensor, released: Tensor) -> None:
        """Take the next batch: images (n, C, H, W), the client's output z and what the defences made of it."""
        monitor = self._monitor
        seen = released if self._noise_variance is None else monitor.stack.emission(z)
        flat, pixels = seen.flatten(1).float(), images.flatten(1).float()
        parts = monitor.plan[len(self._features)]
        own = []
        with exact_products(flat.device):
            for half, (place, row, scale) in enumerate(parts):
                features = flat.index_select(0, place)
                of_x = (pixels.index_select(0, place) - self._image_mean.index_select(0, row)) * scale
                # Deviations of x sum to zero in every row, so those of z need not be known yet.
                self._zx[half].addmm_((features * scale).T, of_x)
                self._xx[half] += of_x.square().sum()
                self._sum_z.index_add_(0, row, features)
                own.append(features)
        self._features.append((own[0], own[1]))

    @torch.no_grad()
    def finish(self) -> Leakage:
        """The figures of the pass, None if z was not finite or has no decomposition; the only wait for the device."""
        monitor, world = self._monitor, self._monitor.world
        zx, xx, mean_z = (world.sum_(each) for each in (self._zx, self._xx, self._sum_z))
        mean_z /= monitor.size.unsqueeze(1)
        zz = torch.zeros(2, monitor.feature_dim, monitor.feature_dim, device=monitor.device)
        with exact_products(mean_z.device):
            for parts, features in zip(monitor.plan, self._features, strict=True):
                for half, ((_, row, scale), own) in enumerate(zip(parts, features, strict=True)):
                    of_z = (own - mean_z.index_select(0, row)) * scale
                    zz[half].addmm_(of_z.T, of_z)
            world.sum_(zz)
            fitted, held = ((zz[h] / n, zx[h] / n, xx[h] / n) for h, n in enumerate(monitor.counts))
            freedom = max(1, monitor.counts[0] - monitor.first_rows)
            try:
                figures = held_out_leakage(fitted, held, self._noise_variance or 0.0, freedom).tolist()
            except torch.linalg.LinAlgError:  # an iteration that does not end well: no figure, but no end of a training
                return Leakage(None, None)
        return Leakage(*figures) if all(map(isfinite, figures)) else Leakage(None, None)


def _own_places(batches: Batches) -> Iterator[Tensor]:
    """Positions in the image set of this rank's part of every batch; parts without an image are left out."""
    for whole in batches.order(epoch=0).split(batches.batch_size):
        n, rank, size = len(whole), batches.rank, batches.world_size
        part = whole[rank * n // size : (rank + 1) * n // size]
        if len(part):
            yield part
