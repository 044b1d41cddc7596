"""Files that let other inference servers take the server half: Triton's repository, MLServer's settings."""

from __future__ import annotations

import json
from collections.abc import Sequence

from attention_cem.shipping.bundle import FEATURE, LOGITS

MAX_BATCH = 256
"""Most samples in one request, here and in Triton's configuration."""

RUNTIME = "attention_cem.shipping.runtime.BundleRuntime"


def triton_config(name: str, z_shape: Sequence[int], num_classes: int) -> str:
    """Triton's ``config.pbtxt`` for the server half; the batch dimension is implied by ``max_batch_size``.

    >>> print(triton_config("digits", (8, 4, 4), 10).splitlines()[1])
    platform: "onnxruntime_onnx"
    """
    dims = ", ".join(map(str, z_shape))
    return (
        f"name: {json.dumps(name)}\n"
        'platform: "onnxruntime_onnx"\n'
        f"max_batch_size: {MAX_BATCH}\n"
        f'input [ {{ name: "{FEATURE}" data_type: TYPE_FP32 dims: [ {dims} ] }} ]\n'
        f'output [ {{ name: "{LOGITS}" data_type: TYPE_FP32 dims: [ {num_classes} ] }} ]\n'
        "dynamic_batching { max_queue_delay_microseconds: 2000 }\n"
    )


def mlserver_settings() -> str:
    """``settings.json`` for plain ``mlserver start``: loopback only, because it checks no token.

    >>> json.loads(mlserver_settings())["host"]
    '127.0.0.1'
    """
    return json.dumps({"host": "127.0.0.1", "parallel_workers": 0, "debug": False}, indent=1) + "\n"


def mlserver_model_settings(name: str, z_shape: Sequence[int], num_classes: int) -> str:
    """``model-settings.json`` for MLServer: our runtime, and the tensors it takes and gives.

    >>> json.loads(mlserver_model_settings("digits", (8, 4, 4), 10))["inputs"][0]["shape"]
    [-1, 8, 4, 4]
    """
    return json.dumps(model_settings(name, "..", z_shape, num_classes), indent=1) + "\n"


def model_settings(name: str, uri: str, z_shape: Sequence[int], num_classes: int) -> dict[str, object]:
    """The content of ``model-settings.json`` as plain data."""
    return {
        "name": name,
        "implementation": RUNTIME,
        "platform": "onnxruntime_onnx",
        "parameters": {"uri": uri},
        "inputs": [{"name": FEATURE, "datatype": "FP32", "shape": [-1, *z_shape]}],
        "outputs": [{"name": LOGITS, "datatype": "FP32", "shape": [-1, num_classes]}],
    }
