"""One training step: task loss, defence penalties, surrogate merged at the cut, optimiser. No wait for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from attention_cem.defences import DefenceStack
from attention_cem.splitting import SplitModel
from attention_cem.surrogates.base import ConditionalEntropySurrogate, SurrogateOutput
from attention_cem.training.activation import SurrogateMode
from attention_cem.training.cut_gradient import RobGradients, detach_at_cut, merge_at_cut, rob_gradients
from attention_cem.training.distributed import World
from attention_cem.training.meter import Meter
from attention_cem.training.nonfinite import NonFiniteMonitor


@dataclass(frozen=True)
class StepSettings:
    """What stays the same over all steps.

    Args:
        label_smoothing: of the cross-entropy.
        clip_norm: largest norm of the gradient of client and server; None for no limit.
        attention_loss_scale: factor on rob_loss before anything else.
        plain_sum: give the estimator λ times its gradient.
        bf16: run client and server in bf16 autocast.
    """

    label_smoothing: float = 0.0
    clip_norm: float | None = None
    attention_loss_scale: float = 1.0
    plain_sum: bool = False
    bf16: bool = False


class TrainingStep:
    r"""Trains client, server, defences and estimator on one batch.

    .. math:: L = \mathrm{CE}(\text{server}(\text{defences}(z)), y) + \sum_i \text{penalty}_i(x, z, y),
        \qquad z = \text{client}(x),

    with the surrogate's gradient λ·∂rob_loss/∂z added at the cut. Penalties are taken on the leaf the server's
    gradient arrives at, so that one backward pass of the client carries everything. The surrogate sees the clean
    feature of the global batch in full precision. Surrogate and penalties need z alone, as the server does: on a CUDA
    device they run beside it, on a stream of their own.

    All inputs and all state are tensors on one device and nothing is read back, so that the call can be recorded
    as a CUDA graph. ``lambd`` is a tensor for that reason: fill it, do not replace it.

    Args:
        model: the two halves.
        stack: the defences.
        surrogate: None for none.
        optimiser: over the parameters of all of them.
        settings: see `StepSettings`.
        world: the processes that share the batch.
        client: what to call instead of ``model.client``, e.g. its compiled form.
        server, estimate: likewise for ``model.server`` and the surrogate.
    """

    def __init__(
        self,
        model: SplitModel,
        stack: DefenceStack,
        surrogate: ConditionalEntropySurrogate | None,
        optimiser: Optimizer,
        settings: StepSettings,
        *,
        world: World | None = None,
        monitor: NonFiniteMonitor | None = None,
        client: Callable[[Tensor], Tensor] | None = None,
        server: Callable[[Tensor], Tensor] | None = None,
        estimate: Callable[..., SurrogateOutput] | None = None,
    ) -> None:
        self.model, self.stack, self.surrogate, self.optimiser = model, stack, surrogate, optimiser
        self.settings = settings
        self.world = world or World()
        # `or` would ask a compiled module for its length
        self.client = model.client if client is None else client
        self.server = model.server if server is None else server
        self.estimate = surrogate if estimate is None else estimate
        self.device = next(model.parameters()).device
        self.task_parameters = [p for p in (*model.parameters(), *stack.trainable_parameters()) if p.requires_grad]
        self.lambd = torch.zeros((), device=self.device)
        self.meter = Meter(self.device)
        self.monitor = (monitor or NonFiniteMonitor(limit=1)).to(self.device)
        self.last_vectors: dict[str, Tensor] = {}
        # Collectives of several ranks must keep one order, so that only a single process works on two streams.
        beside = self.device.type == "cuda" and self.world.size == 1
        self._side_stream = torch.cuda.Stream(self.device) if beside else None

    def __call__(self, images: Tensor, labels: Tensor, mode: SurrogateMode, sample: Tensor | None = None) -> None:
        """Train on float images ``(N, C, H, W)`` and int64 labels ``(N,)``.

        ``sample`` ``(N,)`` are the images' numbers, for a surrogate that ``uses_sample``.
        """
        values = self.gradients(images, labels, mode, sample)
        if self.settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.task_parameters, self.settings.clip_norm)
        self.optimiser.step()
        self.stack.after_step(self.model.client, self.optimiser)
        self.meter.add(values)

    def gradients(
        self, images: Tensor, labels: Tensor, mode: SurrogateMode, sample: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Leave all gradients of the global batch in ``.grad``; return the step's scalars."""
        self.optimiser.zero_grad(set_to_none=True)
        with self._autocast():
            z = self.client(images)
        z = z if z.dtype == torch.float64 else z.float()
        feature = detach_at_cut(z)
        with self._beside():
            adversaries = self.stack.train_adversaries(images, feature)
            join = self._join_batch if self.world.size > 1 else None
            penalties = self.stack.penalties(images, feature, labels, join=join)
            of_penalties = self._penalty_gradients(feature, penalties)
            active = mode is SurrogateMode.ACTIVE and self.surrogate is not None
            output, rob = self._estimate_with_gradients(feature, labels, sample) if active else (None, None)
        with self._autocast():
            logits = self.server(self.stack(feature))
        logits = logits if logits.dtype == torch.float64 else logits.float()
        cross_entropy = F.cross_entropy(logits, labels, label_smoothing=self.settings.label_smoothing)
        cross_entropy.backward()
        self._join()
        for parameter, gradient in of_penalties:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

        left_out = torch.zeros((), dtype=torch.bool, device=z.device)
        if output is not None and rob is not None:
            left_out = merge_at_cut(
                z, feature.grad, rob, lambd=self.lambd.to(z.dtype), plain_sum=self.settings.plain_sum
            )
        else:
            with torch.no_grad():
                output = self._observe(feature, labels, mode, logits.shape[1], sample)
            z.backward(feature.grad)
        task_loss = sum(penalties.values(), start=cross_entropy)
        self._share_gradients()
        self.monitor.count(left_out, task_loss.detach())
        self.last_vectors = {name: each for name, each in output.diagnostics.items() if each.dim()}
        values = {
            "train_loss": cross_entropy,
            "train_accuracy": (logits.argmax(1) == labels).to(torch.float32).mean(),
            **({} if mode is SurrogateMode.OFF else {"rob_loss": output.rob_loss}),
            "intra_mse": output.intra_mse,
            **{f"surrogate.{name}": each for name, each in output.diagnostics.items() if not each.dim()},
            **{f"penalty.{name}": each for name, each in penalties.items()},
            **{f"adversary.{name}": each for name, each in adversaries.items()},
        }
        return {name: each.detach() for name, each in values.items()}

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """What the server does not wait for: it needs z alone, as the server does."""
        if self._side_stream is None:
            yield
            return
        self._side_stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side_stream):
            yield

    def _join(self) -> None:
        # What was made on the side stream is used and freed only between here and the next `_beside`, which waits:
        # the allocator cannot hand its memory out too early.
        if self._side_stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._side_stream)

    def _penalty_gradients(self, feature: Tensor, penalties: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Gradients of the penalties' sum, with what they belong to: the feature, and what the defences learn."""
        if not penalties:
            return []
        wanted = [feature, *self.stack.trainable_parameters()]
        found = torch.autograd.grad(sum(penalties.values(), start=feature.new_zeros(())), wanted, allow_unused=True)
        return [(each, gradient) for each, gradient in zip(wanted, found, strict=True) if gradient is not None]

    def _estimate_with_gradients(
        self, feature: Tensor, labels: Tensor, sample: Tensor | None
    ) -> tuple[SurrogateOutput, RobGradients]:
        output = self._estimate(feature, labels, sample)
        scaled = self.settings.attention_loss_scale * output.rob_loss
        rob = rob_gradients(feature, scaled, self.surrogate or (), self.stack.trainable_parameters())
        return output, rob._replace(finite=self.world.all(rob.finite))

    def _join_batch(self, x: Tensor, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.world.gather(x), self.world.gather_with_gradient(z), self.world.gather(y)

    def _estimate(self, feature: Tensor, labels: Tensor, sample: Tensor | None) -> SurrogateOutput:
        joined = self.world.gather_with_gradient(self.stack.emission(feature))
        if self.estimate is None or self.surrogate is None:
            raise ValueError("this step has no surrogate")
        labels = self.world.gather(labels)
        if not self.surrogate.uses_sample or sample is None:  # a surrogate that misses them says so itself
            return self.estimate(joined, labels)
        return self.estimate(joined, labels, sample=self.world.gather(sample))

    def _observe(
        self, feature: Tensor, labels: Tensor, mode: SurrogateMode, num_classes: int, sample: Tensor | None
    ) -> SurrogateOutput:
        if mode is SurrogateMode.OBSERVE and self.surrogate is not None:
            return self._estimate(feature, labels, sample)
        flat = self.world.gather(self.stack.emission(feature)).flatten(1)
        return SurrogateOutput(flat.new_zeros(()), within_class_mse(flat, self.world.gather(labels), num_classes), {})

    def _share_gradients(self) -> None:
        if self.world.size == 1:
            return
        parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
        # Batch-norm statistics travel along: every rank then holds the same model at every moment.
        statistics = [buffer for buffer in self.model.buffers() if buffer.is_floating_point()]
        self.world.average_([*(p.grad for p in parameters if p.grad is not None), *statistics])

    def _autocast(self) -> AbstractContextManager[None]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.settings.bf16)


def within_class_mse(z: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Mean squared distance, per dimension, of features ``(N, D)`` from the mean of their class.

    >>> within_class_mse(torch.tensor([[0.0], [2.0], [7.0]]), torch.tensor([0, 0, 1]), num_classes=2)
    tensor(0.6667)
    """
    count = torch.zeros(num_classes, device=z.device, dtype=z.dtype).index_add(0, labels, torch.ones_like(z[:, 0]))
    total = torch.zeros(num_classes, z.shape[1], device=z.device, dtype=z.dtype).index_add(0, labels, z)
    mean = total / count.clamp_min(1).unsqueeze(1)
    return (z - mean[labels]).square().mean()
