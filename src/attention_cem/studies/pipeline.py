"""What a configuration builds, as facts: parts, parameters and the shapes of every tensor between them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from attention_cem.studies.surrogate_stages import Stage, stages_of
from attention_cem.training.config import Config, ModelConfig
from attention_cem.training.config_checks import ConfigError

# The images of these sets are the same size everywhere, and loading them just to draw a chart takes seconds.
_WELL_KNOWN = {"cifar10": (3, 32, 32), "cifar100": (3, 32, 32)}


@dataclass(frozen=True)
class Pipeline:
    """A configured pipeline.

    Args:
        data: name of the data set.
        backbone: name of the network.
        batch_size: B.
        image_shape: (C, H, W).
        z_shape: shape of the feature at the cut.
        num_classes: of the data.
        client_parameters: how many.
        server_parameters: how many.
        bottleneck: channels of the bottleneck, 0 for a bare cut, and its activation.
        blind: what of an image the client does not see, in words; empty if it sees all.
        defences: name and parameters of each that acts on z, in the order they act.
        penalties: names of the defences that are terms of the loss.
        surrogate: its name; ``none`` for none.
        lambd: λ.
        warmup_epochs: before rob_loss is used.
        stages: of the surrogate.
        attacker: stages of the closed-form attacker that the client is trained against; none without it.
        attacker_weight: of the share it recovers, in the loss.
        attacker_ramp: steps over which that weight rises.
    """

    data: str
    backbone: str
    batch_size: int
    image_shape: tuple[int, int, int]
    z_shape: tuple[int, ...]
    num_classes: int
    client_parameters: int
    server_parameters: int
    bottleneck: tuple[int, str]
    blind: str
    defences: tuple[tuple[str, dict[str, Any]], ...]
    penalties: tuple[str, ...]
    surrogate: str
    lambd: float
    warmup_epochs: int
    stages: tuple[Stage, ...]
    attacker: tuple[Stage, ...] = ()
    attacker_weight: float = 0.0
    attacker_ramp: int = 0

    @property
    def feature_dim(self) -> int:
        """D, values of z per image."""
        return prod(self.z_shape)


def describe_pipeline(
    config: Config, *, image_shape: tuple[int, int, int] | None = None, num_classes: int | None = None
) -> Pipeline:
    """Build what the configuration names, on the CPU and untrained, and note the shapes.

    Args:
        config: from `load_config`.
        image_shape: (C, H, W); otherwise that of the data set, which is loaded for it unless it is well known.
        num_classes: otherwise that of the data set.

    Raises:
        ConfigError: the configuration cannot be built.
        MissingDataError: the shape of the images is not known without the data.

    >>> from attention_cem.training import load_config
    >>> config = load_config(overrides={"data.name": "cifar10", "model.name": "tiny_cnn"})
    >>> describe_pipeline(config).z_shape
    (8, 8, 8)
    """
    import torch

    from attention_cem.defences import ClientDefence, Defence, FeatureDefence, PenaltyDefence
    from attention_cem.studies.attacker_stages import attacker_stages
    from attention_cem.surrogates.leakage_penalty import LinearLeakagePenalty
    from attention_cem.training.building import build_networks

    shape, classes = image_shape, num_classes
    if shape is None or classes is None:
        found_shape, found_classes = _images(config)
        shape, classes = shape or found_shape, found_classes if classes is None else classes
    try:
        with torch.random.fork_rng(devices=[]):
            networks = build_networks(config, shape, classes, torch.device("cpu"))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    batch, surrogate = config.train.batch_size, networks.surrogate
    stack = [each for each in networks.stack.defences.values() if isinstance(each, Defence)]
    leakage = next((each for each in stack if isinstance(each, LinearLeakagePenalty)), None)
    return Pipeline(
        data=config.data.name,
        backbone=config.model.name,
        batch_size=batch,
        image_shape=shape,
        z_shape=networks.z_shape,
        num_classes=classes,
        client_parameters=sum(each.numel() for each in networks.model.client.parameters()),
        server_parameters=sum(each.numel() for each in networks.model.server.parameters()),
        bottleneck=(config.model.bottleneck_channels, config.model.bottleneck_activation),
        blind=_blind(config.model),
        defences=tuple(
            (each.name, dict(config.defence[each.name]))
            for each in stack
            if isinstance(each, FeatureDefence | ClientDefence)
        ),
        penalties=tuple(each.name for each in stack if isinstance(each, PenaltyDefence)),
        surrogate=config.surrogate.name,
        lambd=config.surrogate.lambd,
        warmup_epochs=config.surrogate.attention_warmup_epochs,
        stages=() if surrogate is None else stages_of(surrogate, batch, classes),
        attacker=() if leakage is None else attacker_stages(leakage, batch),
        attacker_weight=0.0 if leakage is None else leakage.weight,
        attacker_ramp=0 if leakage is None else leakage.ramp_steps,
    )


def _blind(model: ModelConfig) -> str:
    waves = model.blind_frequencies
    return f"blind to {waves}×{waves} waves{', contrast' if model.blind_contrast else ''}" if waves else ""


def _images(config: Config) -> tuple[tuple[int, int, int], int]:
    from attention_cem.data import load_data
    from attention_cem.data.registry import lookup_data

    settings = config.data
    known, classes = _WELL_KNOWN.get(settings.name), lookup_data(settings.name).num_classes
    if known is not None and classes is not None:
        return known, classes
    data = load_data(settings.name, settings.root, seed=config.train.seed, **settings.options)
    return data.image_shape, data.num_classes
