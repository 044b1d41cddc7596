"""A Hugging Face model and Trainer, defended by overriding compute_loss: the merge at the cut as one scalar loss.

Run:    python examples/hugging_face_trainer.py
Needs:  pip install -e ".[huggingface]"
"""

import sys
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from attention_cem import SlotMixtureCEM
from attention_cem.data import ImageSet, synthetic_images, to_float
from attention_cem.defences import DefenceStack, GaussianNoise
from attention_cem.surrogates import ConditionalEntropySurrogate

try:
    import accelerate  # noqa: F401 (the Trainer needs it)
    from transformers import PrinterCallback, Trainer, TrainingArguments, ViTConfig, ViTForImageClassification
except ModuleNotFoundError as error:
    sys.exit(f'{error}. This example needs transformers and accelerate: pip install -e ".[huggingface]"')


def merged_loss(
    z: Tensor, y: Tensor, task_loss: Tensor, surrogate: ConditionalEntropySurrogate, lambd: float
) -> tuple[Tensor, Tensor]:
    """A loss with the value of ``task_loss`` whose gradient has the surrogate's merged in at z; and rob_loss.

    d/dz of ⟨z, g⟩ is g: the client gets λ·∂rob/∂z, the server nothing, the estimator its own gradient, and whoever
    calls backward (accelerate, a scaler, gradient accumulation) needs to know nothing of it.
    """
    feature = z.detach().requires_grad_()
    out = surrogate(feature, y)
    learned = [z, *surrogate.parameters()]
    gradients = torch.autograd.grad(out.rob_loss, [feature, *learned[1:]], allow_unused=True, materialize_grads=True)
    finite = torch.stack([each.isfinite().all() for each in (out.rob_loss, *gradients)]).all()
    weights = [lambd, *(1.0 for _ in learned[1:])]
    for weight, tensor, gradient in zip(weights, learned, gradients, strict=True):
        term = weight * (tensor * torch.where(finite, gradient, 0)).sum()  # a step that is not finite trains without
        task_loss = task_loss + term - term.detach()
    return task_loss, out.rob_loss.detach()


class PrivateTrainer(Trainer):
    """Takes the output of layer ``at`` as z, puts the defences on it and the surrogate beside it."""

    def __init__(
        self, *arguments: Any, at: str, surrogate: ConditionalEntropySurrogate, stack: DefenceStack, lambd: float,
        **named: Any,
    ) -> None:  # fmt: skip
        super().__init__(*arguments, **named)
        self.surrogate, self.stack, self.lambd = surrogate, stack, lambd
        self.history: list[Tensor] = []
        self.model.get_submodule(at).register_forward_hook(self.on_feature)

    def on_feature(self, layer: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        self.z = z
        return self.stack(z)  # the same in training and evaluation

    def create_optimizer(self, *arguments: Any) -> torch.optim.Optimizer:
        optimiser = super().create_optimizer(*arguments)
        optimiser.add_param_group({"params": list(self.surrogate.parameters()), "weight_decay": 0.0})
        return optimiser

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **named: Any
    ) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **named)
        if model.training:
            loss, rob_loss = merged_loss(self.z, inputs["labels"], loss, self.surrogate, self.lambd)
            self.history.append(rob_loss)
        return (loss, outputs) if return_outputs else loss


class Images(Dataset):
    def __init__(self, images: ImageSet) -> None:
        self.pixels, self.labels = to_float(images.images), images.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.pixels[index], "labels": self.labels[index]}


def accuracy_of(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def spread_of(model: nn.Module, at: str, images: ImageSet) -> float:
    """Mean squared distance of z from its class's mean: what no estimator can talk itself out of."""
    kept: list[Tensor] = []
    handle = model.get_submodule(at).register_forward_hook(lambda layer, inputs, z: kept.append(z), prepend=True)
    with torch.no_grad():
        model.eval()(pixel_values=to_float(images.images))
    handle.remove()
    z = kept[0].flatten(1)
    means = torch.stack([z[images.labels == c].mean(0) for c in range(images.num_classes)])
    return float((z - means[images.labels]).square().mean())


if __name__ == "__main__":
    data = synthetic_images(num_train=500, num_test=500, num_classes=5, size=16)
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=4,
        num_labels=data.num_classes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        initializer_range=0.15,
    )  # fmt: skip
    at = "vit.layers.0"  # the client: patch embedding and the first block; z is 17 tokens of 32 numbers
    for lambd in (0.0, 0.3):
        torch.manual_seed(0)
        model = ViTForImageClassification(config)
        surrogate = SlotMixtureCEM(17 * 32, data.num_classes, reg_strength=0.1, num_slots=3, bank_size=64)
        with tempfile.TemporaryDirectory() as folder:
            trainer = PrivateTrainer(
                model,
                TrainingArguments(
                    folder, num_train_epochs=10, per_device_train_batch_size=50, learning_rate=3e-3, use_cpu=True,
                    report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=0,
                    per_device_eval_batch_size=500,
                ),
                train_dataset=Images(data.train), eval_dataset=Images(data.test), compute_metrics=accuracy_of,
                at=at, surrogate=surrogate, stack=DefenceStack([GaussianNoise(0.1)]), lambd=lambd,
            )  # fmt: skip
            trainer.remove_callback(PrinterCallback)
            trainer.train()
            accuracy = trainer.evaluate()["eval_accuracy"]
        nats, spread = float(trainer.history[-1]), spread_of(model, at, data.test)
        print(f"λ = {lambd}: test accuracy {accuracy:.1%}, {nats:.3f} nats above the noise, spread {spread:.4f}")
