"""What a request must look like. Errors say what was expected and never repeat what was sent."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attention_cem.shipping.bundle import FEATURE, LOGITS, SERVER_HALF

_ID = re.compile(r"[\x21-\x7e]{0,128}")
_JSON_BYTES_PER_VALUE = 32
_ENVELOPE_BYTES = 64 * 1024
_MOST_GRPC_BYTES = 2**31 - 1


class RequestError(Exception):
    """A request that is not answered: an HTTP status and a sentence fit for strangers."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class RequestRules:
    """The shapes and sizes one server accepts.

    Args:
        name: of the model.
        z_shape: shape of one feature.
        num_classes: width of the answer.
        max_samples: most samples in a request.
        server_sha256: of the server half that answers; None accepts the clients of every bundle.
    """

    name: str
    z_shape: tuple[int, ...]
    num_classes: int
    max_samples: int
    server_sha256: str | None = None

    @property
    def largest_json(self) -> int:
        """Bytes of the largest body worth reading."""
        return _ENVELOPE_BYTES + _JSON_BYTES_PER_VALUE * self.max_samples * math.prod(self.z_shape)

    @property
    def largest_message(self) -> int:
        """Bytes of the largest gRPC message worth reading: repeated floats or raw bytes, both 4 bytes a value."""
        return min(_MOST_GRPC_BYTES, _ENVELOPE_BYTES + 4 * self.max_samples * math.prod(self.z_shape))

    def check_model(self, name: str, version: str | None = None) -> None:
        """The model must be the one served; it has one version, called 1 or nothing."""
        if name != self.name or version not in (None, "", "1"):
            raise RequestError(404, "unknown model or version")

    def check_envelope(self, identifier: Any, inputs: int, outputs: list[Any]) -> None:
        """Exactly one input; the outputs asked for are ours; the identifier is short and printable."""
        if identifier is not None and (not isinstance(identifier, str) or not _ID.fullmatch(identifier)):
            raise RequestError(400, "'id' must be at most 128 printable ASCII characters without spaces")
        if inputs != 1:
            raise RequestError(400, f"expected exactly one input, '{FEATURE}'")
        if any(output != LOGITS for output in outputs):
            raise RequestError(400, f"the only output is '{LOGITS}'")

    def check_server_half(self, named: Any) -> None:
        """The server half that a client names must be the one served; a client that names none (None) may pass."""
        if named is not None and self.server_sha256 is not None and named != self.server_sha256:
            raise RequestError(
                409,
                "this client's bundle was exported with another server half than the one that is served here: "
                "export again and update both sides",
            )

    def check_tensor(self, name: Any, datatype: Any, shape: Any) -> tuple[int, ...]:
        """Name, type and shape of the input; returns the shape."""
        if name != FEATURE:
            raise RequestError(400, f"expected the input '{FEATURE}'")
        if datatype != "FP32":
            raise RequestError(400, f"'{FEATURE}' must have datatype FP32")
        expected = f"[N, {', '.join(map(str, self.z_shape))}] with N, the samples in it, from 1 to {self.max_samples}"
        if not isinstance(shape, list | tuple) or not all(type(n) is int for n in shape):
            raise RequestError(400, f"'{FEATURE}' must have the shape {expected}")
        if len(shape) != len(self.z_shape) + 1 or tuple(shape[1:]) != self.z_shape:
            raise RequestError(400, f"'{FEATURE}' must have the shape {expected}")
        if not 1 <= shape[0] <= self.max_samples:
            raise RequestError(400, f"'{FEATURE}' must have the shape {expected}")
        return tuple(shape)

    def from_raw(self, raw: bytes, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """A tensor from little-endian bytes."""
        if len(raw) != 4 * math.prod(shape):
            raise RequestError(400, f"'{FEATURE}' has another number of bytes than its shape says")
        return finite(np.frombuffer(raw, dtype="<f4").astype(np.float32, copy=False).reshape(shape))

    def from_values(self, values: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """A tensor from numbers, flat or nested as the shape is."""
        # Without a dtype numpy tells numbers from text and ragged lists, which it would otherwise convert or refuse.
        try:
            array = np.asarray(values)
        except (ValueError, TypeError, OverflowError):
            raise RequestError(400, f"'data' of '{FEATURE}' must be numbers, flat or nested as the shape is") from None
        if array.dtype.kind not in "fiu" or array.shape not in (shape, (math.prod(shape),)):
            raise RequestError(400, f"'data' of '{FEATURE}' must be numbers, flat or nested as the shape is")
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as such
            return finite(array.astype(np.float32).reshape(shape))

    def from_json(self, body: Any) -> tuple[str | None, NDArray[np.float32]]:
        """Identifier and tensor of a JSON request of the Open Inference Protocol."""
        if not isinstance(body, dict) or not isinstance(body.get("inputs"), list):
            raise RequestError(400, "the body must be a JSON object with a list 'inputs'")
        outputs = body.get("outputs")
        if outputs is not None and not (isinstance(outputs, list) and all(isinstance(o, dict) for o in outputs)):
            raise RequestError(400, "'outputs' must be a list of objects")
        self.check_envelope(body.get("id"), len(body["inputs"]), [output.get("name") for output in outputs or ()])
        parameters = body.get("parameters")
        self.check_server_half(parameters.get(SERVER_HALF) if isinstance(parameters, dict) else None)
        tensor = body["inputs"][0]
        if not isinstance(tensor, dict):
            raise RequestError(400, "an input must be a JSON object")
        _refuse_binary(tensor)
        shape = self.check_tensor(tensor.get("name"), tensor.get("datatype"), tensor.get("shape"))
        return body.get("id"), self.from_values(tensor.get("data"), shape)


def finite(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """The array itself, if it holds neither NaN nor infinity."""
    if not np.isfinite(array).all():
        raise RequestError(400, f"'{FEATURE}' must be finite: it holds NaN or infinity")
    return array


def _refuse_binary(tensor: Mapping[str, Any]) -> None:
    parameters = tensor.get("parameters")
    if isinstance(parameters, dict) and "binary_data_size" in parameters:
        raise RequestError(415, "the binary tensor extension is not spoken over HTTP; use JSON tensors or gRPC")
