"""The configuration of a run: one tree of plain dataclasses. Importing it does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


def option(default: Any, text: str) -> Any:
    """A dataclass field with a default and the sentence that ``--help`` shows for it."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class DataConfig:
    """Which images, and how they are varied."""

    name: str = option("synthetic", "data set; `attention-cem data list` shows the names")
    root: str | None = option(None, "folder with the data files; otherwise the variable ATTENTION_CEM_DATA")
    limit: int | None = option(None, "keep at most so many training and test images")
    test_limit: int | None = option(None, "keep at most so many test images; overrides data.limit for them")
    validation_fraction: float = option(0.1, "share of the training images held out to choose the checkpoint")
    crop_padding: int = option(4, "random crop: pixels added on each side; 0 for none")
    flip: bool = option(True, "mirror half of the images")
    rotation_degrees: float = option(0.0, "rotate by a random angle up to this; 0 for none")
    edges: Literal["black", "mirrored"] = option(
        "black", "what lies outside a cropped or rotated image; mirrored where the client is blind to slow waves"
    )
    classes_per_batch: int | None = option(None, "P of class-balanced P×K batches; K is batch_size / P")
    on_device: bool = option(True, "keep all images on the training device; false where they do not fit")
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "further arguments of the data set's loader", "example": "size 16"}
    )


@dataclass(frozen=True)
class ModelConfig:
    """Which network, and where it is cut."""

    name: str = option("vgg11_bn", "backbone: vgg11_bn, resnet20, mobilenet_v2, vit_small, tiny_cnn or your own")
    cut: str | None = option(None, "layer behind which to cut; otherwise the backbone's own")
    bottleneck_channels: int = option(8, "channels of z after the bottleneck; 0 for a bare cut")
    bottleneck_activation: Literal["sigmoid", "none"] = option("sigmoid", "activation of the bottleneck")
    blind_frequencies: int = option(0, "slowest cosine waves a side that the client does not see; 0 shows it all")
    blind_contrast: bool = option(False, "with blind_frequencies: the client does not see the contrast either")


@dataclass(frozen=True)
class SurrogateConfig:
    """Which estimate of H(z|y) is lowered, how strongly and when."""

    name: str = option("none", "surrogate: none, slot_mixture, slot_cross, gated, kmeans, ...")
    lambd: float = option(0.0, "λ, weight of rob_loss in the client's gradient")
    lambd_schedule: Literal["constant", "ramp", "reference"] = option(
        "constant", "w_lr: constant, ramp (rises over ramp_epochs, then constant), reference (follows the lr)"
    )
    ramp_epochs: int = option(5, "epochs over which the ramp rises to λ")
    attention_warmup_epochs: int = option(0, "epochs before rob_loss is used; the first epoch never uses it")
    attention_loss_scale: float = option(1.0, "factor on rob_loss before anything else")
    plain_sum: bool = option(False, "give the estimator λ times its gradient: L = L_D + λ·rob_loss")
    reg_strength: float | None = option(None, "σ the surrogate assumes; otherwise that of the defences, or 0.025")
    lr: float = option(0.01, "step size of the estimator parameters")
    lr_schedule: Literal["constant", "cosine", "multistep", "one_cycle"] = option(
        "constant", "schedule of the estimator's step size"
    )
    weight_decay: float = option(0.0, "weight decay of the estimator parameters")
    arguments: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "further arguments of the surrogate", "example": "num_slots 8"}
    )


@dataclass(frozen=True)
class TrainConfig:
    """How the split model is trained."""

    epochs: int = option(240, "epochs")
    batch_size: int = option(128, "images in a batch, over all processes together")
    optimiser: Literal["sgd", "adamw"] = option("sgd", "optimiser of client, server and estimator")
    lr: float = option(0.05, "step size of client and server")
    momentum: float = option(0.9, "momentum (sgd)")
    nesterov: bool = option(False, "Nesterov momentum (sgd)")
    weight_decay: float = option(5e-4, "weight decay of client and server")
    schedule: Literal["constant", "cosine", "multistep", "one_cycle"] = option("cosine", "schedule of the step size")
    milestones: list[int] = field(
        default_factory=lambda: [60, 120, 180, 210],
        metadata={"help": "multistep: epochs after which the step size drops"},
    )
    milestone_factor: float = option(0.2, "multistep: factor at each milestone")
    lr_warmup_epochs: float = option(0.0, "epochs of linear rise before the schedule (not for one_cycle)")
    label_smoothing: float = option(0.0, "label smoothing of the cross-entropy")
    clip_norm: float | None = option(None, "clip the gradient of client and server to this norm")
    seed: int = option(0, "the only source of randomness")
    precision: Literal["auto", "fp32", "bf16"] = option("auto", "auto: bf16 autocast on CUDA, fp32 on the CPU")
    compile: bool = option(False, "torch.compile client, server, penalties; the surrogate where it is worth the wait")
    cuda_graph: Literal["off", "auto", "on"] = option(
        "off", "record the whole step as a CUDA graph; auto: where one process trains on one CUDA device"
    )
    nonfinite_limit: int = option(25, "stop after so many steps in a row whose surrogate was not finite")
    check_steps: int = option(50, "look for trouble and stop requests every so many steps")


@dataclass(frozen=True)
class RunConfig:
    """Where the run lives. Nothing here changes what is computed."""

    folder: str | None = option(None, "run folder; otherwise runs/<data>-<model>-<surrogate>-<hash>")
    resume: bool = option(False, "continue the run in the folder")
    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    checkpoint_epochs: int = option(1, "write a checkpoint every so many epochs, and after the last")
    checkpoint_seconds: float = option(300.0, "also write one within an epoch after so many seconds")
    tensorboard: bool = option(True, "write TensorBoard event files, where tensorboard is installed")
    figures: bool = option(True, "draw the curves at the end, where matplotlib is installed")


@dataclass(frozen=True)
class Config:
    """A whole run.

    ``defence`` maps the name of each defence to its parameters.

    >>> config = Config(train=TrainConfig(epochs=2), defence={"gaussian_noise": {"sigma": 0.025}})
    >>> config.train.epochs, config.surrogate.name
    (2, 'none')
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    defence: dict[str, dict[str, Any]] = field(
        default_factory=dict,
        metadata={"help": "parameters of each defence, by its name", "example": "gaussian_noise.sigma 0.025"},
    )
    surrogate: SurrogateConfig = field(default_factory=SurrogateConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    run: RunConfig = field(default_factory=RunConfig)
