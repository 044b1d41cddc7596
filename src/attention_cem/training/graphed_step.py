"""The whole training step as a CUDA graph: one launch a step instead of some hundred."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_cem.training.activation import SurrogateMode
from attention_cem.training.step import TrainingStep

_EAGER_STEPS = 4
_logger = logging.getLogger("attention_cem")


@dataclass
class _Recording:
    graph: torch.cuda.CUDAGraph
    images: Tensor
    labels: Tensor
    sample: Tensor | None
    vectors: dict[str, Tensor]


class GraphedStep:
    """Calls a `TrainingStep`, recorded once for each surrogate mode.

    The first steps of a mode run as usual (on a side stream, as recording requires): they train like all others
    and make the optimiser's buffers. Batches must all have one shape; they are copied into the recording's own.
    Random numbers follow the global generator's seed at every replay.

    Args:
        step: the step; its optimiser needs step sizes that are tensors.
    """

    def __init__(self, step: TrainingStep) -> None:
        if step.device.type != "cuda":
            raise ValueError(f"a CUDA graph needs a CUDA device, the model is on {step.device}")
        if step.world.size > 1:
            raise ValueError("a CUDA graph works with one process; set train.cuda_graph to 'off' under torchrun")
        self.step = step
        self._stream = torch.cuda.Stream(step.device)
        self._eager: dict[SurrogateMode, int] = {}
        self._recorded: dict[SurrogateMode, _Recording] = {}

    def __call__(self, images: Tensor, labels: Tensor, mode: SurrogateMode, sample: Tensor | None = None) -> None:
        """Train on one batch; ``sample`` as for the step, given always or never."""
        if mode not in self._recorded:
            done = self._eager.get(mode, 0)
            if done < _EAGER_STEPS:
                self._eager[mode] = done + 1
                self._run_aside(images, labels, mode, sample)
                return
            self._recorded[mode] = self._record(images, labels, mode, sample)
        recording = self._recorded[mode]
        recording.images.copy_(images)
        recording.labels.copy_(labels)
        if recording.sample is not None and sample is not None:
            recording.sample.copy_(sample)
        recording.graph.replay()
        self.step.last_vectors = recording.vectors

    def _run_aside(self, images: Tensor, labels: Tensor, mode: SurrogateMode, sample: Tensor | None) -> None:
        current = torch.cuda.current_stream(self.step.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self.step(images, labels, mode, sample)
        current.wait_stream(self._stream)

    def _record(self, images: Tensor, labels: Tensor, mode: SurrogateMode, sample: Tensor | None) -> _Recording:
        own_images, own_labels = torch.empty_like(images), torch.empty_like(labels)
        own_sample = None if sample is None else torch.empty_like(sample)
        graph = torch.cuda.CUDAGraph()
        # Gradients of earlier steps must go first: those made while recording live in the graph's memory.
        self.step.optimiser.zero_grad(set_to_none=True)
        with _silent(), torch.cuda.graph(graph, stream=self._stream):
            self.step(own_images, own_labels, mode, own_sample)
        return _Recording(graph, own_images, own_labels, own_sample, self.step.last_vectors)


@contextmanager
def _silent() -> Iterator[None]:
    # A log line would read values from the device, which recording forbids.
    before, _logger.disabled = _logger.disabled, True
    try:
        yield
    finally:
        _logger.disabled = before
