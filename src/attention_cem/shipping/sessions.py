"""ONNX Runtime sessions with the settings this package relies on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def open_session(path: Path, threads: int = 1) -> InferenceSession:
    """Open a graph on the CPU.

    Args:
        path: the ONNX file; check it first, see `open_bundle`.
        threads: threads of one call; 0 lets the runtime take every core.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError("ONNX Runtime is missing; pip install 'attention-cem[export]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
