"""A defence of your own in 40 lines: registered, certified by the shipped base test, trained by name.

Run:    python examples/custom_defence.py
Test:   python -m pytest -q examples/custom_defence.py
Needs:  pip install -e ".[dev]"
"""

import tempfile
from typing import Any, ClassVar

import torch
from torch import Tensor

from attention_cem.defences import FeatureDefence, Stage, register_defence
from attention_cem.defences.randomness import Draw, NoiseSource, uniform_like
from attention_cem.defences.testing import DefenceContract
from attention_cem.training import load_config, train


@register_defence
class StochasticRounding(FeatureDefence):
    """z̃ = Δ·⌊z/Δ + u⌋ with u uniform on [0, 1): a coarse grid, right on average, few bits to send.

    Args:
        step: Δ, the distance of the grid's points, in the units of z.
    """

    name: ClassVar[str] = "stochastic_rounding"
    stage: ClassVar[Stage] = Stage.NOISE

    def __init__(self, step: float) -> None:
        super().__init__()
        if not step > 0:
            raise ValueError(f"step must be above 0, received {step!r}")
        self.step = float(step)

    def forward(self, z: Tensor, source: NoiseSource = None) -> Tensor:
        rounded = self.step * torch.floor(z / self.step + uniform_like(z, source))
        return z + (rounded - z).detach()  # the gradient passes straight through

    def draws(self) -> tuple[Draw, ...]:
        return ("uniform",)  # so that an exported client can be handed its randomness

    def noise_variance(self) -> None:
        return None  # it depends on z

    def config(self) -> dict[str, Any]:
        return {"step": self.step}

    def guarantee(self) -> str:
        return "No formal guarantee: averaging repeated releases of one input removes the rounding."


class TestStochasticRounding(DefenceContract):
    """Eleven properties the rest of the library relies on: same in training and evaluation, fresh noise, ..."""

    stochastic = True

    def make(self) -> StochasticRounding:
        return StochasticRounding(step=0.5)


def test_rounding__is_right_on_average_and_lands_on_the_grid() -> None:
    torch.manual_seed(0)
    released = StochasticRounding(step=0.5)(torch.full((20_000, 1), 0.6))
    assert set(released.unique().tolist()) == {0.5, 1.0}
    assert abs(released.mean().item() - 0.6) < 0.01


if __name__ == "__main__":
    settings = {
        "data.options": {"size": 16, "num_classes": 5, "num_train": 500, "num_test": 500},
        "data.flip": False, "data.crop_padding": 0,
        "model.name": "tiny_cnn", "train.epochs": 6, "train.batch_size": 50, "train.optimiser": "adamw",
        "train.lr": 0.003, "run.device": "cpu", "run.tensorboard": False, "run.figures": False,
    }  # fmt: skip
    for name, defence in {"nothing": {}, "rounding": {"stochastic_rounding": {"step": 0.5}}}.items():
        with tempfile.TemporaryDirectory() as folder:
            config = load_config(overrides={**settings, "defence": defence, "run.folder": f"{folder}/run"})
            result = train(config)
        told = [f"{each['name']} (step {each['step']})" for each in result.facts["defences"]["defences"]]
        print(f"{name:<10} test accuracy {result.test_accuracy:.1%}   defences in the run's record: {told or 'none'}")
    print("z lies in (0, 1), so a step of 0.5 leaves three values a coordinate. How private that is: audit it.")
