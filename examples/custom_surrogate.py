"""A surrogate of your own in 40 lines: registered, certified by the shipped base test, trained by name.

Run:    python examples/custom_surrogate.py
Test:   python -m pytest -q examples/custom_surrogate.py
Needs:  pip install -e ".[dev]"
"""

import tempfile
from typing import ClassVar

import torch
from torch import Tensor

from attention_cem.surrogates import ConditionalEntropySurrogate, SurrogateOutput, register_surrogate
from attention_cem.surrogates.base import require_positive
from attention_cem.surrogates.segments import class_mean, class_sum, segment_classes, within_class_spread
from attention_cem.testing import SurrogateContract
from attention_cem.training import load_config, train


class OneGaussianCEM(ConditionalEntropySurrogate):
    r"""One diagonal Gaussian per class of the batch: Σ_c (M/B)·mean_d ½ log(1 + s²_cd/σ²), in nats per dimension.

    What a Gaussian of that variance can say through noise of variance σ². It learns nothing, so nothing in it can
    deceive itself; but it sees one batch only, and one mode per class.

    Args:
        feature_dim: D. reg_strength: σ.
    """

    kind: ClassVar[str] = "example_one_gaussian"
    noise_variance: Tensor

    def __init__(self, feature_dim: int, *, reg_strength: float = 0.025) -> None:
        super().__init__(feature_dim)
        # A buffer, so that it is saved, moves to the GPU, and says in which precision to compute.
        self.register_buffer("noise_variance", torch.tensor(require_positive("reg_strength", reg_strength) ** 2))

    def estimate(self, z: Tensor, y: Tensor, only: Tensor | None = None) -> SurrogateOutput:
        segments = segment_classes(y, min_count=2, only=only)  # one row a class; no Python loop
        deviation = z - class_mean(z, segments).index_select(0, segments.row)
        squares = class_sum(deviation.square(), segments.row, segments.num_rows)
        variance = squares / segments.size.clamp_min(1).unsqueeze(1)
        nats = 0.5 * torch.log1p(variance / self.noise_variance).mean(1)  # (R,)
        share = segments.size / max(len(y), 1)
        # Keeps the loss attached to z when no class is active, and carries values that are not finite into it.
        intra_mse, visible = within_class_spread(z, segments)
        loss = (share * nats.masked_fill(~segments.active, 0)).sum() + visible
        active = segments.active.sum()
        told = {"active_classes": active, "skipped_classes": segments.num_classes - active}
        return SurrogateOutput(loss, intra_mse, told)


register_surrogate("example_one_gaussian", OneGaussianCEM)


class TestOneGaussianCEM(SurrogateContract):
    """Gradients, order, dtypes, empty batches, save and load, refusals: what every surrogate must do."""

    def make(self) -> OneGaussianCEM:
        return OneGaussianCEM(self.feature_dim)


def test_one_gaussian__equals_a_plain_loop() -> None:
    torch.manual_seed(0)
    z, y = torch.randn(30, 6, dtype=torch.float64), torch.arange(30) % 4
    expected = torch.zeros((), dtype=torch.float64)
    for c in range(4):
        own = z[y == c]
        expected += len(own) / len(z) * 0.5 * (1 + own.var(0, correction=0) / 0.25).log().mean()
    torch.testing.assert_close(OneGaussianCEM(6, reg_strength=0.5).double()(z, y).rob_loss, expected)


if __name__ == "__main__":
    settings = {
        "data.options": {"size": 16, "num_classes": 5, "num_train": 500, "num_test": 500},
        "data.flip": False, "data.crop_padding": 0, "defence": {"gaussian_noise": {"sigma": 0.1}},
        "surrogate.name": "example_one_gaussian", "surrogate.attention_warmup_epochs": 2,
        "model.name": "tiny_cnn", "train.epochs": 8, "train.batch_size": 50, "train.optimiser": "adamw",
        "train.lr": 0.003, "run.device": "cpu", "run.tensorboard": False, "run.figures": False,
    }  # fmt: skip
    for lambd in (0.0, 1.0):
        with tempfile.TemporaryDirectory() as folder:
            config = load_config(overrides={**settings, "surrogate.lambd": lambd, "run.folder": f"{folder}/run"})
            result = train(config)
        spread = result.metrics[-1]["intra_mse"]
        print(f"λ = {lambd}: test accuracy {result.test_accuracy:.1%}, spread of z within a class {spread:.4f}")
