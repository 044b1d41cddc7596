"""``RemoteClassifier``: pixels in, classes out, with only the defended feature on the wire."""

from __future__ import annotations

import random
import threading
import time
import uuid
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attention_cem.shipping.bundle import Bundle
from attention_cem.shipping.device import DefendedClient
from attention_cem.shipping.transports import RequestRefusedError, ServerUnreachableError, Transport

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_LONGEST_WAIT = 7 * 86_400


@dataclass(frozen=True)
class Prediction:
    """The most likely class of one image, and the probability the server gives it."""

    label: int
    class_name: str
    confidence: float


class RemoteClassifier:
    """Classifies images with the client half here and the server half elsewhere.

    Each image is released once: a request that fails is repeated with the same bytes and the same identifier, never
    with fresh noise, because the average over several releases of one image is less private than one. The server
    keeps no state, so a repeated request changes nothing.

    Args:
        bundle: from `open_bundle`.
        transport: from `open_transport`.
        timeout: seconds for one attempt.
        patience: seconds after which a server that does not answer is given up; pauses between attempts double from
            0.1 s to 5 s, with a random part so that many clients do not come back at once.
        batch_size: images in one request.
        threads: threads of ONNX Runtime.
    """

    def __init__(
        self,
        bundle: Bundle,
        transport: Transport,
        *,
        timeout: float = 10.0,
        patience: float = 60.0,
        batch_size: int = 32,
        threads: int = 1,
    ) -> None:
        if batch_size < 1 or not 0 < timeout <= _LONGEST_WAIT or not patience >= 0:
            raise ValueError(
                f"expected batch_size ≥ 1, timeout > 0 and at most {_LONGEST_WAIT} seconds, patience ≥ 0, "
                f"received {batch_size}, {timeout}, {patience}"
            )
        self.bundle = bundle
        self.batch_size = batch_size
        self._client = DefendedClient(bundle, threads)
        self._transport = transport
        self._timeout = timeout
        self._patience = patience
        self._giving_up = threading.Event()

    def predict(self, images: NDArray[np.uint8]) -> list[Prediction]:
        """Predictions for images ``(N, C, H, W)``, in order."""
        return [
            prediction
            for begin in range(0, len(images), self.batch_size)
            for prediction in self._predictions(self.logits(images[begin : begin + self.batch_size]))
        ]

    def logits(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The server's output ``(N, classes)`` for one request's worth of images.

        Raises:
            RequestRefusedError: the server refused, or answered with something that cannot be.
            ServerUnreachableError: no answer within the patience.
        """
        z = self._client.release(images)
        logits = self._ask(z, str(uuid.uuid4()))
        if logits.shape != (len(images), len(self.bundle.class_names)) or not np.isfinite(logits).all():
            raise RequestRefusedError(
                f"the server answered {logits.shape} for {len(images)} images of {len(self.bundle.class_names)} "
                "classes, or not with finite numbers; does it serve this bundle?"
            )
        return logits

    def give_up(self, now: bool = True) -> None:
        """Let requests of other threads fail instead of being repeated; ``now=False`` takes it back."""
        if now:
            self._giving_up.set()
        else:
            self._giving_up.clear()

    def _ask(self, z: NDArray[np.float32], request_id: str) -> NDArray[np.float32]:
        give_up = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._transport.infer(self.bundle.name, z, request_id, self._timeout, self.bundle.server_sha256)
            except ServerUnreachableError as error:
                wait = pause * random.uniform(0.5, 1.5)
                if time.monotonic() + wait > give_up:
                    raise ServerUnreachableError(f"no answer within {self._patience:g} s; last: {error}") from None
            if self._giving_up.wait(wait):
                raise ServerUnreachableError("told to give up before the server answered")
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _predictions(self, logits: NDArray[np.float32]) -> list[Prediction]:
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        shares = exponentials / exponentials.sum(1, keepdims=True)
        labels = shares.argmax(1)
        return [
            Prediction(int(label), self.bundle.class_names[label], float(share[label]))
            for label, share in zip(labels, shares, strict=True)
        ]
