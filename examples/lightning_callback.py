"""An unchanged LightningModule, defended by one callback: noise on the feature, surrogate gradient merged at the cut.

Run:    python examples/lightning_callback.py
Needs:  pip install -e ".[lightning]"
"""

import sys
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from attention_cem import SelfDeceptionAlarm, SlotMixtureCEM
from attention_cem.data import synthetic_images, to_float
from attention_cem.defences import DefenceStack, GaussianNoise
from attention_cem.surrogates import ConditionalEntropySurrogate

try:
    import lightning as L
except ModuleNotFoundError as error:
    sys.exit(f'{error}. This example needs Lightning: pip install -e ".[lightning]"')


class MergeAtCut(L.Callback):
    """Takes the output of layer ``at`` as z; the gradient that comes back to it gets λ·∂rob_loss/∂z added.

    Everything behind the layer (the server) sees the noisy z and keeps its own gradient; the estimator has its own
    optimiser. One process, no fp16 scaler: for several use the library's trainer (examples/torchrun_two_ranks.py).
    """

    def __init__(
        self, at: str, surrogate: ConditionalEntropySurrogate, stack: DefenceStack, lambd: float, warm_up: int = 2
    ) -> None:
        self.at, self.surrogate, self.stack, self.lambd, self.warm_up = at, surrogate, stack, lambd, warm_up
        self.estimator = torch.optim.AdamW(surrogate.parameters(), lr=2e-3)
        self.alarm, self.left_out = SelfDeceptionAlarm(window=3), torch.zeros(())
        self.labels: Tensor | None = None
        self.seen: list[Tensor] = []

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if trainer.world_size > 1 or trainer.precision == "16-mixed":
            raise ValueError(f"one process without fp16 scaling, got {trainer.world_size} and {trainer.precision}")
        self.handle = pl_module.get_submodule(self.at).register_forward_hook(self.on_feature)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.handle.remove()

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, index: int) -> None:
        self.labels = batch[1]
        active = trainer.current_epoch >= self.warm_up  # let the task find its feet first
        self.weight = self.lambd / trainer.accumulate_grad_batches if active else 0.0

    def on_feature(self, layer: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        if layer.training and self.labels is not None:
            feature = z.detach().requires_grad_()
            out = self.surrogate(feature, self.labels)
            wanted = [feature, *self.surrogate.parameters()]
            gradients = torch.autograd.grad(out.rob_loss, wanted, allow_unused=True, materialize_grads=True)
            finite = torch.stack([each.isfinite().all() for each in (out.rob_loss, *gradients)]).all()
            at_z, *of_estimator = [torch.where(finite, each, 0) for each in gradients]  # a bad step trains without it
            for parameter, gradient in zip(self.surrogate.parameters(), of_estimator, strict=True):
                parameter.grad = gradient
            z.register_hook(lambda from_server: from_server + self.weight * at_z)
            self.left_out += ~finite
            self.seen.append(torch.stack([out.rob_loss.detach(), out.intra_mse]))
            self.labels = None
        return self.stack(z)  # the same in training, validation and test

    def on_train_batch_end(self, *arguments: Any) -> None:
        self.estimator.step()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        rob_loss, spread = torch.stack(self.seen).mean(0).tolist()
        self.seen.clear()
        # Before that nothing presses on the spread, so nothing can be judged.
        judged = {"rob_loss": rob_loss, "intra_mse": spread}
        spoken = self.alarm.update(judged) if trainer.current_epoch >= self.warm_up and self.lambd else []
        words = "; ".join(spoken) or "silent"
        print(f"epoch {trainer.current_epoch}: {rob_loss:.3f} nats, spread {spread:.4f}, alarm {words}")
        if self.left_out:
            print(f"{int(self.left_out)} steps were not finite and trained without the surrogate")

    def state_dict(self) -> dict[str, Any]:
        return {"surrogate": self.surrogate.state_dict(), "estimator": self.estimator.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.surrogate.load_state_dict(state["surrogate"])
        self.estimator.load_state_dict(state["estimator"])


class YourModule(L.LightningModule):
    """Knows nothing of privacy."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.client = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 8, 3, padding=1), nn.Sigmoid(),
        )  # fmt: skip
        self.server = nn.Sequential(nn.Conv2d(8, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(classes))

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        return F.cross_entropy(self.server(self.client(batch[0])), batch[1])

    def test_step(self, batch: list[Tensor], index: int) -> None:
        correct = self.server(self.client(batch[0])).argmax(1) == batch[1]
        self.log("accuracy", correct.float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="lightning")  # remarks on workers and loggers of this small run
    data = synthetic_images(num_train=500, num_test=500, num_classes=5, size=16)
    train, test = (
        DataLoader(TensorDataset(to_float(each.images), each.labels), 50, shuffle=each is data.train)
        for each in (data.train, data.test)
    )
    for lambd in (0.0, 1.0):
        L.seed_everything(0, verbose=False)
        module = YourModule(data.num_classes)
        module.server(module.client(torch.zeros(1, *data.image_shape)))  # the lazy layer learns its width
        surrogate = SlotMixtureCEM(8 * 8 * 8, data.num_classes, reg_strength=0.1, num_slots=3, bank_size=64)
        merge = MergeAtCut("client", surrogate, DefenceStack([GaussianNoise(0.1)]), lambd)
        trainer = L.Trainer(
            max_epochs=8, accelerator="cpu", callbacks=[merge], logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        print(f"λ = {lambd}")
        trainer.fit(module, train)
        (result,) = trainer.test(module, test, verbose=False)
        print(f"test accuracy {result['accuracy']:.1%}")
