"""ONNX Runtime sessions with the settings this package relies on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def open_session(path: Path, threads: int = 1) -> InferenceSession:
    """Open a graph on the CPU.

    Args:
        path: the ONNX file; check it first, see `open_bundle`.
        threads: threads of one call; 0 lets the runtime take every core.

    Raises:
        ValueError: ONNX Runtime cannot make a graph of the file.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError("ONNX Runtime is missing; pip install 'attention-cem[export]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise ValueError(f"{path} cannot be opened by ONNX Runtime: {error}; export again") from error


def check_inputs(path: Path, session: InferenceSession, promised: Mapping[str, tuple[object, ...]]) -> None:
    """Refuse a graph whose inputs are not those of its manifest.

    Args:
        path: the ONNX file, for the message.
        session: from `open_session`.
        promised: for each input its type as ONNX Runtime writes it, then the shape of one sample.
    """
    found = {node.name: (node.type, *node.shape[1:]) for node in session.get_inputs()}
    if found != promised:
        raise ValueError(f"{path} takes the inputs {found}, its manifest promises {dict(promised)}; export again")
