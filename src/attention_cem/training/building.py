"""From a configuration to the objects of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from attention_cem.data import Augment, Batches, ImageData, ImageSet, load_data, split_validation
from attention_cem.data.layout import prefers_channels_last
from attention_cem.defences import DefenceStack, build_stack, model_context
from attention_cem.splitting import BlindInput, Bottleneck, SplitModel, build_split_model, z_shape_of
from attention_cem.surrogates import build_surrogate
from attention_cem.surrogates.base import ConditionalEntropySurrogate
from attention_cem.surrogates.registry import surrogate_defaults
from attention_cem.training.config import Config, DataConfig, ModelConfig
from attention_cem.training.config_checks import ConfigError
from attention_cem.training.distributed import World
from attention_cem.training.randomness import seed_stream

DEFAULT_SIGMA = 0.025


def resolve_device(name: str, local_rank: int = 0) -> torch.device:
    """The device a configuration names; ``auto`` is this rank's CUDA device if there is one, else the CPU.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"run.device must be auto, cpu, cuda or cuda:N, got {name!r}") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"run.device must be auto, cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"run.device is {name!r}, but no CUDA device is available")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", local_rank)
    return device


@contextmanager
def fast_arithmetic(device: torch.device) -> Iterator[None]:
    """TF32 and the fastest convolutions on CUDA inside the block; the former settings afterwards."""
    if device.type != "cuda":
        yield
        return
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark


def uses_bf16(config: Config, device: torch.device) -> bool:
    """Whether client and server run in bf16 autocast: on CUDA unless fp32 is asked for."""
    if config.train.precision == "bf16" and device.type != "cuda":
        raise ConfigError(f"train.precision 'bf16' needs a CUDA device, the run is on {device}")
    return device.type == "cuda" and config.train.precision != "fp32"


def uses_cuda_graph(config: Config, device: torch.device, world: World) -> bool:
    """Whether the step is recorded; what cannot be done is refused if asked for, and left out if ``auto``."""
    possible = device.type == "cuda" and world.size == 1
    if config.train.cuda_graph == "on" and not possible:
        raise ConfigError(f"train.cuda_graph 'on' needs one process on a CUDA device, not {world.size} on {device}")
    return possible and config.train.cuda_graph != "off"


@dataclass(frozen=True)
class Images:
    """The three disjoint sets as batches, and the facts of the data."""

    train: Batches
    validation: Batches
    test: ImageSet
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    source: str


def build_images(config: Config, device: torch.device, world: World, data: ImageData | None = None) -> Images:
    """Load the data (unless given), carve the validation set out of the training images, make batches."""
    settings = config.data
    if data is None:
        data = load_data(
            settings.name,
            settings.root,
            limit=settings.limit,
            test_limit=settings.test_limit,
            seed=config.train.seed,
            **settings.options,
        )
    train, validation = split_validation(data.train, settings.validation_fraction, config.train.seed)
    if settings.on_device:
        train = train.to(device)
    shared = {"rank": world.rank, "world_size": world.size, "device": device}
    channels_last = prefers_channels_last(device)
    return Images(
        train=Batches(
            train,
            config.train.batch_size,
            seed=config.train.seed,
            drop_last=True,
            augment=_augment(settings),
            classes_per_batch=settings.classes_per_batch,
            channels_last=channels_last,
            **shared,  # type: ignore[arg-type]
        ),
        validation=scoring_batches(validation, device, world, on_device=settings.on_device),
        test=data.test,
        image_shape=data.image_shape,
        class_names=data.class_names,
        source=data.source,
    )


def scoring_batches(images: ImageSet, device: torch.device, world: World, *, on_device: bool = True) -> Batches:
    """All images once, in order, as they are."""
    size = -(-min(1024, max(len(images), 1)) // world.size) * world.size
    return Batches(
        images.to(device) if on_device else images,
        size,
        device=device,
        shuffle=False,
        rank=world.rank,
        world_size=world.size,
        channels_last=prefers_channels_last(device),
    )


def _augment(settings: DataConfig) -> Augment | None:
    if not (settings.crop_padding or settings.flip or settings.rotation_degrees):
        return None
    return Augment(settings.crop_padding, settings.flip, settings.rotation_degrees, settings.edges)


@dataclass(frozen=True)
class Networks:
    """Everything that holds parameters or state."""

    model: SplitModel
    stack: DefenceStack
    surrogate: ConditionalEntropySurrogate | None
    z_shape: tuple[int, ...]


def _check_answers(answer: tuple[int, ...], num_classes: int) -> None:
    """Refuse a server that has no output for some class: on a GPU that ends as a failed assertion in a kernel."""
    if len(answer) != 1 or answer[0] < num_classes:
        given = ", ".join(["N", *map(str, answer)])
        raise ConfigError(
            f"the model's server must give at least one value for each of the {num_classes} classes of the data, "
            f"(N, {num_classes}); it gives ({given})"
        )


def build_networks(
    config: Config,
    image_shape: tuple[int, int, int],
    num_classes: int,
    device: torch.device,
    model: SplitModel | None = None,
    *,
    cross_fit: bool = False,
) -> Networks:
    """Make (or take) the split model, then its defences and its surrogate; the seed decides all start values.

    ``cross_fit`` is what `cross_fit_reason` found; what the configuration says goes before it.
    """
    cpu = torch.device("cpu")
    own = model is not None
    if model is None:
        seed_stream(cpu, "model", config.train.seed)
        model = build_split_model(
            config.model.name, num_classes, image_shape, config.model.cut, _bottleneck(config.model)
        )
        if config.model.blind_frequencies:
            blind = BlindInput(*image_shape[1:], config.model.blind_frequencies, config.model.blind_contrast)
            model.client = nn.Sequential(blind, model.client)
    z_shape = z_shape_of(model.client, image_shape)
    if own:
        _check_answers(z_shape_of(model.server, z_shape), num_classes)
    defences = [{"name": name, **parameters} for name, parameters in config.defence.items()]
    context = model_context(model.client, z_shape, image_shape) | {"noise_sigma": DEFAULT_SIGMA}
    # What the noise of them all comes to is known once they are built; the closed-form attacker has to live with it.
    context["noise_sigma"] = build_stack(defences, context).noise_std() or DEFAULT_SIGMA
    seed_stream(cpu, "defences", config.train.seed)
    stack = build_stack(defences, context)
    seed_stream(cpu, "surrogate", config.train.seed)
    surrogate = _surrogate(config, stack, prod(z_shape), num_classes, cross_fit)
    model.to(device).train()
    if prefers_channels_last(device):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    stack.to(device).train()
    if surrogate is not None:
        surrogate.to(device).train()
    return Networks(model, stack, surrogate, z_shape)


def _bottleneck(settings: ModelConfig) -> Bottleneck | None:
    if settings.bottleneck_channels == 0:
        return None
    return Bottleneck(settings.bottleneck_channels, settings.bottleneck_activation)


def _surrogate(
    config: Config, stack: DefenceStack, feature_dim: int, num_classes: int, cross_fit: bool
) -> ConditionalEntropySurrogate | None:
    settings = config.surrogate
    if settings.name == "none":
        return None
    sigma = settings.reg_strength or stack.noise_std() or DEFAULT_SIGMA
    try:
        return build_surrogate(
            settings.name,
            feature_dim=feature_dim,
            num_classes=num_classes,
            reg_strength=sigma,
            **({"cross_fit": True} if cross_fit else {}) | settings.arguments,
        )
    except TypeError as error:
        raise ConfigError(f"surrogate.arguments do not fit {settings.name}: {error}") from None


def cross_fit_reason(config: Config, labels: Tensor) -> str | None:
    """Why the run's surrogate must not measure samples against themselves, in words; None where it need not mind.

    Only for surrogates that take ``cross_fit`` and ``bank_size``, and only if the configuration does not say. A memory
    of ``bank_size`` features spans w = bank_size / n epochs of a class with n images. Epochs are shuffled, so that an
    image's earlier feature is still remembered when it returns with a chance of about w²/2: half a per cent for a tenth
    of an epoch, one in two for a whole one.

    Args:
        config: of the run.
        labels: of all training images.

    >>> from attention_cem.training import load_config
    >>> config = load_config(overrides={"surrogate.name": "slot_mixture", "surrogate.arguments.bank_size": 20})
    >>> cross_fit_reason(config, torch.arange(3).repeat(200)) is None
    True
    >>> cross_fit_reason(config, torch.arange(3).repeat(199))
    'a memory of 20 features a class is more than a tenth of the 199 training images of the smallest class'
    """
    defaults, arguments = surrogate_defaults(config.surrogate.name), config.surrogate.arguments
    bank_size = arguments.get("bank_size", defaults.get("bank_size"))
    if "cross_fit" not in defaults or "cross_fit" in arguments or not isinstance(bank_size, int):
        return None
    present = torch.bincount(labels.cpu())
    smallest = int(present[present > 0].min())
    if bank_size * 10 <= smallest:
        return None
    return (
        f"a memory of {bank_size} features a class is more than a tenth of the {smallest} training images "
        "of the smallest class"
    )


def state_modules(networks: Networks, monitor: nn.Module) -> dict[str, nn.Module]:
    """The modules whose state a checkpoint carries, by the name it has there."""
    modules: dict[str, nn.Module] = {"model": networks.model, "defences": networks.stack, "monitor": monitor}
    if networks.surrogate is not None:
        modules["surrogate"] = networks.surrogate
    return modules
