"""The server half as an MLServer runtime: named in the bundle's ``model-settings.json``, used by ``serve``."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
from mlserver import MLModel
from mlserver.errors import MLServerError
from mlserver.types import Datatype, InferenceRequest, InferenceResponse, ResponseOutput, TensorData
from numpy.typing import NDArray
from prometheus_client import Counter, Histogram

from attention_cem.shipping.bundle import FEATURE, LOGITS, SERVER_HALF, Bundle, open_bundle
from attention_cem.shipping.microbatch import Compute, MicroBatcher
from attention_cem.shipping.request_checks import RequestError, RequestRules
from attention_cem.shipping.serve_settings import ServeSettings
from attention_cem.shipping.sessions import check_inputs, open_session


@cache
def answered_requests() -> Counter:
    """Requests by transport and outcome, for Prometheus; made once in a process."""
    return Counter("attention_cem_requests", "Inference requests", ["transport", "outcome"])


@cache
def batch_samples() -> Histogram:
    """Samples in one call of ONNX Runtime, for Prometheus; made once in a process."""
    return Histogram("attention_cem_batch_samples", "Samples in one model call", buckets=[1, 2, 4, 8, 16, 32, 64, 128])


class BundleRuntime(MLModel):
    """Loads a bundle's server half, checks every request, answers with logits.

    `predict` is what plain MLServer calls; `infer` is what our HTTP and gRPC front ends call.
    """

    limits = ServeSettings()
    _executor: ThreadPoolExecutor | None = None

    async def load(self) -> bool:
        """Check the bundle, open the graph and run it once."""
        bundle = open_bundle(self._bundle_folder())
        self.rules = rules_of(bundle, self.limits.max_samples)
        compute = await asyncio.to_thread(open_server, bundle, self.limits.threads)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="onnxruntime")
        self._batcher = MicroBatcher(
            compute,
            self._executor,
            max_batch=self.limits.max_batch,
            max_waiting=self.limits.max_waiting,
            observe=batch_samples().observe,
        )
        return True

    async def unload(self) -> bool:
        """Stop the thread that computes."""
        if self._executor is not None:  # MLServer unloads also what could not be loaded
            self._executor.shutdown(wait=False)
        return True

    async def infer(self, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits ``(N, classes)`` for checked features; refused where finite features overflow in the model."""
        logits = await self._batcher(z)
        if not np.isfinite(logits).all():
            raise RequestError(400, f"'{FEATURE}' is too large: the {LOGITS} are not finite")
        return logits

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a request that came through MLServer's own front end."""
        try:
            rules = self.rules
            outputs = [output.name for output in payload.outputs or ()]
            rules.check_envelope(payload.id, len(payload.inputs), outputs)
            rules.check_server_half(getattr(payload.parameters, SERVER_HALF, None))
            tensor = payload.inputs[0]
            shape = rules.check_tensor(tensor.name, Datatype(tensor.datatype).value, tensor.shape)
            logits = await self.infer(rules.from_values(tensor.data.root, shape))
        except RequestError as error:
            raise MLServerError(error.message, error.status) from None
        data = TensorData(root=logits.ravel().tolist())
        output = ResponseOutput(name=LOGITS, shape=list(logits.shape), datatype=Datatype.FP32, data=data)
        return InferenceResponse(id=payload.id, model_name=self.name, model_version=self.version, outputs=[output])

    def _bundle_folder(self) -> Path:
        uri = self.settings.parameters.uri if self.settings.parameters is not None else None
        if uri is None:
            raise ValueError("model-settings.json must name the bundle's folder in parameters.uri")
        source = self.settings._source
        return Path(source).parent / uri if source else Path(uri)


def open_server(bundle: Bundle, threads: int) -> Compute:
    """A bundle's server half, from z to logits, run once.

    Raises:
        ValueError: it is no graph, or not the one its manifest promises.
    """
    path = bundle.server_path
    session = open_session(path, threads)
    check_inputs(path, session, {FEATURE: ("tensor(float)", *bundle.z_shape)})

    def compute(z: NDArray[np.float32]) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = session.run([LOGITS], {FEATURE: z})[0]
        return logits

    try:
        shape = compute(np.zeros((2, *bundle.z_shape), np.float32)).shape
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise ValueError(f"{path} cannot be run by ONNX Runtime: {error}; export again") from error
    promised = (2, len(bundle.class_names))
    if shape != promised:
        raise ValueError(f"{path} gives {shape}, its manifest promises {promised}; export again")
    return compute


def rules_of(bundle: Bundle, max_samples: int) -> RequestRules:
    """The rules for requests that a bundle implies."""
    return RequestRules(bundle.name, bundle.z_shape, len(bundle.class_names), max_samples, bundle.server_sha256)
