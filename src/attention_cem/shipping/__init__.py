"""Shipping: the split as a bundle, the server that answers it, the client that calls it, the advisor on where to cut.

Names are imported on first use: a device that predicts does not import torch, a server does not import the exporter.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attention_cem.shipping.advisor import Advice, CutReport, advise
    from attention_cem.shipping.bundle import Bundle, BundleError, open_bundle
    from attention_cem.shipping.device import DefendedClient
    from attention_cem.shipping.export import Halves, export_bundle
    from attention_cem.shipping.numerical_check import ExportMismatchError
    from attention_cem.shipping.remote import Prediction, RemoteClassifier
    from attention_cem.shipping.serve_settings import ServeSettings
    from attention_cem.shipping.server import serve
    from attention_cem.shipping.streaming import predict_files
    from attention_cem.shipping.transports import RequestRefusedError, ServerUnreachableError, open_transport

_HOME = {
    "Advice": "advisor",
    "Bundle": "bundle",
    "BundleError": "bundle",
    "CutReport": "advisor",
    "DefendedClient": "device",
    "ExportMismatchError": "numerical_check",
    "Halves": "export",
    "Prediction": "remote",
    "RemoteClassifier": "remote",
    "RequestRefusedError": "transports",
    "ServeSettings": "serve_settings",
    "ServerUnreachableError": "transports",
    "advise": "advisor",
    "export_bundle": "export",
    "open_bundle": "bundle",
    "open_transport": "transports",
    "predict_files": "streaming",
    "serve": "server",
}

__all__ = [
    "Advice",
    "Bundle",
    "BundleError",
    "CutReport",
    "DefendedClient",
    "ExportMismatchError",
    "Halves",
    "Prediction",
    "RemoteClassifier",
    "RequestRefusedError",
    "ServeSettings",
    "ServerUnreachableError",
    "advise",
    "export_bundle",
    "open_bundle",
    "open_transport",
    "predict_files",
    "serve",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"attention_cem.shipping.{_HOME[name]}"), name)
    raise AttributeError(f"module 'attention_cem.shipping' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
