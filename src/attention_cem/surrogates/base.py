"""What every surrogate is: a module that maps features at the cut and their labels to a loss."""

import logging
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

logger = logging.getLogger("attention_cem")

_KIND_BYTES = 64


class SurrogateOutput(NamedTuple):
    """What a surrogate returns; weighting, scheduling and logging happen outside."""

    rob_loss: Tensor
    """Scalar, attached to the graph even when it is zero. Lower is more private."""
    intra_mse: Tensor
    """Scalar without gradient: the within-class mean squared spread of the raw features."""
    diagnostics: dict[str, Tensor]
    """Named, detached tensors on the features' device."""


def encode_kind(kind: str) -> Tensor:
    """The kind's name as a fixed-size uint8 tensor, so that plain tensor files can carry it."""
    name = kind.encode()
    return torch.tensor(list(name.ljust(_KIND_BYTES, b"\0")), dtype=torch.uint8)


def decode_kind(tag: Tensor) -> str:
    """Inverse of :func:`encode_kind`."""
    return bytes(tag.tolist()).rstrip(b"\0").decode(errors="replace")


class ConditionalEntropySurrogate(nn.Module):
    """Base of all surrogates: checks the input, keeps statistics in full precision, guards the state.

    A subclass sets ``kind`` and implements :meth:`estimate`. Its state lives in parameters and persistent
    buffers only, so that saving, loading and continuing is bit-identical.

    Not-a-number and infinite values are never hidden: they reach ``rob_loss`` and are counted in the buffer
    ``nonfinite_calls``; :func:`attention_cem.backward_at_cut` then trains the step without the surrogate.

    Args:
        feature_dim: D, the number of values in one sample's feature z.
        label_space: a promise that labels are 0 … label_space - 1; saves sorting them. None: any labels.
    """

    kind: ClassVar[str] = ""
    needs_fit: ClassVar[bool] = False
    """Whether the trainer must call ``fit`` with the client's features of the whole training set once an epoch."""
    higher_is_more_private: ClassVar[bool] = False
    uses_sample: bool = False
    """Whether :meth:`forward` must be given ``sample``, which it then hands to :meth:`estimate`."""
    compile_when_recorded: ClassVar[bool] = False
    """Whether compiling makes a recorded step so much faster that it is worth a minute at the start."""
    maintain_every: int = 400
    """Steps between two calls of :meth:`maintain`."""
    kind_tag: Tensor
    calls: Tensor
    nonfinite_calls: Tensor
    precision: Tensor

    def __init__(self, feature_dim: int, label_space: int | None = None) -> None:
        super().__init__()
        self.label_space = None if label_space is None else require_positive_int("label_space", label_space)
        self.feature_dim = require_positive_int("feature_dim", feature_dim)
        self.register_buffer("kind_tag", encode_kind(self.kind))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("nonfinite_calls", torch.zeros((), dtype=torch.int64))
        # Empty and not saved: it only remembers ``.double()`` where a surrogate has no floating-point state of its own.
        self.register_buffer("precision", torch.empty(0), persistent=False)

    def estimate(self, z: Tensor, y: Tensor, only: Tensor | None = None) -> SurrogateOutput:
        """Compute the loss from checked features (N, D) and labels (N,).

        ``only`` (N,) bool is false for all samples of the classes that shall not take part. A surrogate with
        ``uses_sample`` takes a further argument ``sample``.
        """
        raise NotImplementedError

    def fit(self, z: Tensor, y: Tensor) -> None:
        """Take in the features (N, D) of the whole training set; only where ``needs_fit`` is true."""
        raise NotImplementedError(f"{type(self).__name__} needs no fit")

    def maintain(self) -> None:
        """Rare work between batches; needed only where :meth:`forward` is compiled or replayed as a CUDA graph.

        It is due every ``maintain_every`` steps, and before that at steps 1, 2, 4, 8, …
        """

    def forward(
        self, z: Tensor, y: Tensor, only: Tensor | None = None, sample: Tensor | None = None
    ) -> SurrogateOutput:
        """Map features (N, D) or (N, C, H, W), any float dtype, and integer labels (N,) to a loss.

        ``sample`` (N,) are integers by which a sample is known whenever it returns, as its position in the training
        set; needed where ``uses_sample`` is true and not looked at otherwise.
        """
        flat, labels = check_features(z, y, self.feature_dim)
        require_full_precision(self.dtype)
        further = {"sample": check_sample(sample, labels)} if self.uses_sample else {}
        self.begin_call()
        with torch.autocast(device_type=z.device.type, enabled=False):
            output = self.estimate(flat.to(self.dtype), labels, only, **further)
        self.end_call(output)
        return output

    @torch.no_grad()
    def begin_call(self) -> None:
        """Count a call; for those that call `estimate` of another surrogate by themselves, as `forward` does."""
        if self.training:
            self.calls.add_(1)

    @torch.no_grad()
    def end_call(self, output: SurrogateOutput) -> None:
        """Count a call whose loss is not finite; see `begin_call`."""
        if self.training:
            self.nonfinite_calls.add_((~torch.isfinite(output.rob_loss)).to(torch.int64))
        output.diagnostics["nonfinite_calls"] = self.nonfinite_calls.clone()

    @property
    def dtype(self) -> torch.dtype:
        """The precision the surrogate computes in: float32, or float64 after ``.double()``."""
        state = (t for t in (*self.parameters(), *self.buffers()) if t is not self.precision and t.is_floating_point())
        return next(state, self.precision).dtype

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        tag = state_dict.get(prefix + "kind_tag")
        if tag is None:
            raise ValueError(f"this is not the state of a surrogate: it has no entry {prefix + 'kind_tag'!r}")
        found = decode_kind(tag)
        if found != self.kind:
            raise ValueError(f"this state belongs to a {found!r} surrogate, but it is loaded into a {self.kind!r}")
        super()._load_from_state_dict(state_dict, prefix, *args)


def check_features(z: Tensor, y: Tensor, feature_dim: int) -> tuple[Tensor, Tensor]:
    """Validate shapes and dtypes (never values: that would wait for the device) and flatten z to (N, D)."""
    if not isinstance(z, Tensor) or not z.is_floating_point():
        received = z.dtype if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(f"features must be a floating-point tensor, got {received}")
    if z.dim() < 2:
        raise ValueError(f"features must be (N, D) or (N, C, H, W), got shape {tuple(z.shape)}")
    _check_integers("labels", y)
    if y.dim() != 1 or y.shape[0] != z.shape[0]:
        raise ValueError(
            f"labels must be (N,) with one entry per feature: got labels {tuple(y.shape)} for features {tuple(z.shape)}"
        )
    if y.device != z.device:
        raise ValueError(f"features are on {z.device} but labels are on {y.device}; move them together")
    width = z[0].numel() if z.shape[0] else z.numel() if z.dim() == 2 else feature_dim
    if z.shape[0] and width != feature_dim:
        raise ValueError(
            f"feature_dim is {feature_dim}, but features of shape {tuple(z.shape)} hold {width} values per sample"
        )
    return z.reshape(z.shape[0], feature_dim), y.to(torch.int64)


def check_sample(sample: Tensor | None, labels: Tensor) -> Tensor:
    """Validate the ids of samples (never their values) against the labels (N,): int64 (N,)."""
    if sample is None:
        raise ValueError(
            "this surrogate tells samples apart (cross_fit): call it with sample=, an integer tensor (N,) that names "
            "each sample by the same number whenever it returns, as its position in the training set"
        )
    _check_integers("sample", sample)
    if sample.shape != labels.shape or sample.device != labels.device:
        raise ValueError(
            f"sample must be {tuple(labels.shape)} on {labels.device} as the labels are, "
            f"got {tuple(sample.shape)} on {sample.device}"
        )
    return sample.to(torch.int64)


def _check_integers(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor) or value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        received = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{name} must be an integer tensor (int64), got {received}")


def require_full_precision(dtype: torch.dtype) -> None:
    """Refuse state in half precision: variances and logarithms of it are wrong, or not a number, without a word."""
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"a surrogate computes in float32 or float64, but its state is {dtype}: call .float() on it; "
            "features may have any floating-point dtype"
        )


def require_positive_int(name: str, value: int) -> int:
    """Return ``value`` or raise a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return value


def require_count(name: str, value: int) -> int:
    """Return ``value``, zero or more, or raise a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number and not negative, got {value!r}")
    return value


def require_positive(name: str, value: float) -> float:
    """Return ``value`` as a float or raise a ValueError that names it."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def require_momentum(value: float) -> float:
    """Return the share of the old in a running mean, or raise a ValueError."""
    if not 0 <= value < 1:
        raise ValueError(f"momentum must lie in [0, 1), got {value!r}")
    return value


def require_flag(name: str, value: bool) -> bool:
    """Return ``value`` or raise a ValueError that names it."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return value


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return ``value`` or raise a ValueError that lists the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value
