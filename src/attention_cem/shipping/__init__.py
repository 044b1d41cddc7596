"""Shipping: the split as a bundle, the server that answers it, the client that calls it, the advisor on where to cut.

Names are imported on first use: a device that predicts does not import torch, a server does not import the exporter.
"""

from typing import TYPE_CHECKING

from attention_cem.lazy_names import lazy_names

if TYPE_CHECKING:
    from attention_cem.shipping.advisor import Advice as Advice
    from attention_cem.shipping.advisor import CutReport as CutReport
    from attention_cem.shipping.advisor import advise as advise
    from attention_cem.shipping.bundle import Bundle as Bundle
    from attention_cem.shipping.bundle import BundleError as BundleError
    from attention_cem.shipping.bundle import open_bundle as open_bundle
    from attention_cem.shipping.device import DefendedClient as DefendedClient
    from attention_cem.shipping.export import Halves as Halves
    from attention_cem.shipping.export import export_bundle as export_bundle
    from attention_cem.shipping.numerical_check import ExportMismatchError as ExportMismatchError
    from attention_cem.shipping.remote import Prediction as Prediction
    from attention_cem.shipping.remote import RemoteClassifier as RemoteClassifier
    from attention_cem.shipping.serve_settings import ServeSettings as ServeSettings
    from attention_cem.shipping.server import serve as serve
    from attention_cem.shipping.streaming import predict_files as predict_files
    from attention_cem.shipping.transports import RequestRefusedError as RequestRefusedError
    from attention_cem.shipping.transports import ServerUnreachableError as ServerUnreachableError
    from attention_cem.shipping.transports import open_transport as open_transport
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "advisor": ["Advice", "CutReport", "advise"],
            "bundle": ["Bundle", "BundleError", "open_bundle"],
            "device": ["DefendedClient"],
            "export": ["Halves", "export_bundle"],
            "numerical_check": ["ExportMismatchError"],
            "remote": ["Prediction", "RemoteClassifier"],
            "serve_settings": ["ServeSettings"],
            "server": ["serve"],
            "streaming": ["predict_files"],
            "transports": ["RequestRefusedError", "ServerUnreachableError", "open_transport"],
        },
    )
